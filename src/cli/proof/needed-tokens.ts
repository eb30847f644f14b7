import { inGroup } from './stored-blocks.ts';

/** A request for the reference. */
export interface ReferenceRequest {
  /** The number of prompt tokens. */
  readonly tokenCount: number;
  /** The keys of the prompt's full blocks in the first KV group, in order. Blocks with equal keys have the same KV. */
  readonly keys: readonly string[];
  /** The number of generated tokens. */
  readonly outputTokens: number;
}

/** For each KV group of a model, how many tokens a token reads, itself included; `Infinity` with full attention. */
export type GroupWindows = readonly number[];

export const fullAttention: GroupWindows = [Number.POSITIVE_INFINITY];

/**
 * The independent reference for "minimal recompute" (I3). It returns the smallest number of tokens that an engine must
 * compute for these requests. The reference shares no code and no counters with the planner or the scheduler. Its input
 * is the set of available blocks: the stored files without the blocks of the fault.
 *
 * It models the simplest engine with a prefix cache. Requests run one after the other, and no block is evicted. The last
 * token of a prompt is computed, because its logits are needed. A computed token needs the KV of all tokens that it
 * reads in each group. A needed token is computed if a group reads it and its block is not available there. The blocks
 * of a request are available for later requests. Every generated token but the last is computed once.
 *
 * With full attention only, requests may also run at the same time. In other models, the number depends on their order.
 * Preempted requests, and requests in a pool that is too small for all, may need more tokens.
 */
export function neededTokens(
  requests: readonly ReferenceRequest[],
  available: ReadonlySet<string>,
  blockSize: number,
  windows: GroupWindows = fullAttention,
): number {
  const cached = new Set(available);
  let computed = 0;
  for (const { tokenCount, keys, outputTokens } of requests) {
    const isValid = windows.map((_, group) => {
      const isBlockValid = keys.map((key) => cached.has(inGroup(key, group)));
      return (token: number): boolean => isBlockValid[Math.floor(token / blockSize)] === true;
    });
    const isNeeded = new Array<boolean>(tokenCount).fill(false);
    isNeeded[tokenCount - 1] = true;
    for (let token = tokenCount - 1; token > 0; token--) {
      if (!isNeeded[token]) continue;
      for (const [group, window] of windows.entries())
        for (let read = Math.max(0, token - window + 1); read < token; read++)
          if (!isValid[group]!(read)) isNeeded[read] = true;
    }
    for (const [index, key] of keys.entries()) {
      const isBlockComputed = isNeeded.slice(index * blockSize, (index + 1) * blockSize).every((needed) => needed);
      if (isBlockComputed) for (const group of windows.keys()) cached.add(inGroup(key, group));
    }
    computed += isNeeded.filter((needed) => needed).length + Math.max(outputTokens - 1, 0);
  }
  return computed;
}
