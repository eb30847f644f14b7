import type { Prng } from '../src/base/prng.ts';
import type { BlockCount, TokenCount } from '../src/core/ids.ts';
import type { KvCacheSpec, KvGroupSpec } from '../src/core/kv-spec.ts';
import { blocksMax } from '../src/kv/create-group.ts';

const simulated = { blockBytes: 64, fingerprint: 'simulated' };

/** Often one full-attention group, else a random mix of groups, block sizes and windows. Pools are tight or large. */
export function randomSpec(prng: Prng, tokensMax: number, isTight: boolean): KvCacheSpec {
  const sizes = [1, 2, 4, 8, 16] as TokenCount[];
  const one = prng.pick(sizes);
  const group = (): KvGroupSpec => {
    const blockSize = prng.chance(0.5) ? one : prng.pick(sizes);
    const kind = prng.pick(['full', 'full', 'window', 'state'] as const);
    if (kind !== 'window') return { kind, blockSize, layers: [0] };
    return { kind, blockSize, layers: [0], window: prng.pick([2, 3, 5, 16, 40]) as TokenCount };
  };
  const groups: KvGroupSpec[] = prng.chance(0.4)
    ? [{ kind: 'full', blockSize: one, layers: [0] }]
    : Array.from({ length: prng.between(1, 3) }, group);
  const spec = { ...simulated, groups, blockCount: 2 as BlockCount };
  const tight = blocksMax(spec, tokensMax - 1) + 1;
  const blockCount = prng.pick(isTight ? [tight, tight + 3, tight + 9] : [tight, tight + 3, tight * 2, tight * 8]);
  return { ...spec, blockCount: blockCount as BlockCount };
}

/**
 * Full attention in short blocks, and states or a window in long blocks: spans end within these, and there are few checkpoints. The pool
 * is large, so that a request keeps what it may continue from.
 */
export function spanSpec(prng: Prng, tokensMax: number): KvCacheSpec {
  const full: KvGroupSpec = { kind: 'full', blockSize: prng.pick([2, 4, 8]) as TokenCount, layers: [0] };
  const other = (): KvGroupSpec => {
    const blockSize = prng.pick([16, 32, 64]) as TokenCount;
    if (prng.chance(0.7)) return { kind: 'state', blockSize, layers: [0] };
    return { kind: 'window', blockSize, layers: [0], window: prng.pick([5, 16, 40]) as TokenCount };
  };
  const spec = { ...simulated, groups: [full, ...Array.from({ length: prng.between(1, 2) }, other)] };
  return { ...spec, blockCount: (4 * blocksMax({ ...spec, blockCount: 2 as BlockCount }, tokensMax)) as BlockCount };
}
