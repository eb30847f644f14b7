import { tooManyTokens } from '../core/errors.ts';
import type { Tokenizer } from '../tokenizer/contract.ts';
import type { ModelInfo } from './contract.ts';

/** The cost of tokenizing a text, for `TurnBudget`: libllama takes about a microsecond per character. */
export const tokenizeCost = (text: string): number => text.length;

/**
 * Refuses a text whose length alone shows that it cannot fit the model. The check is cheap, so it runs before the text is
 * tokenized.
 * @throws KvasirError `promptTooLong`.
 */
export function checkTextFits(text: string, tokenizer: Pick<Tokenizer, 'tokenBytesMax'>, model: ModelInfo): void {
  const { maxModelLen } = model;
  // Every UTF-16 unit is at least one byte, and most texts are too short for the count to matter.
  if (text.length * 3 < maxModelLen * tokenizer.tokenBytesMax) return;
  const tokensMin = Math.ceil(Buffer.byteLength(text) / tokenizer.tokenBytesMax);
  if (tokensMin >= maxModelLen) {
    throw tooManyTokens({ promptTokens: tokensMin, isLeast: true, maxModelLen });
  }
}
