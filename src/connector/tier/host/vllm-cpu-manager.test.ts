/**
 * The scenarios of vLLM's `tests/v1/kv_offload/cpu/test_manager.py` under the same names, with our outcomes. A store is one
 * call here: a block is found as soon as it is stored. Pins stand for transfers in progress, and a deletion for a store that
 * failed later. The blocks of one `store` come from one request.
 */
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { storedBlockBytes, suiteBytes, suiteIdentity, suiteKey } from '../tier.suite.ts';
import { ArcPolicy } from './arc-policy.ts';
import { type EvictionPolicyName, evictionPolicyNames } from './eviction-policies.ts';
import { LruPolicy } from './lru-policy.ts';
import { HostTier } from './tier-host.ts';

const keysOf = (names: readonly number[]) => names.map((name) => suiteKey(name));

class Manager {
  readonly tier: HostTier;

  constructor(blocks: number, evictionPolicy: EvictionPolicyName = 'lru') {
    this.tier = new HostTier({ identity: suiteIdentity, maxBytes: blocks * storedBlockBytes, evictionPolicy });
  }

  /** The blocks that were stored and evicted; undefined if there is no room for all. */
  store(...names: number[]) {
    if (!this.tier.makeRoomFor(keysOf(names))) return undefined;
    const stored = names.filter((name) => this.tier.storeNow(suiteKey(name), suiteBytes(suiteKey(name))) === 'stored');
    const evicted = this.tier.takeEvicted();
    this.tier.checkInvariants();
    return { stored, evicted: Array.from({ length: 20 }, (_, i) => i).filter((i) => evicted.includes(suiteKey(i))) };
  }

  pin = (...names: number[]) => names.map((name) => this.tier.pin(suiteKey(name))!.byteOffset);
  unpin = (...names: number[]): void => {
    for (const name of names) this.tier.unpin(suiteKey(name));
  };
  held = (...names: number[]) => names.filter((name) => this.tier.holds(suiteKey(name)));
  touch = (...names: number[]): void => this.tier.touch(keysOf(names));
  evictable = (): number => this.tier.levels().blocks! - this.tier.levels().pinnedBlocks!;
}

it('test_cpu_manager: rooms are made for all blocks or none, never by evicting pinned or offered blocks', async () => {
  const manager = new Manager(4);
  expect(manager.store(1, 2)).toEqual({ stored: [1, 2], evicted: [] });
  expect(manager.held(1, 2, 3)).toEqual([1, 2]);
  const [freed] = manager.pin(1);
  manager.unpin(1);
  expect(manager.store(2, 3, 4, 5)).toEqual({ stored: [3, 4, 5], evicted: [1] });
  // A freed slot is used before fresh ones.
  expect(manager.pin(3)).toEqual([freed]);
  manager.pin(2, 4, 5);
  expect(manager.store(1, 6)).toBeUndefined();
  manager.unpin(2, 3, 4, 5);
  expect(manager.held(0, 1, 2, 3, 4, 5)).toEqual([2, 3, 4, 5]);

  manager.pin(2, 3);
  expect(manager.store(6, 7, 8)).toBeUndefined();
  manager.unpin(2, 3);
  // The load has used the blocks.
  manager.touch(2, 3);
  expect(manager.store(6, 7, 8)).toEqual({ stored: [6, 7, 8], evicted: [3, 4, 5] });
  manager.touch(2, 6, 7);
  expect(manager.store(9)).toEqual({ stored: [9], evicted: [8] });
  await manager.tier.delete(suiteKey(9));
  expect(manager.held(7, 9)).toEqual([7]);
});

it('test_cpu_manager: of two loads of one block each, the later one is the most recent use', () => {
  const manager = new Manager(4);
  manager.store(2, 3, 4, 5);
  for (const name of [2, 3]) manager.touch(name);
  expect(manager.store(6, 7, 8)).toEqual({ stored: [6, 7, 8], evicted: [2, 4, 5] });
});

it.each(evictionPolicyNames)(
  'test_already_stored_chunk_not_evicted_during_prepare_store, %s: room for new blocks of a request never costs its stored blocks',
  (policy) => {
    const manager = new Manager(4, policy);
    manager.store(1, 2);
    manager.touch(1);
    expect(manager.store(2, 3, 4, 5)).toEqual({ stored: [3, 4, 5], evicted: [1] });
    expect(manager.held(2)).toEqual([2]);
  },
);

it('test_prepare_load_preserves_key_order: pins give each block its own payload, in any order', () => {
  const manager = new Manager(4);
  manager.store(0, 1, 2);
  for (const order of [
    [0, 1, 2],
    [1, 2, 0],
  ]) {
    for (const name of order) expect(manager.tier.pin(suiteKey(name))).toEqual(suiteBytes(suiteKey(name)));
    manager.unpin(0, 1, 2);
  }
});

it('test_cpu_manager_reports_cache_usage_gauge: the levels say how full the tier is', () => {
  expect(new Manager(0).tier.levels()).toMatchObject({ bytes: 0, blocks: 0 });
  const manager = new Manager(4);
  expect(manager.tier.levels()).toMatchObject({ bytes: 0, blocks: 0 });
  manager.store(1, 2);
  expect(manager.tier.levels()).toMatchObject({ bytes: 2 * storedBlockBytes, blocks: 2 });
  manager.store(3, 4);
  expect(manager.tier.levels()).toMatchObject({ bytes: 4 * storedBlockBytes, blocks: 4 });
  // vLLM's gauge: 0, 0.5 and 1 while blocks are stored, and 0.5 and 0 afterwards.
  const pinned = () => manager.tier.levels().pinnedBlocks;
  expect(pinned()).toBe(0);
  for (const [names, count] of [
    [[1, 2], 2],
    [[3, 4], 4],
  ] as const) {
    manager.pin(...names);
    expect(pinned()).toBe(count);
  }
  manager.unpin(1, 2);
  expect(pinned()).toBe(2);
  manager.unpin(3, 4);
  expect(pinned()).toBe(0);
});

it('test_evictable_cache_chunk_count: pins count once per block, and a tier without evictable blocks asks no policy', async () => {
  const manager = new Manager(4);
  const { tier } = manager;
  expect(manager.evictable()).toBe(0);
  manager.store(1, 2, 3);
  expect(manager.evictable()).toBe(3);
  manager.pin(1);
  expect(manager.evictable()).toBe(2);
  manager.pin(1);
  expect(manager.evictable()).toBe(2);
  manager.unpin(1);
  expect(manager.evictable()).toBe(2);
  manager.unpin(1);
  expect(manager.evictable()).toBe(3);

  expect(manager.store(4, 5, 6)).toEqual({ stored: [4, 5, 6], evicted: [1, 2] });
  manager.pin(4, 5, 6);
  expect(manager.evictable()).toBe(1);
  // Failed stores: their blocks go when the transfer no longer uses them.
  for (const key of keysOf([4, 5, 6])) await tier.delete(key);
  manager.unpin(4, 5, 6);
  expect([manager.evictable(), tier.levels().bytes]).toEqual([1, storedBlockBytes]);
  await tier.delete(suiteKey(3));
  expect(manager.evictable()).toBe(0);

  manager.store(10, 11, 12);
  manager.pin(10, 11, 12);
  expect(manager.evictable()).toBe(0);
  const evict = vi.spyOn(LruPolicy.prototype, 'evict');
  onTestFinished(() => evict.mockRestore());
  expect(manager.store(14, 15)).toBeUndefined();
  expect(evict).not.toHaveBeenCalled();
  manager.unpin(10, 11, 12);
  expect(manager.evictable()).toBe(3);
  expect(manager.store(14, 15)).toEqual({ stored: [14, 15], evicted: [10] });
  expect(evict).toHaveBeenCalled();
  expect(manager.evictable()).toBe(4);
  tier.checkInvariants();
});

describe('TestARCPolicy', () => {
  /** A cache of names with ARC. `store` and `touch` take one request's names. */
  function arc(capacity: number) {
    const policy = new ArcPolicy<number>(capacity);
    const isPinned = vi.fn((_: number) => false);
    const store = (...names: number[]) => {
      const { once, often } = policy.lists;
      const wanted = names.length - (capacity - once.length - often.length);
      const evicted = policy.evict(Math.max(0, wanted), (name) => !isPinned(name));
      if (evicted !== undefined) for (const name of names) policy.insert(name);
      policy.checkInvariants();
      return evicted;
    };
    return { policy, store, isPinned };
  }

  it('test_basic: stored blocks begin in T1', () => {
    const manager = new Manager(4, 'arc');
    expect(manager.store(1, 2)).toEqual({ stored: [1, 2], evicted: [] });
    expect(manager.held(1, 2, 3)).toEqual([1, 2]);
    const { policy, store } = arc(4);
    store(1, 2);
    expect(policy.lists).toMatchObject({ once: [1, 2], often: [] });
  });

  it('test_t1_to_t2_promotion: a second use moves a block to T2', () => {
    const { policy, store } = arc(4);
    store(1);
    expect(policy.lists).toMatchObject({ once: [1], often: [] });
    policy.touch([1]);
    expect(policy.lists).toMatchObject({ once: [], often: [1] });
  });

  it('test_eviction_with_load: blocks that are being loaded are not evicted, and no others either if room lacks', () => {
    const manager = new Manager(4, 'arc');
    manager.store(1, 2, 3, 4);
    manager.pin(2, 3);
    expect(manager.store(5, 6, 7)).toBeUndefined();
    expect(manager.held(1, 2, 3, 4)).toEqual([1, 2, 3, 4]);
    manager.unpin(2, 3);
    expect(manager.store(5, 6, 7)).toEqual({ stored: [5, 6, 7], evicted: [1, 2, 3] });
  });

  it('test_adaptive_target: a use of a ghost of B1 raises the target of T1, one of B2 lowers it', () => {
    const { policy, store } = arc(2);
    store(1, 2);
    expect(store(3)).toEqual([1]);
    expect(policy.lists.ghostsOnce).toEqual([1]);
    policy.touch([1]);
    expect(policy.target).toBe(1);
    policy.touch([2, 3]);
    expect(store(4)).toEqual([3]);
    expect(policy.lists.ghostsOften).toEqual([3]);
    policy.touch([3]);
    expect(policy.target).toBe(0);
  });

  it('test_t1_t2_eviction_policy: with at least the target in T1, the oldest of T1 is evicted, else the oldest of T2', () => {
    const { policy, store } = arc(4);
    store(0, 1, 2, 3);
    store(4);
    policy.touch([0]);
    policy.touch([3, 4]);
    expect(policy.target).toBe(1);
    expect(policy.lists).toMatchObject({ once: [1, 2], often: [4, 3] });
    expect(store(5)).toEqual([1]);
    expect(policy.lists).toMatchObject({ once: [2, 5], ghostsOnce: [0, 1] });
    policy.touch([2, 5]);
    expect(store(6)).toEqual([4]);
    expect(policy.lists).toMatchObject({ once: [6], often: [3, 5, 2], ghostsOften: [4] });
  });

  it('test_ghost_list_bounds: ghost lists have at most as many names as the tier has blocks', () => {
    const { policy, store } = arc(2);
    store(1, 2);
    for (let i = 3; i < 20; i++) store(i);
    expect(policy.lists.ghostsOnce).toEqual([16, 17]);
  });

  it('test_touch_ordering: the first block of a touched request is the most recently used', () => {
    const { policy, store } = arc(4);
    store(1, 2, 3, 4);
    policy.touch([3, 4]);
    policy.touch([1, 3, 4]);
    expect(policy.lists).toMatchObject({ once: [2], often: [4, 3, 1] });
    expect(store(5)).toEqual([2]);
  });

  it('test_failed_store: a block that is removed after its store leaves no ghost; the block that it evicted stays one', () => {
    const { policy, store } = arc(4);
    store(1, 2, 3, 4);
    expect(store(5)).toEqual([1]);
    policy.remove(5);
    expect(policy.lists).toEqual({ once: [2, 3, 4], often: [], ghostsOnce: [1], ghostsOften: [] });
  });

  it('test_full_scenario: blocks that were used twice stay while others pass through', () => {
    const manager = new Manager(4, 'arc');
    manager.store(1, 2);
    expect(manager.store(3, 4, 5)).toEqual({ stored: [3, 4, 5], evicted: [1] });
    manager.touch(2, 3);
    expect(manager.store(6)).toEqual({ stored: [6], evicted: [4] });
    expect(manager.held(2, 3)).toEqual([2, 3]);
  });

  it.each([
    [[], [], [7, 8, 9], [6, 5, 3]],
    [[], [], [7, 8, 9, 10], [6, 5, 3, 4]],
    [[5, 6], [], [7, 8], [3, 4]],
    [[], [5, 6], [7, 8], [3, 4]],
    [[5, 6], [3], [7], [4]],
    [[5, 6], [3], [7, 8], undefined],
  ])(
    'test_store_falls_back_to_t1_when_t2_cannot_satisfy_eviction: %j pinned, %j offered again, new %j: %j',
    (pinned, again, names, evicted) => {
      const manager = new Manager(4, 'arc');
      manager.store(1, 2, 3, 4);
      manager.store(5, 6);
      manager.touch(1, 2);
      manager.touch(1);
      manager.touch(5, 6);
      manager.pin(...pinned);
      const outcome = manager.store(...again, ...names);
      expect(outcome).toEqual(evicted && { stored: names, evicted: evicted.toSorted((a, b) => a - b) });
      expect(manager.held(...pinned, ...again)).toEqual([...pinned, ...again]);
      const { policy, store, isPinned } = arc(4);
      store(1, 2, 3, 4);
      store(5, 6);
      for (const touched of [[1, 2], [1], [5, 6]]) policy.touch(touched);
      expect(policy.target).toBe(3);
      expect(policy.lists).toMatchObject({ once: [3, 4], often: [6, 5] });
      const before = policy.lists;
      isPinned.mockImplementation((name) => pinned.includes(name) || again.includes(name));
      expect(store(...names)).toEqual(evicted);
      if (evicted === undefined) expect(policy.lists).toEqual(before);
    },
  );

  it('a block is evicted from the other list if the chosen one has only pinned blocks', () => {
    const { policy, store, isPinned } = arc(3);
    store(1, 2, 3);
    policy.touch([3]);
    isPinned.mockImplementation((name) => name < 3);
    expect(store(4)).toEqual([3]);
    expect(store(5)).toEqual([4]);
    isPinned.mockImplementation(() => true);
    expect(store(6)).toBeUndefined();
  });
});
