/**
 * Tokens that a request computes again when the memory of its rank is lost, if all of its full blocks are stored: those of the
 * block that is not full. A bound, because the client may be some tokens behind the engine.
 */
export function repeatedAfterLoss(promptLength: number, tokensSeen: number, blockSize: number): number {
  // The newest token has no KV yet.
  const candidates = [0, 1, 2].map((ahead) => Math.max(0, promptLength + tokensSeen + ahead - 1) % blockSize);
  return Math.max(...candidates);
}
