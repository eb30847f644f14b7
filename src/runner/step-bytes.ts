import type { ModelConfig } from '../ggml/model-config.ts';

/** Buffers of a step hold about so many rows of the hidden states for each token. */
const ROWS_PER_TOKEN = 12;

type StepShape = Pick<
  ModelConfig,
  'embeddingLength' | 'feedForwardLength' | 'feedForwardLengths' | 'vocabSize' | 'experts'
>;

/** An estimate of the buffers of the largest step. */
export function stepBytes(
  { embeddingLength, feedForwardLength, feedForwardLengths = [], vocabSize, experts }: StepShape,
  { maxNumSeqs, maxNumBatchedTokens }: { readonly maxNumSeqs: number; readonly maxNumBatchedTokens: number },
): number {
  const network = Math.max(
    feedForwardLength,
    ...feedForwardLengths,
    (experts?.feedForwardLength ?? 0) * (experts?.used ?? 0),
  );
  const step = 4 * maxNumBatchedTokens * (ROWS_PER_TOKEN * embeddingLength + 3 * network);
  const logits = 4 * 2 * Math.min(maxNumSeqs, maxNumBatchedTokens) * vocabSize;
  return step + logits;
}
