import { blockIndexOf } from '../../src/core/ids.ts';
import type { GroupValidity } from '../../src/kv/planner.ts';

/**
 * The naive reference of the planner, over single tokens. These tokens are computed: the last one, those from `computeFrom` on,
 * and each invalid token that the attention or state of a computed token reads. A token reads only earlier tokens, so one pass
 * from right to left is enough. O(tokens^2).
 *
 * It covers all that the planner does. Neither covers whether a group's rule is the model's rule.
 * Returns 1 for each token that must be computed.
 */
export function planTokensNaively(
  tokenCount: number,
  groups: readonly GroupValidity[],
  computed: Uint8Array = new Uint8Array(tokenCount),
  computeFrom = Infinity,
): Uint8Array {
  computed.fill(0);
  computed.fill(1, Math.min(tokenCount - 1, computeFrom), tokenCount);
  const lacking = lackingTokens(tokenCount, groups);
  for (let token = tokenCount - 1; token > 0; token--) {
    if (computed[token] === 0) continue;
    for (let group = 0; group < groups.length; group++) {
      const first = group * tokenCount;
      for (let needed = firstNeeded(groups[group]!, token); needed < token; needed++)
        if (lacking[first + needed] === 1) computed[needed] = 1;
    }
  }
  return computed;
}

/**
 * For each group and token, 1 if later tokens cannot read the token's KV or state. Scratch memory, valid until the next
 * call.
 */
function lackingTokens(tokenCount: number, groups: readonly GroupValidity[]): Uint8Array {
  const size = groups.length * tokenCount;
  if (lackingScratch.length < size) lackingScratch = new Uint8Array(2 * size);
  for (let group = 0, at = 0; group < groups.length; group++)
    for (let token = 0; token < tokenCount; token++, at++) lackingScratch[at] = isMet(groups[group]!, token) ? 0 : 1;
  return lackingScratch;
}

let lackingScratch = new Uint8Array(0);

/**
 * `token` reads the KV of the tokens from here to the one before; in a state group, the state after the token before.
 */
function firstNeeded({ kind, window }: GroupValidity, token: number): number {
  if (kind === 'state') return Math.max(token - 1, 0);
  return kind === 'full' ? 0 : Math.max(token - window + 1, 0);
}

function isMet({ kind, blockSize, indexCount, validTokens, running = [] }: GroupValidity, token: number): boolean {
  if (kind === 'state' && running.some(({ position }) => position === token + 1)) return true;
  const index = blockIndexOf(token, blockSize);
  if (index >= indexCount) return false;
  const offset = token - index * blockSize;
  return kind === 'state' ? validTokens[index] === offset + 1 : offset < validTokens[index]!;
}
