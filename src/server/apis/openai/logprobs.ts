import type { TokenLogprobs } from '../../../core/step.ts';
import type { AsyncEngine } from '../../../engine/contract.ts';
import { StreamDecoder } from '../../../tokenizer/stream-decoder.ts';
import type { ChoiceOutput } from '../../generation/choice-collector.ts';
import { namesOf } from '../../generation/token-names.ts';
import { type JsonList, LazyList, RawJson } from '../../http/json-pieces.ts';
import type { ChatLogprobs, CompletionLogprobs } from './types.ts';

/** JSON has no -Infinity; vLLM writes this number for a token with probability 0. */
const LOGPROB_MIN = -9999;

export const atLeastMin = (logprob: number): number => Math.max(logprob, LOGPROB_MIN);

type Scored = Pick<ChoiceOutput, 'tokenIds' | 'logprobs'>;

/** The format of the chat endpoint. */
export function chatLogprobs(engine: AsyncEngine, { tokenIds, logprobs }: Scored): ChatLogprobs | null {
  if (logprobs === undefined) return null;
  return {
    content: new LazyList(function* () {
      let i = 0;
      for (const { logprob, top } of logprobs) {
        const others = top.map((other) => `${chatToken(engine, other.token, other.logprob)}}`).join(',');
        yield new RawJson(`${chatToken(engine, tokenIds[i++]!, logprob)},"top_logprobs":[${others}]}`);
      }
    }),
  };
}

/** The beginning of an object. */
function chatToken(engine: AsyncEngine, token: number, logprob: number): string {
  const { textJson, bytesJson } = namesOf(engine, token);
  return `{"token":${textJson},"logprob":${atLeastMin(logprob)},"bytes":${bytesJson}`;
}

/**
 * Counts the characters of a completion as vLLM does: Unicode code points. A token that is a part of a character has the
 * offset of this character.
 */
export class TextOffset {
  readonly #decoder: StreamDecoder;
  #offset: number;

  /** `text`: what the client gets before the completion. */
  constructor(text: string, hasByteTokens = false) {
    this.#decoder = new StreamDecoder(hasByteTokens);
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

/** The offsets of tokens that have logprobs. */
export function* offsetsIn(
  engine: AsyncEngine,
  { tokenIds, logprobs }: Scored,
  textOffset: TextOffset,
): Generator<number, void, void> {
  for (let i = 0; i < (logprobs?.length ?? 0); i++) yield textOffset.next(engine.tokenBytes(tokenIds[i]!));
}

/** The format of the completions endpoint. `textOffsets`: of the tokens. */
export function completionLogprobs(
  engine: AsyncEngine,
  { tokenIds, logprobs }: Scored,
  textOffsets: JsonList<number>,
): CompletionLogprobs | null {
  if (logprobs === undefined) return null;
  return {
    tokens: new LazyList(function* () {
      for (let i = 0; i < logprobs.length; i++) yield namesOf(engine, tokenIds[i]!).name;
    }),
    token_logprobs: new LazyList(function* () {
      for (const { logprob } of logprobs) yield atLeastMin(logprob);
    }),
    top_logprobs: new LazyList(function* () {
      let i = 0;
      for (const entry of logprobs) yield topByName(engine, entry, tokenIds[i++]!);
    }),
    text_offset: textOffsets,
  };
}

/** The `topCount` most probable tokens, and the chosen one if it is not among them. Of tokens with the same name, only the first. */
export function topByName(
  engine: AsyncEngine,
  { top, logprob: ofChosen }: TokenLogprobs,
  chosen: number,
  topCount = top.length,
): RawJson<Record<string, number>> {
  const fields = new Map<string, number>();
  const add = (token: number, logprob: number): void => {
    const { nameJson } = namesOf(engine, token);
    if (!fields.has(nameJson)) fields.set(nameJson, atLeastMin(logprob));
  };
  for (let i = 0; i < Math.min(top.length, topCount); i++) add(top[i]!.token, top[i]!.logprob);
  add(chosen, ofChosen);
  return new RawJson(`{${Array.from(fields, ([name, logprob]) => `${name}:${logprob}`).join(',')}}`);
}
