/**
 * Tokens that a request computes again after its rank loses its memory, if all its full blocks are stored: the tokens of
 * the last block. A bound, because the engine may have generated a few tokens that the client has not received.
 */
export function repeatedAfterLoss(promptLength: number, tokensSeen: number, blockSize: number): number {
  // The newest token has no KV yet.
  const candidates = [0, 1, 2].map((ahead) => Math.max(0, promptLength + tokensSeen + ahead - 1) % blockSize);
  return Math.max(...candidates);
}
