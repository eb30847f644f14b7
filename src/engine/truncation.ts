import type { AsyncEngine } from './contract.ts';

/** How a text that is too long is cut, as in vLLM. */
export interface Truncation {
  /** Tokens that are left. */
  readonly tokensMax: number;
  /**
   * `right`: the first tokens stay. `left`: the last ones. Absent: the first ones, and the tokens that the vocabulary adds after a
   * text.
   */
  readonly side?: 'left' | 'right';
}

export interface TruncatedText {
  readonly text: string;
  readonly addSpecial?: boolean;
  readonly truncation: Truncation | undefined;
}

type Tokenizing = Pick<AsyncEngine, 'tokenizePrompt' | 'tokenize'>;

/** The tokens of a text, cut if there are too many. Rejects as `tokenizePrompt` does; without truncation also for a long text. */
export async function truncatedTokens(
  engine: Tokenizing,
  { text, addSpecial = true, truncation }: TruncatedText,
  signal?: AbortSignal,
): Promise<Int32Array> {
  const options = { addSpecial, isCut: truncation !== undefined, ...(signal === undefined ? {} : { signal }) };
  const tokens = await engine.tokenizePrompt(text, options);
  if (truncation === undefined || tokens.length <= truncation.tokensMax) return tokens;
  return cutTokens(tokens, truncation, addSpecial ? engine.tokenize('') : []);
}

/** `added`: the tokens that the vocabulary adds to every text. */
export function cutTokens(tokens: Int32Array, { tokensMax, side }: Truncation, added: readonly number[]): Int32Array {
  if (tokens.length <= tokensMax) return tokens;
  if (side === 'left') return tokens.slice(tokens.length - tokensMax);
  let before = 0;
  while (before < added.length && tokens[before] === added[before]) before++;
  const after = added.slice(before);
  if (side === 'right' || after.length >= tokensMax) return tokens.slice(0, tokensMax);
  return Int32Array.from([...tokens.subarray(0, tokensMax - after.length), ...after]);
}
