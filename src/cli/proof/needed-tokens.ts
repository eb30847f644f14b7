/** A request as the reference sees it. */
export interface ReferenceRequest {
  /** Of the prompt. */
  readonly tokenCount: number;
  /** Names of the prompt's full blocks, in order: two blocks with one name hold the same KV. */
  readonly keys: readonly string[];
  /** Tokens that it generated. */
  readonly outputTokens: number;
}

/**
 * The independent reference for "minimal repair" (I3): how many tokens an engine must compute for these requests at least, in a
 * model with full attention. It shares no code with the planner or the scheduler, and it reads none of their counters: it is told
 * which blocks were really available (from the stored files, without those that a fault has taken away).
 *
 * It is the simplest engine with a prefix cache. Requests run one after the other, and nothing is evicted. A token of the prompt
 * is computed when its block is not there, or when it is the last token, because its logits are wanted. The blocks of a request
 * are there for the next one. Every generated token but the last is computed once.
 *
 * A request that is preempted, or that runs in a pool too small for all of them, may cost more than this.
 */
export function neededTokens(
  requests: readonly ReferenceRequest[],
  available: ReadonlySet<string>,
  blockSize: number,
): number {
  const there = new Set(available);
  let computed = 0;
  for (const { tokenCount, keys, outputTokens } of requests) {
    for (let token = 0; token < tokenCount; token++) {
      const key = keys[Math.floor(token / blockSize)];
      const isThere = key !== undefined && there.has(key);
      if (!isThere || token === tokenCount - 1) computed++;
    }
    for (const key of keys) there.add(key);
    computed += Math.max(outputTokens - 1, 0);
  }
  return computed;
}
