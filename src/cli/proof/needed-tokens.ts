/** A request for the reference. */
export interface ReferenceRequest {
  /** The number of prompt tokens. */
  readonly tokenCount: number;
  /** The keys of the prompt's full blocks, in order. Blocks with equal keys have the same KV. */
  readonly keys: readonly string[];
  /** The number of generated tokens. */
  readonly outputTokens: number;
}

/**
 * The independent reference for "minimal recompute" (I3). It returns the smallest number of tokens that an engine must
 * compute for these requests, for a model with full attention. The reference shares no code and no counters with the
 * planner or the scheduler. Its input is the set of available blocks: the stored files without the blocks of the fault.
 *
 * It models the simplest engine with a prefix cache. Requests run one after the other, and no block is evicted. A prompt
 * token is computed if its block is not available, or if it is the last token, whose logits are needed. The blocks of a
 * request are available for later requests. Every generated token but the last is computed once.
 *
 * Preempted requests, and requests in a pool that is too small for all, may need more tokens.
 */
export function neededTokens(
  requests: readonly ReferenceRequest[],
  available: ReadonlySet<string>,
  blockSize: number,
): number {
  const cached = new Set(available);
  let computed = 0;
  for (const { tokenCount, keys, outputTokens } of requests) {
    for (let token = 0; token < tokenCount; token++) {
      const key = keys[Math.floor(token / blockSize)];
      const isCached = key !== undefined && cached.has(key);
      if (!isCached || token === tokenCount - 1) computed++;
    }
    for (const key of keys) cached.add(key);
    computed += Math.max(outputTokens - 1, 0);
  }
  return computed;
}
