import { logprobsMax } from '../core/sampling-parse.ts';
import { describeValue } from '../core/sampling-read.ts';
import type { TokenLogprobs } from '../core/step.ts';
import type { AsyncEngine } from '../engine/contract.ts';
import type { FieldReader } from './field-reader.ts';
import { atLeastMin, codePointsIn, lenient, tokenName, topByName } from './openai-logprobs.ts';
import type { CompletionLogprobs, PromptTokenLogprobs } from './openai-types.ts';

/** vLLM's `prompt_logprobs`: the number of top tokens. As in vLLM, a stream has none. */
export function readPromptLogprobs(reader: FieldReader): number | undefined {
  const count = reader.integer('prompt_logprobs', { min: 0, max: logprobsMax });
  if (count !== undefined && reader.boolean('stream') === true) {
    throw reader.invalid('prompt_logprobs', 'absent if `stream` is true', describeValue(count));
  }
  return count;
}

/** A prompt and the logprobs of its tokens after the first. */
export interface ScoredPrompt {
  readonly tokens: readonly number[] | Int32Array;
  readonly entries: readonly TokenLogprobs[];
}

/**
 * vLLM's format: for each token of the prompt, the logprobs of the token and of the `topCount` most probable tokens, by
 * token id. The first token has none.
 */
export function renderPromptLogprobs(
  engine: AsyncEngine,
  { tokens, entries }: ScoredPrompt,
  topCount: number,
): PromptTokenLogprobs[] {
  const rendered: PromptTokenLogprobs[] = [null];
  for (const [i, { logprob, rank, top }] of entries.entries()) {
    const ofToken: NonNullable<PromptTokenLogprobs> = {};
    for (const [below, other] of top.slice(0, topCount).entries())
      ofToken[other.token] = oneOf(engine, other.token, other.logprob, below + 1);
    const token = tokens[i + 1]!;
    ofToken[token] = oneOf(engine, token, logprob, rank);
    rendered.push(ofToken);
  }
  return rendered;
}

const oneOf = (engine: AsyncEngine, token: number, logprob: number, rank: number) => ({
  logprob: atLeastMin(logprob),
  rank,
  decoded_token: lenient.decode(engine.tokenBytes(token)),
});

/** The format of OpenAI's completions with `echo`. `text`: the echoed prompt, in which each token has its offset. */
export function echoLogprobs(
  engine: AsyncEngine,
  { tokens, entries }: ScoredPrompt,
  topCount: number,
  text: string,
): CompletionLogprobs {
  const rendered: CompletionLogprobs = { tokens: [], token_logprobs: [], top_logprobs: [], text_offset: [] };
  const offsets = new TokenOffsets(text);
  for (let i = 0; i < tokens.length; i++) {
    const name = tokenName(engine, tokens[i]!);
    const entry = entries[i - 1];
    rendered.tokens.push(name);
    rendered.token_logprobs.push(entry === undefined ? null : atLeastMin(entry.logprob));
    const top = entry && { ...entry, top: entry.top.slice(0, topCount) };
    rendered.top_logprobs.push(top === undefined ? null : topByName(engine, top, name));
    rendered.text_offset.push(offsets.next(engine.tokenBytes(tokens[i]!)));
  }
  return rendered;
}

/**
 * Finds the tokens of a prompt in its text. The text may lack a control token that the tokenizer added, or the space
 * that it put before the first word.
 */
class TokenOffsets {
  readonly #text: string;
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  /** In UTF-16 units, and in the characters that the answer counts. */
  #at = 0;
  #offset = 0;

  constructor(text: string) {
    this.#text = text;
  }

  next(bytes: Uint8Array): number {
    const offset = this.#offset;
    const piece = this.#decoder.decode(bytes, { stream: true });
    const parts = piece.startsWith(' ') ? [piece, piece.slice(1)] : [piece];
    const found = parts.find((part) => this.#text.startsWith(part, this.#at)) ?? '';
    this.#at += found.length;
    this.#offset += codePointsIn(found);
    return offset;
  }
}

/** The prompts' logprobs of the choices of one response, as they arrive. */
export class PromptScores {
  readonly #entries: TokenLogprobs[][];

  constructor(choiceCount: number) {
    this.#entries = Array.from({ length: choiceCount }, () => []);
  }

  add(index: number, entries: readonly TokenLogprobs[] = []): void {
    this.#entries[index]!.push(...entries);
  }

  of(index: number): readonly TokenLogprobs[] {
    return this.#entries[index]!;
  }
}

/** The logprobs of the prompt, followed by those of the completion. */
export function joinLogprobs(first: CompletionLogprobs, second: CompletionLogprobs | null): CompletionLogprobs {
  if (second === null) return first;
  return {
    tokens: [...first.tokens, ...second.tokens],
    token_logprobs: [...first.token_logprobs, ...second.token_logprobs],
    top_logprobs: [...first.top_logprobs, ...second.top_logprobs],
    text_offset: [...first.text_offset, ...second.text_offset],
  };
}
