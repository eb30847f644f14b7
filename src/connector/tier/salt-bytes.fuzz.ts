import { describe, expect, it } from 'vitest';
import { fuzzRuns } from '../../../test/support/long-form.ts';
import type { Clock } from '../../base/clock.ts';
import { Prng } from '../../base/prng.ts';
import type { BlockKey } from '../block-key.ts';
import { type SaltTag, saltTagOf } from '../salt-tag.ts';
import { DiskBound } from './disk/disk-bound.ts';
import { HostTier } from './host/tier-host.ts';
import { SaltBytes } from './salt-bytes.ts';
import { storedBlockBytes as blockBytes, suiteBytes, suiteIdentity, suiteKey } from './tier.suite.ts';
import { TierPins } from './tier-pins.ts';

/**
 * What tiers with a quota and pinned prefixes evict, against a list in the order of use. The reference stores one block at a time: `disk-bound.fuzz.ts` has
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
  /** By transfers. */
  readonly pinned = new Set<number>();
  prefixes: { readonly name: string; readonly blocks: readonly number[]; readonly ttlMs: number; untilMs: number }[] =
    [];
  nowMs = 0;

  constructor(bounds: Bounds) {
    this.#bounds = bounds;
  }

  has = (block: number): boolean => this.blocks.includes(block);

  use(block: number): void {
    if (!this.has(block)) return;
    this.blocks = [...this.blocks.filter((other) => other !== block), block];
  }

  load(block: number): void {
    this.use(block);
    if (this.has(block)) this.#renew(block);
  }

  remove(block: number): void {
    this.blocks = this.blocks.filter((other) => other !== block);
  }

  pinPrefix(name: string, wanted: readonly number[], ttlMs: number): number {
    this.unpinPrefix(name);
    const all = new Set(this.#alive().flatMap(({ blocks }) => blocks));
    const blocks: number[] = [];
    for (const block of wanted) {
      if (!all.has(block) && all.size >= Math.floor(this.#bounds.blocksMax / 2)) break;
      all.add(block);
      blocks.push(block);
    }
    if (blocks.length > 0) this.prefixes.push({ name, blocks, ttlMs, untilMs: this.nowMs + ttlMs });
    return blocks.length;
  }

  unpinPrefix(name: string): void {
    this.prefixes = this.#alive().filter((prefix) => prefix.name !== name);
  }

  /** The evicted blocks; undefined: there is no room. */
  store(block: number): number[] | undefined {
    this.#renew(block);
    if (this.has(block)) {
      this.use(block);
      return [];
    }
    const { blocksMax, quota = Number.POSITIVE_INFINITY } = this.#bounds;
    const salt = saltOf(block);
    const passed: number[] = [];
    const ofSalt = this.blocks.filter((other) => salt !== undefined && saltOf(other) === salt);
    const first = this.#oldest(ofSalt, salt === undefined ? 0 : ofSalt.length + 1 - quota, passed);
    const wanted = first === undefined ? 0 : this.blocks.length + 1 - blocksMax - first.length;
    const others = this.blocks.filter((other) => first?.includes(other) !== true);
    const isHopeless = wanted > others.filter((other) => !this.pinned.has(other)).length;
    const second = isHopeless ? undefined : this.#oldest(others, wanted, passed);
    for (const other of passed) this.use(other);
    if (first === undefined || second === undefined) return undefined;
    const evicted = [...first, ...second];
    this.blocks = [...this.blocks.filter((other) => !evicted.includes(other)), block];
    return evicted;
  }

  /** Blocks of prefixes that are passed become the most recently used. */
  #oldest(candidates: readonly number[], count: number, passed: number[]): number[] | undefined {
    const kept = new Set(this.#alive().flatMap(({ blocks }) => blocks));
    const chosen: number[] = [];
    for (const block of candidates) {
      if (chosen.length >= count) break;
      if (kept.has(block)) passed.push(block);
      else if (!this.pinned.has(block)) chosen.push(block);
    }
    return chosen.length >= count ? chosen : undefined;
  }

  #renew(block: number): void {
    for (const prefix of this.#alive()) if (prefix.blocks.includes(block)) prefix.untilMs = this.nowMs + prefix.ttlMs;
  }

  #alive() {
    return this.prefixes.filter(({ untilMs }) => untilMs > this.nowMs);
  }
}

interface UnderTest {
  readonly pins: TierPins;
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

function hostTier({ blocksMax, quota }: Bounds, clock: Clock): UnderTest {
  const tier = new HostTier({
    identity: suiteIdentity,
    clock,
    maxBytes: blocksMax * blockBytes,
    quotaBytes: quota === undefined ? undefined : quota * blockBytes,
  });
  const into = new Uint8Array(bytes.length);
  return {
    pins: tier.pins,
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

function diskBound({ blocksMax, quota }: Bounds, clock: Clock): UnderTest {
  const pins = new TierPins(blocksMax, () => clock.nowMs());
  const salts = quota === undefined ? undefined : new SaltBytes<BlockKey>(quota * blockBytes);
  const bound = new DiskBound(blocksMax * blockBytes, { salts, pins });
  return {
    pins,
    store: (block) => {
      pins.used(keys[block]!);
      const reservation = bound.reserve(keys[block]!, blockBytes, { saltTag: saltOf(block) });
      if (reservation === undefined) return undefined;
      bound.stored(reservation);
      return blocksOf(bound.takeEvicted());
    },
    use: (block) => {
      if (!bound.has(keys[block]!)) return;
      pins.used(keys[block]!);
      bound.used(keys[block]!, blockBytes, saltOf(block));
    },
    remove: (block) => bound.gone(keys[block]!, bound.stampOf(keys[block]!)),
    has: (key) => bound.has(key),
    check: () => bound.checkInvariants(),
  };
}

describe.each([
  ['host memory', hostTier],
  ['a disk', diskBound],
] as const)('with a quota and pins, %s', (_, open) => {
  it(`evicts as a list in the order of use, in ${runs} random runs`, () => {
    const seen = { ofQuota: 0, full: 0, kept: 0 };
    for (let seed = firstSeed; seed < firstSeed + runs; seed++) {
      const prng = new Prng(seed);
      const bounds = { blocksMax: prng.between(1, 12), quota: prng.chance(0.2) ? undefined : prng.between(1, 6) };
      const reference = new Reference(bounds);
      const tier = open(bounds, { nowMs: () => reference.nowMs });
      for (let i = 0; i < 150; i++) {
        const context = `seed ${seed}, event ${i}`;
        const block = prng.between(0, keys.length - 1);
        reference.nowMs += prng.between(0, 2);
        const wasFull = reference.blocks.length === bounds.blocksMax;
        prng.pick([
          ...new Array<() => void>(6).fill(() => {
            const before = new Set(reference.blocks);
            const expected = reference.store(block);
            expectSame(context, tier.store(block), expected);
            if (expected === undefined) seen.full++;
            else if (expected.length > 0 && !wasFull) seen.ofQuota++;
            if (expected !== undefined && [...before][0] !== expected[0] && expected.length > 0) seen.kept++;
          }),
          ...new Array<() => void>(3).fill(() => {
            reference.load(block);
            tier.use(block);
          }),
          () => {
            if (reference.pinned.has(block)) return;
            reference.remove(block);
            tier.remove(block);
          },
          () => {
            if (tier.pin === undefined || !reference.has(block)) return;
            if (reference.pinned.delete(block)) tier.unpin?.(block);
            else {
              reference.pinned.add(block);
              tier.pin(block);
            }
          },
          () => {
            const name = prng.pick(['p', 'q', 'r']);
            const wanted = [
              ...new Set(Array.from({ length: prng.between(1, 5) }, () => prng.between(0, keys.length - 1))),
            ];
            const ttlMs = prng.between(1, 60);
            const pinned = tier.pins.pin({ name, keys: wanted.map((other) => keys[other]!), ttlMs });
            expectSame(context, pinned, reference.pinPrefix(name, wanted, ttlMs));
          },
          () => {
            reference.unpinPrefix('p');
            tier.pins.unpin('p');
          },
        ])();
        tier.check();
        const held = keys.flatMap((key, other) => (tier.has(key) ? [other] : []));
        expectSame(
          context,
          held,
          reference.blocks.toSorted((a, b) => a - b),
        );
      }
    }
    if (runs >= 60) expect(Math.min(...Object.values(seen))).toBeGreaterThan(runs / 6);
  });
});

it('a use begins the time to live of a pin again, but not after its end', () => {
  let nowMs = 0;
  const pins = new TierPins(4, () => nowMs);
  const [first, second] = keys as [BlockKey, BlockKey];
  expect(pins.pin({ name: 'p', keys: [first, second], ttlMs: 10 })).toBe(2);
  nowMs = 9;
  pins.used(second);
  nowMs = 18;
  expect(pins.report()).toMatchObject({ pins: [{ name: 'p', blocks: 2, leftMs: 1 }], blocks: 2, expired: 0 });
  nowMs = 19;
  pins.used(first);
  expect([pins.keeps(first), pins.blockCount]).toEqual([false, 0]);
  expect(pins.report()).toEqual({ pins: [], blocks: 0, blocksMax: 2, expired: 1 });
  expect([pins.unpin('p'), pins.pin({ name: 'q', keys: keys.slice(0, 5), ttlMs: 1 })]).toEqual([0, 2]);
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
