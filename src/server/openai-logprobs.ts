import type { TokenLogprobs } from '../core/step.ts';
import type { AsyncEngine, OutputDelta } from '../engine/contract.ts';
import { StreamDecoder } from '../tokenizer/stream-decoder.ts';
import type { ChatLogprobs, ChatTokenLogprob, CompletionLogprobs } from './openai-types.ts';

/** JSON has no -Infinity; vLLM writes this number for a token with probability 0. */
const LOGPROB_MIN = -9999;

export const atLeastMin = (logprob: number): number => Math.max(logprob, LOGPROB_MIN);

export const lenient = new TextDecoder('utf-8', { ignoreBOM: true });
const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** The format of the chat endpoint. */
export function chatLogprobs(engine: AsyncEngine, delta: OutputDelta): ChatLogprobs | null {
  if (delta.logprobs === undefined) return null;
  return {
    content: delta.logprobs.map((entry, i) => ({
      ...chatToken(engine, delta.tokenIds[i]!, entry.logprob),
      top_logprobs: entry.top.map(({ token, logprob }) => chatToken(engine, token, logprob)),
    })),
  };
}

function chatToken(engine: AsyncEngine, token: number, logprob: number): ChatTokenLogprob {
  const bytes = engine.tokenBytes(token);
  return { token: lenient.decode(bytes), logprob: atLeastMin(logprob), bytes: [...bytes] };
}

/**
 * Counts the characters of a completion as vLLM does: Unicode code points. A token that is a part of a character has the
 * offset of this character.
 */
export class TextOffset {
  readonly #decoder = new StreamDecoder();
  #offset: number;

  /** `text`: what the client gets before the completion. */
  constructor(text: string) {
    this.#offset = codePointsIn(text);
  }

  /** The offset of the next token. */
  next(bytes: Uint8Array): number {
    const offset = this.#offset;
    this.#offset += codePointsIn(this.#decoder.push(bytes));
    return offset;
  }
}

export function codePointsIn(text: string): number {
  let count = 0;
  for (let at = 0; at < text.length; at++) if (!isSecondHalf(text, at)) count++;
  return count;
}

const isSecondHalf = (text: string, at: number): boolean => {
  const code = text.charCodeAt(at);
  const before = text.charCodeAt(at - 1);
  return code >= 0xdc00 && code <= 0xdfff && before >= 0xd800 && before <= 0xdbff;
};

/** The format of the completions endpoint. `textOffset` counts the tokens of the choice, delta after delta. */
export function completionLogprobs(
  engine: AsyncEngine,
  delta: OutputDelta,
  textOffset: TextOffset,
): CompletionLogprobs | null {
  if (delta.logprobs === undefined) return null;
  const rendered: CompletionLogprobs = { tokens: [], token_logprobs: [], top_logprobs: [], text_offset: [] };
  for (const [i, entry] of delta.logprobs.entries()) {
    const token = delta.tokenIds[i]!;
    const name = tokenName(engine, token);
    rendered.tokens.push(name);
    rendered.token_logprobs.push(atLeastMin(entry.logprob));
    rendered.top_logprobs.push(topByName(engine, entry, name));
    rendered.text_offset.push(textOffset.next(engine.tokenBytes(token)));
  }
  return rendered;
}

/** The most probable tokens, and the chosen one if it is not among them. */
export function topByName(engine: AsyncEngine, entry: TokenLogprobs, chosen: string): Record<string, number> {
  // No prototype, because a token's name can be `__proto__`.
  const top: Record<string, number> = Object.create(null);
  for (const { token, logprob } of entry.top) top[tokenName(engine, token)] ??= atLeastMin(logprob);
  top[chosen] ??= atLeastMin(entry.logprob);
  return top;
}

/** The token as text, or as `bytes:\xe2\x80` (OpenAI's format) if the token is only a part of a character. */
export function tokenName(engine: AsyncEngine, token: number): string {
  const bytes = engine.tokenBytes(token);
  try {
    return strict.decode(bytes);
  } catch {
    return `bytes:${Array.from(bytes, (byte) => `\\x${byte.toString(16).padStart(2, '0')}`).join('')}`;
  }
}
