/** What a token reads in one KV group of a model. */
export interface ReferenceGroup {
  readonly kind: 'full' | 'window' | 'state';
  /** Tokens of a block; of a recurrent state, the tokens between two checkpoints. */
  readonly blockSize: number;
  /** With kind `window`: the number of tokens that a token reads, itself included. */
  readonly window?: number | undefined;
}

/** The groups of a model whose layers all have full attention. */
export const fullAttention = (blockSize: number): readonly ReferenceGroup[] => [{ kind: 'full', blockSize }];

export const longestBlock = (groups: readonly ReferenceGroup[]): number =>
  Math.max(...groups.map(({ blockSize }) => blockSize));

/** A request for the reference. */
export interface ReferenceRequest {
  /** The number of prompt tokens. */
  readonly tokenCount: number;
  /** By KV group, the keys of the prompt's full blocks, in order. Blocks with equal keys have the same KV. */
  readonly keys: readonly (readonly string[])[];
  /** The number of generated tokens. */
  readonly outputTokens: number;
  /** The blocks that the request can load. */
  readonly available: ReadonlySet<string>;
}

/**
 * The independent reference for "minimal recompute" (I3). It returns the smallest number of tokens that an engine must
 * compute for these requests. The reference shares no code and no counters with the planner or the scheduler. Its input
 * is the set of available blocks: the stored files without the blocks of the fault.
 *
 * It models the simplest engine with a prefix cache. Requests run one after the other, and no block is evicted. The last
 * token of a prompt is computed, because its logits are needed. A computed token needs the KV of all tokens before it in
 * a full group, and of the tokens in its window in a window group. In a state group it needs the state after the token
 * before: the checkpoint at the end of a block, or the state from computing that token. A needed token is computed if
 * its block is not available. The blocks of a request are available for later requests. Every generated token but the
 * last is computed once.
 *
 * Each token counts once, also if loads fail in between. So an engine must also keep what is in no full block: if a load fails
 * after tokens were computed for another group, it continues from their running state.
 *
 * With full attention only, requests may also run at the same time. In other models, the number depends on their order.
 * Preempted requests, and requests in a pool that is too small for all, may need more tokens.
 */
export function neededTokens(requests: readonly ReferenceRequest[], groups: readonly ReferenceGroup[]): number {
  const cached = new Set<string>();
  let computed = 0;
  for (const request of requests) {
    const isNeeded = tokensToCompute(request, groups, cached);
    for (const [group, { blockSize }] of groups.entries()) {
      for (const [index, key] of request.keys[group]!.entries()) {
        const tokens = isNeeded.slice(index * blockSize, (index + 1) * blockSize);
        if (tokens.every((needed) => needed)) cached.add(key);
      }
    }
    computed += isNeeded.filter((needed) => needed).length + Math.max(request.outputTokens - 1, 0);
  }
  return computed;
}

/** For each token of the prompt, whether it must be computed. `cached`: blocks of earlier requests. */
function tokensToCompute(
  { tokenCount, keys, available }: ReferenceRequest,
  groups: readonly ReferenceGroup[],
  cached: ReadonlySet<string>,
): boolean[] {
  const validBlocks = keys.map((ofGroup) => ofGroup.map((key) => available.has(key) || cached.has(key)));
  const isValid = (group: number, token: number): boolean =>
    validBlocks[group]![Math.floor(token / groups[group]!.blockSize)] === true;
  const isNeeded = new Array<boolean>(tokenCount).fill(false);
  isNeeded[tokenCount - 1] = true;
  for (let token = tokenCount - 1; token > 0; token--) {
    if (!isNeeded[token]) continue;
    for (const [group, { kind, blockSize, window = Number.POSITIVE_INFINITY }] of groups.entries()) {
      if (kind === 'state') {
        const isAfterCheckpoint = token % blockSize === 0 && isValid(group, token - 1);
        if (!isAfterCheckpoint) isNeeded[token - 1] = true;
        continue;
      }
      for (let read = Math.max(0, token - window + 1); read < token; read++)
        if (!isValid(group, read)) isNeeded[read] = true;
    }
  }
  return isNeeded;
}
