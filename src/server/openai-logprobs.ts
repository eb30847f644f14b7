import type { TokenLogprobs } from '../core/step.ts';
import type { AsyncEngine, OutputDelta } from '../engine/contract.ts';
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

/** The format of the completions endpoint. `textOffset` is the position of the delta's first token in the text. */
export function completionLogprobs(
  engine: AsyncEngine,
  delta: OutputDelta,
  textOffset: number,
): CompletionLogprobs | null {
  if (delta.logprobs === undefined) return null;
  const rendered: CompletionLogprobs = { tokens: [], token_logprobs: [], top_logprobs: [], text_offset: [] };
  let offset = textOffset;
  for (const [i, entry] of delta.logprobs.entries()) {
    const name = tokenName(engine, delta.tokenIds[i]!);
    rendered.tokens.push(name);
    rendered.token_logprobs.push(atLeastMin(entry.logprob));
    rendered.top_logprobs.push(topByName(engine, entry, name));
    rendered.text_offset.push(offset);
    offset += name.length;
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
