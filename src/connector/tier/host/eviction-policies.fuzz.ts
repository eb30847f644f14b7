import { expect, test } from 'vitest';
import { fuzzRuns } from '../../../../test/support/long-form.ts';
import { Prng } from '../../../base/prng.ts';
import { ArcPolicy } from './arc-policy.ts';
import type { EvictionPolicy } from './eviction-policy.ts';
import { LruPolicy } from './lru-policy.ts';

/**
 * The policies against plain references whose lists are arrays, least recently used first. Tiers are tiny, so most evictions meet
 * ghosts and pinned blocks. More runs: KVASIR_FUZZ_RUNS; another first seed: KVASIR_FUZZ_SEED.
 */
const runs = fuzzRuns(100);
const firstSeed = Number(process.env.KVASIR_FUZZ_SEED ?? 1);

interface Reference {
  stored(): readonly number[];
  insert(name: number): void;
  touch(name: number): void;
  remove(name: number): void;
  evictOne(isEvictable: (name: number) => boolean): number | undefined;
  state(): unknown;
  clone(): Reference;
}

const ascending = (a: number, b: number): number => a - b;
const without = (list: readonly number[], name: number): number[] => list.filter((other) => other !== name);

class LruReference implements Reference {
  #list: number[];
  constructor(list: readonly number[] = []) {
    this.#list = [...list];
  }
  stored = (): readonly number[] => this.#list;
  insert(name: number): void {
    this.#list = [...this.#list, name];
  }
  touch(name: number): void {
    if (this.#list.includes(name)) this.#list = [...without(this.#list, name), name];
  }
  remove(name: number): void {
    this.#list = without(this.#list, name);
  }
  evictOne(isEvictable: (name: number) => boolean): number | undefined {
    const name = this.#list.find(isEvictable);
    if (name !== undefined) this.remove(name);
    return name;
  }
  state = (): unknown => this.#list;
  clone = (): Reference => new LruReference(this.#list);
}

interface ArcState {
  target: number;
  once: number[];
  often: number[];
  ghostsOnce: number[];
  ghostsOften: number[];
}

/** Evicts one block at a time, so several evictions see each other's ghosts and lengths. */
class ArcReference implements Reference {
  readonly #capacity: number;
  readonly #state: ArcState;
  constructor(capacity: number, state?: ArcState) {
    this.#capacity = capacity;
    this.#state = structuredClone(state ?? { target: 0, once: [], often: [], ghostsOnce: [], ghostsOften: [] });
  }
  stored = (): readonly number[] => [...this.#state.once, ...this.#state.often];
  insert(name: number): void {
    this.remove(name);
    this.#state.once.push(name);
  }
  touch(name: number): void {
    const state = this.#state;
    if (this.stored().includes(name)) {
      this.remove(name);
      state.often.push(name);
    } else if (state.ghostsOnce.includes(name)) {
      const step = Math.max(1, state.ghostsOften.length / state.ghostsOnce.length);
      state.target = Math.min(this.#capacity, state.target + step);
      state.ghostsOnce = [...without(state.ghostsOnce, name), name];
    } else if (state.ghostsOften.includes(name)) {
      const step = Math.max(1, state.ghostsOnce.length / state.ghostsOften.length);
      state.target = Math.max(0, state.target - step);
      state.ghostsOften = [...without(state.ghostsOften, name), name];
    }
  }
  remove(name: number): void {
    for (const list of ['once', 'often', 'ghostsOnce', 'ghostsOften'] as const)
      this.#state[list] = without(this.#state[list], name);
  }
  evictOne(isEvictable: (name: number) => boolean): number | undefined {
    const state = this.#state;
    const [once, often] = [state.once.find(isEvictable), state.often.find(isEvictable)];
    const takesOnce = often === undefined || (once !== undefined && state.once.length >= Math.floor(state.target));
    const name = takesOnce ? once : often;
    if (name === undefined) return undefined;
    this.remove(name);
    if (takesOnce) state.ghostsOnce = [...state.ghostsOnce, name].slice(-this.#capacity);
    else state.ghostsOften = [...state.ghostsOften, name].slice(-this.#capacity);
    return name;
  }
  state = (): unknown => this.#state;
  clone = (): Reference => new ArcReference(this.#capacity, this.#state);
}

function compare(
  seed: number,
  policy: EvictionPolicy<number>,
  first: Reference,
  capacity: number,
  stateOf: () => unknown,
): void {
  const prng = new Prng(seed);
  const names = capacity * 3;
  let reference = first;
  for (let i = 0; i < 120; i++) {
    const name = prng.between(0, names - 1);
    const choice = prng.unit();
    if (choice < 0.4) {
      const request = Array.from({ length: prng.between(1, 4) }, () => prng.between(0, names - 1));
      policy.touch(request);
      for (const used of request.toReversed()) reference.touch(used);
    } else if (choice < 0.5) {
      policy.remove(name);
      reference.remove(name);
    } else {
      const isEvictable = evictableNames(prng, names);
      const count = prng.between(0, 3);
      const next = reference.clone();
      const victims = Array.from({ length: count }, () => next.evictOne(isEvictable));
      const isEnough = victims.every((victim) => victim !== undefined);
      expectSame(seed, policy.evict(count, isEvictable), isEnough ? victims : undefined);
      if (isEnough) reference = next;
      if (reference.stored().length < capacity && !reference.stored().includes(name)) {
        policy.insert(name);
        reference.insert(name);
      }
    }
    policy.checkInvariants();
    expectSame(seed, stateOf(), reference.state());
    expectSame(seed, [...policy.names()].sort(ascending), reference.stored().toSorted(ascending));
  }
}

/** `expect` takes longer than the comparison, so it is only called for differences. */
function expectSame(seed: number, actual: unknown, expected: unknown): void {
  if (JSON.stringify(actual) !== JSON.stringify(expected)) expect(actual, `seed ${seed}`).toEqual(expected);
}

function evictableNames(prng: Prng, names: number): (name: number) => boolean {
  const share = prng.unit();
  const evictable = Array.from({ length: names }, () => prng.chance(share));
  return (name) => evictable[name]!;
}

test(`LruPolicy equals a list in the order of use in ${runs} random runs`, () => {
  for (let seed = firstSeed; seed < firstSeed + runs; seed++) {
    const policy = new LruPolicy<number>();
    compare(seed, policy, new LruReference(), 1 + (seed % 7), () => [...policy.names()]);
  }
});

test(`ArcPolicy equals the plain reference in ${runs} random runs, and both its lists lose blocks`, () => {
  let ghostsOften = 0;
  for (let seed = firstSeed; seed < firstSeed + runs; seed++) {
    const capacity = 1 + (seed % 7);
    const policy = new ArcPolicy<number>(capacity);
    compare(seed, policy, new ArcReference(capacity), capacity, () => ({ target: policy.target, ...policy.lists }));
    ghostsOften += policy.lists.ghostsOften.length;
  }
  if (runs >= 100) expect(ghostsOften).toBeGreaterThan(runs / 4);
});
