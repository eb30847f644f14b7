import type { FieldReader } from '../../../base/field-reader.ts';
import type { LogprobList } from '../../../core/packed-logprobs.ts';
import { PackedLogprobs } from '../../../core/packed-logprobs.ts';
import { logprobsMax } from '../../../core/sampling-parse.ts';
import type { TokenLogprobs } from '../../../core/step.ts';
import type { AsyncEngine } from '../../../engine/contract.ts';
import { namesOf } from '../../generation/token-names.ts';
import { joinedList, LazyList, RawJson } from '../../http/json-pieces.ts';
import { atLeastMin, codePointsIn, topByName } from './logprobs.ts';
import type { CompletionLogprobs, PromptTokenLogprobs } from './types.ts';

/** vLLM's `prompt_logprobs`: the number of top tokens. As in vLLM, a stream has none. */
export function readPromptLogprobs(reader: FieldReader): number | undefined {
  const count = reader.integer('prompt_logprobs', { min: 0, max: logprobsMax });
  if (count !== undefined && reader.boolean('stream') === true) {
    throw reader.invalid('prompt_logprobs', 'absent if `stream` is true');
  }
  return count;
}

/** A prompt and the logprobs of its tokens after the first. */
export interface ScoredPrompt {
  readonly tokens: ArrayLike<number>;
  readonly entries: LogprobList;
}

/**
 * vLLM's format: for each token of the prompt, the logprobs of the token and of the `topCount` most probable tokens, by
 * token id. The first token has none.
 */
export function renderPromptLogprobs(
  engine: AsyncEngine,
  { tokens, entries }: ScoredPrompt,
  topCount: number,
): LazyList<PromptTokenLogprobs> {
  return new LazyList(function* () {
    yield null;
    let i = 0;
    for (const entry of entries) yield scoresOf(engine, tokens[++i]!, entry, topCount);
  });
}

function scoresOf(
  engine: AsyncEngine,
  token: number,
  { logprob, rank, top }: TokenLogprobs,
  topCount: number,
): RawJson<PromptTokenLogprobs> {
  const fields = [oneOf(engine, token, logprob, rank)];
  for (let i = 0; i < Math.min(top.length, topCount); i++) {
    const other = top[i]!;
    if (other.token !== token) fields.push(oneOf(engine, other.token, other.logprob, i + 1));
  }
  return new RawJson(`{${fields.join(',')}}`);
}

const oneOf = (engine: AsyncEngine, token: number, logprob: number, rank: number): string =>
  `"${token}":{"logprob":${atLeastMin(logprob)},"rank":${rank},"decoded_token":${namesOf(engine, token).textJson}}`;

/**
 * The format of OpenAI's completions with `echo`. `text`: the echoed prompt, in which each token has its offset.
 */
export function echoLogprobs(
  engine: AsyncEngine,
  { tokens, entries }: ScoredPrompt,
  topCount: number,
  text: string,
): CompletionLogprobs {
  return {
    tokens: new LazyList(function* () {
      for (let i = 0; i < tokens.length; i++) yield namesOf(engine, tokens[i]!).name;
    }),
    token_logprobs: new LazyList(function* () {
      yield null;
      for (const { logprob } of entries) yield atLeastMin(logprob);
    }),
    top_logprobs: new LazyList(function* () {
      yield null;
      let i = 0;
      for (const entry of entries) yield topByName(engine, entry, tokens[++i]!, topCount);
    }),
    text_offset: new LazyList(function* () {
      const offsets = new TokenOffsets(text);
      for (let i = 0; i < tokens.length; i++) yield offsets.next(engine.tokenBytes(tokens[i]!));
    }),
  };
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

/** The logprobs of the prompts of one response, as they arrive. All choices of a prompt share them. */
export class PromptScores {
  readonly #prompts: readonly { readonly tokens: ArrayLike<number>; entries: LogprobList }[];
  readonly #n: number;
  readonly #topCount: number;

  /** @param n the choices of each prompt */
  constructor(prompts: readonly { readonly tokens: ArrayLike<number> }[], n: number, topCount = 0) {
    this.#prompts = prompts.map(({ tokens }) => ({ tokens, entries: [] }));
    this.#n = n;
    this.#topCount = topCount;
  }

  /** The next entries of the prompt of a choice. */
  add(index: number, entries: readonly TokenLogprobs[]): void {
    const prompt = this.#promptOf(index);
    if (!(prompt.entries instanceof PackedLogprobs)) prompt.entries = new PackedLogprobs(this.#topCount);
    (prompt.entries as PackedLogprobs).pushAll(entries);
  }

  /** All entries of the prompt of a choice. */
  put(index: number, entries: LogprobList): void {
    this.#promptOf(index).entries = entries;
  }

  of(index: number): ScoredPrompt {
    return this.#promptOf(index);
  }

  /** Whether all tokens of the choice's prompt after the first have their logprobs. */
  isComplete(index: number): boolean {
    const { tokens, entries } = this.#promptOf(index);
    return entries.length === tokens.length - 1;
  }

  #promptOf(index: number) {
    return this.#prompts[Math.floor(index / this.#n)]!;
  }
}

/** The logprobs of the prompt, followed by those of the completion. */
export function joinLogprobs(first: CompletionLogprobs, second: CompletionLogprobs | null): CompletionLogprobs {
  if (second === null) return first;
  return {
    tokens: joinedList(first.tokens, second.tokens),
    token_logprobs: joinedList(first.token_logprobs, second.token_logprobs),
    top_logprobs: joinedList(first.top_logprobs, second.top_logprobs),
    text_offset: joinedList(first.text_offset, second.text_offset),
  };
}
