import type { TokenBuffer } from '../../core/tokens.ts';
import type { Continuation, ContinuationFinder } from './continuation.ts';
import type { OwnTextOptions } from './options.ts';
import { copyFrom, TextIndex } from './text-index.ts';

/** Prompt lookup: the text continues as after the longest earlier occurrence of its last tokens, of equally long ones the latest. */
export class OwnTextFinder implements ContinuationFinder {
  readonly #tokens: TokenBuffer;
  readonly #index: TextIndex;
  readonly #shares: Float64Array;

  constructor(tokens: TokenBuffer, { numSpeculativeTokens, promptLookupMin, promptLookupMax }: OwnTextOptions) {
    this.#tokens = tokens;
    this.#index = new TextIndex(tokens, promptLookupMin, promptLookupMax);
    // One occurrence is taken, so there is no share to count.
    this.#shares = new Float64Array(numSpeculativeTokens).fill(1);
  }

  find(): Continuation | undefined {
    const match = this.#index.find();
    if (match === undefined) return undefined;
    const tokens = copyFrom(this.#tokens.view(), match.next, this.#shares.length);
    return { length: match.length, tokens, shares: this.#shares };
  }
}
