import { describe, expect, it } from 'vitest';
import { fuzzRuns } from '../../../test/support/long-form.ts';
import { Prng } from '../../base/prng.ts';
import type { BlockKey } from '../block-key.ts';
import { type SaltTag, saltTagOf } from '../salt-tag.ts';
import { DiskBound } from './disk/disk-bound.ts';
import { HostTier } from './host/tier-host.ts';
import { SaltBytes } from './salt-bytes.ts';
import { storedBlockBytes as blockBytes, suiteBytes, suiteIdentity, suiteKey } from './tier.suite.ts';

/**
 * What tiers with a quota evict, against a list in the order of use. The reference stores one block at a time: `disk-bound.fuzz.ts` has
 * stores that overlap. It does not cover the policy `arc`, whose order of eviction without a quota is another one. More runs:
 * KVASIR_FUZZ_RUNS; another first seed: KVASIR_FUZZ_SEED.
 */
const runs = fuzzRuns(60);
const firstSeed = Number(process.env.KVASIR_FUZZ_SEED ?? 1);

const salts = [undefined, 'a', 'b', 'c'].map(saltTagOf);
const saltOf = (block: number): SaltTag | undefined => salts[block % salts.length];
const keys = Array.from({ length: 24 }, (_, block) => suiteKey(block));
const bytes = suiteBytes(keys[0]!);

interface Bounds {
  readonly blocksMax: number;
  /** In blocks; undefined: none. */
  readonly quota: number | undefined;
}

/** Least recently used first. */
class Reference {
  readonly #bounds: Bounds;
  blocks: number[] = [];
  readonly pinned = new Set<number>();

  constructor(bounds: Bounds) {
    this.#bounds = bounds;
  }

  has = (block: number): boolean => this.blocks.includes(block);

  use(block: number): void {
    if (this.has(block)) this.blocks = [...this.blocks.filter((other) => other !== block), block];
  }

  remove(block: number): void {
    this.blocks = this.blocks.filter((other) => other !== block);
  }

  /** The evicted blocks; undefined: there is no room. */
  store(block: number): number[] | undefined {
    if (this.has(block)) {
      this.use(block);
      return [];
    }
    const { blocksMax, quota = Number.POSITIVE_INFINITY } = this.#bounds;
    const salt = saltOf(block);
    const evicted: number[] = [];
    const left = (): number[] => this.blocks.filter((other) => !evicted.includes(other));
    const free = (): number[] => left().filter((other) => !this.pinned.has(other));
    if (salt !== undefined)
      while (left().filter((other) => saltOf(other) === salt).length + 1 > quota) {
        const victim = free().find((other) => saltOf(other) === salt);
        if (victim === undefined) return undefined;
        evicted.push(victim);
      }
    while (left().length + 1 > blocksMax) {
      const [victim] = free();
      if (victim === undefined) return undefined;
      evicted.push(victim);
    }
    this.blocks = [...left(), block];
    return evicted;
  }
}

interface UnderTest {
  store(block: number): number[] | undefined;
  use(block: number): void;
  remove(block: number): void;
  has(key: BlockKey): boolean;
  check(): void;
  /** Absent: blocks cannot be pinned. */
  pin?(block: number): void;
  unpin?(block: number): void;
}

/** `expect` takes longer than the comparison, so it is only called for differences. */
function expectSame(context: string, actual: unknown, expected: unknown): void {
  if (JSON.stringify(actual) !== JSON.stringify(expected)) expect(actual, context).toEqual(expected);
}

const blocksOf = (evicted: readonly BlockKey[]): number[] => evicted.map((key) => keys.indexOf(key));

function hostTier({ blocksMax, quota }: Bounds): UnderTest {
  const tier = new HostTier({
    identity: suiteIdentity,
    maxBytes: blocksMax * blockBytes,
    quotaBytes: quota === undefined ? undefined : quota * blockBytes,
  });
  const into = new Uint8Array(bytes.length);
  return {
    store: (block) => {
      const answer = tier.storeNow(keys[block]!, bytes, saltOf(block));
      const evicted = blocksOf(tier.takeEvicted());
      return answer === 'full' ? undefined : evicted;
    },
    use: (block) => void tier.loadNow(keys[block]!, into),
    remove: (block) => void tier.delete(keys[block]!),
    has: (key) => tier.holds(key),
    check: () => tier.checkInvariants(),
    pin: (block) => void tier.pin(keys[block]!),
    unpin: (block) => tier.unpin(keys[block]!),
  };
}

function diskBound({ blocksMax, quota }: Bounds): UnderTest {
  const bound = new DiskBound(
    blocksMax * blockBytes,
    quota === undefined ? undefined : new SaltBytes(quota * blockBytes),
  );
  return {
    store: (block) => {
      const reservation = bound.reserve(keys[block]!, blockBytes, { saltTag: saltOf(block) });
      if (reservation === undefined) return undefined;
      bound.stored(reservation);
      return blocksOf(bound.takeEvicted());
    },
    use: (block) => {
      if (bound.has(keys[block]!)) bound.used(keys[block]!, blockBytes, saltOf(block));
    },
    remove: (block) => bound.gone(keys[block]!, bound.stampOf(keys[block]!)),
    has: (key) => bound.has(key),
    check: () => bound.checkInvariants(),
  };
}

describe.each([
  ['host memory', hostTier],
  ['a disk', diskBound],
] as const)('with a quota, %s', (_, open) => {
  it(`evicts as a list in the order of use, in ${runs} random runs`, () => {
    let ofQuota = 0;
    for (let seed = firstSeed; seed < firstSeed + runs; seed++) {
      const prng = new Prng(seed);
      const blocksMax = prng.between(1, 12);
      const bounds = { blocksMax, quota: prng.chance(0.2) ? undefined : prng.between(1, 6) };
      const [tier, reference] = [open(bounds), new Reference(bounds)];
      for (let i = 0; i < 150; i++) {
        const block = prng.between(0, keys.length - 1);
        const act = prng.unit();
        if (act < 0.6) {
          const wasFull = reference.blocks.length === blocksMax;
          const expected = reference.store(block);
          const context = `seed ${seed}, event ${i}`;
          expectSame(context, tier.store(block), expected);
          if (expected !== undefined && expected.length > 0 && !wasFull) ofQuota++;
        } else if (act < 0.85) {
          reference.use(block);
          tier.use(block);
        } else if (act < 0.9 && !reference.pinned.has(block)) {
          reference.remove(block);
          tier.remove(block);
        } else if (tier.pin !== undefined && reference.has(block)) {
          if (reference.pinned.delete(block)) tier.unpin?.(block);
          else {
            reference.pinned.add(block);
            tier.pin(block);
          }
        }
        tier.check();
        const held = keys.flatMap((key, other) => (tier.has(key) ? [other] : []));
        expectSame(
          `seed ${seed}, event ${i}`,
          held,
          reference.blocks.toSorted((a, b) => a - b),
        );
      }
    }
    if (runs >= 60) expect(ofQuota).toBeGreaterThan(runs);
  });
});

it('with a quota, the policy `arc` evicts blocks of the same salt, and none of others', () => {
  const quota = 3;
  const tier = new HostTier({
    identity: suiteIdentity,
    maxBytes: 100 * blockBytes,
    quotaBytes: quota * blockBytes,
    evictionPolicy: 'arc',
    reportsSalts: true,
  });
  const prng = new Prng(firstSeed);
  for (let i = 0; i < 200; i++) {
    const block = prng.between(0, keys.length - 1);
    tier.storeNow(keys[block]!, bytes, saltOf(block));
    if (prng.chance(0.5)) tier.loadNow(prng.pick(keys), new Uint8Array(bytes.length));
    for (const evicted of blocksOf(tier.takeEvicted())) expect(saltOf(evicted)).toBe(saltOf(block));
    tier.checkInvariants();
  }
  const tagged = salts.slice(1).map((tag) => [tag!, { blocks: quota, bytes: quota * blockBytes }]);
  expect(tier.saltLevels()).toEqual(Object.fromEntries(tagged));
  expect(keys.filter((key, block) => saltOf(block) === undefined && tier.holds(key))).toHaveLength(keys.length / 4);
});

it('reports the salts with the most bytes by their tags, and all others together', () => {
  const counted = new SaltBytes<string>();
  const tags = Array.from({ length: 70 }, (_, i) => saltTagOf(`${i}`)!);
  for (const [i, tag] of tags.entries())
    for (let block = 0; block < (i % 7 === 0 ? 2 : 1); block++) counted.add(`${i}.${block}`, 10, tag);
  const report = counted.report();
  const large = tags.filter((_, i) => i % 7 === 0);
  for (const tag of large) expect(report[tag]).toEqual({ blocks: 2, bytes: 20 });
  expect(Object.keys(report)).toHaveLength(65);
  expect(report.other).toEqual({ blocks: 6, bytes: 60 });
  for (const [i] of tags.entries()) counted.delete(`${i}.0`);
  expect(counted.report()).toEqual(Object.fromEntries(large.map((tag) => [tag, { blocks: 1, bytes: 10 }])));
  counted.checkInvariants();
});
