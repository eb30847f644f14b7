import type { KvGroupSpec } from '../../src/core/kv-spec.ts';

export interface GroupedRequest {
  /** The number of prompt tokens. */
  readonly tokenCount: number;
  /** By KV group, the keys of the prompt's full blocks. */
  readonly keys: readonly (readonly string[])[];
  /** The number of generated tokens. */
  readonly outputTokens: number;
  /** The blocks that had arrived when the request ended, of this and of earlier requests. */
  readonly arrived: ReadonlySet<string>;
}

/**
 * The independent reference for "minimal recompute" (I3) with several KV groups. It returns the smallest number of tokens that an
 * engine must compute for requests that run one after the other, in a pool that evicts nothing. It shares no code with the planner.
 *
 * The last token of a prompt is computed. Each computed token needs the KV of all tokens before it in a full group, and of the
 * tokens in its window in a window group. In a state group it needs the state after the token before, from the end of a block or from
 * computing that token. A needed token is computed if its block has neither arrived nor been computed before.
 *
 * Each token counts once, whatever fails in between. So an engine must also keep what is in no full block: if a load fails after
 * tokens were computed for another group, it continues from their running state.
 */
export function neededInGroups(requests: readonly GroupedRequest[], groups: readonly KvGroupSpec[]): number {
  const computedBlocks = new Set<string>();
  let computed = 0;
  for (const { tokenCount, keys, outputTokens, arrived } of requests) {
    const isValid = (group: number, token: number): boolean => {
      const key = keys[group]![Math.floor(token / groups[group]!.blockSize)];
      return key !== undefined && (arrived.has(key) || computedBlocks.has(key));
    };
    const isNeeded = new Array<boolean>(tokenCount).fill(false);
    isNeeded[tokenCount - 1] = true;
    for (let token = tokenCount - 1; token > 0; token--) {
      if (!isNeeded[token]) continue;
      for (const [group, spec] of groups.entries()) {
        if (spec.kind === 'state') {
          if (token % spec.blockSize !== 0 || !isValid(group, token - 1)) isNeeded[token - 1] = true;
          continue;
        }
        const first = spec.kind === 'full' ? 0 : Math.max(0, token - spec.window + 1);
        for (let read = first; read < token; read++) if (!isValid(group, read)) isNeeded[read] = true;
      }
    }
    for (const [group, { blockSize }] of groups.entries()) {
      for (const [index, key] of keys[group]!.entries()) {
        const tokens = isNeeded.slice(index * blockSize, (index + 1) * blockSize);
        if (tokens.every((needed) => needed)) computedBlocks.add(key);
      }
    }
    computed += isNeeded.filter((needed) => needed).length + Math.max(outputTokens - 1, 0);
  }
  return computed;
}
