import type { GroupValidity } from './planner.ts';

/**
 * The planner's naive twin: the definition itself, as a fixpoint over single tokens. O(tokens^2) and worse.
 * It covers everything the planner does; what neither covers is whether a group's rule is the model's rule.
 */
export function planTokensNaively(tokenCount: number, groups: readonly GroupValidity[]): boolean[] {
  const computed: boolean[] = Array.from({ length: tokenCount }, (_, token) => token === tokenCount - 1);
  for (let changed = true; changed; ) {
    changed = false;
    for (let token = 0; token < tokenCount; token++) {
      if (!computed[token]) continue;
      for (const group of groups) {
        for (const needed of needs(group, token)) {
          if (computed[needed] || isMet(group, needed)) continue;
          computed[needed] = true;
          changed = true;
        }
      }
    }
  }
  return computed;
}

/** Tokens whose KV (or, in a state group, the state right after them) token `token` reads. */
export function needs(group: GroupValidity, token: number): number[] {
  const first =
    group.kind === 'state' ? Math.max(token - 1, 0) : group.kind === 'full' ? 0 : Math.max(token - group.window + 1, 0);
  return Array.from({ length: token - first }, (_, i) => first + i);
}

function isMet(group: GroupValidity, token: number): boolean {
  const block = Math.floor(token / group.blockSize);
  const offset = token - block * group.blockSize;
  if (block >= group.blockCount) return false;
  const validTo = group.validTo[block]!;
  return group.kind === 'state' ? validTo === offset + 1 : offset < validTo;
}
