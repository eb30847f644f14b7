import { crc32 } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { ManualTime } from '../../../../test/support/manual-time.ts';
import { storedBlockBytes, suiteBlockBytes, suiteBytes, suiteIdentity, suiteKey, tierSuite } from '../tier.suite.ts';
import { evictionPolicyNames } from './eviction-policies.ts';
import { HostTier, type HostTierOptions } from './tier-host.ts';

// `reopen` has no result, because another process cannot read the memory of this process.
for (const evictionPolicy of evictionPolicyNames)
  tierSuite(`HostTier, ${evictionPolicy}`, (maxBytes) => {
    const tier = new HostTier({ identity: suiteIdentity, maxBytes, evictionPolicy });
    return Promise.resolve({ tier, reopen: () => Promise.resolve(undefined) });
  });

function begin(blocks: number, options: Partial<HostTierOptions> = {}) {
  const tier = new HostTier({ identity: suiteIdentity, maxBytes: blocks * storedBlockBytes, ...options });
  const put = (name: string | number) => tier.storeNow(suiteKey(name), suiteBytes(suiteKey(name)));
  const held = (...names: number[]) => names.filter((name) => tier.holds(suiteKey(name)));
  return { tier, put, held };
}

describe('calls without waiting', () => {
  it('store, find and load in one turn of the event loop', () => {
    const { tier, put } = begin(2);
    expect([tier.holds(suiteKey('a')), put('a'), put('a')]).toEqual([false, 'stored', 'alreadyStored']);
    expect(tier.holds(suiteKey('a'))).toBe(true);
    const into = new Uint8Array(suiteBlockBytes);
    expect(tier.loadNow(suiteKey('a'), into)).toBeUndefined();
    expect(into).toEqual(suiteBytes(suiteKey('a')));
    expect(tier.loadNow(suiteKey('b'), into)).toBe('missing');
    tier.checkInvariants();
  });

  it('are refused by a closed tier', async () => {
    const { tier, put } = begin(2);
    await tier.close();
    expect(() => put('a')).toThrow('closed');
    expect(() => tier.loadNow(suiteKey('a'), new Uint8Array(suiteBlockBytes))).toThrow('closed');
  });
});

describe('a time to live', () => {
  it('begins again at each use, and ends for blocks that are not pinned', async () => {
    const time = new ManualTime();
    const { tier, put, held } = begin(9, { ttlSeconds: 10, clock: time });
    for (let i = 1; i <= 5; i++) put(i);
    tier.pin(suiteKey(4));
    time.advance(9_999);
    expect(tier.loadNow(suiteKey(1), new Uint8Array(suiteBlockBytes))).toBeUndefined();
    expect([put(2), held(1, 2, 3, 4, 5)]).toEqual(['alreadyStored', [1, 2, 3, 4, 5]]);
    time.advance(1);
    expect(held(3)).toEqual([]);
    expect(tier.loadNow(suiteKey(3), new Uint8Array(suiteBlockBytes))).toBe('missing');
    // Also blocks that no call names.
    expect(tier.takeEvicted()).toEqual([suiteKey(3), suiteKey(5)]);
    expect(tier.levels()).toMatchObject({ blocks: 3, bytes: 3 * storedBlockBytes });
    tier.unpin(suiteKey(4));
    expect([put(3), held(1, 2, 3, 4)]).toEqual(['stored', [1, 2, 3]]);
    expect(tier.counters()).toMatchObject({ expired: 3, stored: 6 });
    tier.checkInvariants();
    await tier.close();
  });
});

describe('pins', () => {
  it('give the payload in its slot, which is not evicted and not used for another block', () => {
    const { tier, put, held } = begin(2);
    put(1);
    put(2);
    const payload = tier.pin(suiteKey(1))!;
    expect(payload).toEqual(suiteBytes(suiteKey(1)));
    for (let i = 3; i < 9; i++) expect(put(i)).toBe('stored');
    expect(payload).toEqual(suiteBytes(suiteKey(1)));
    expect(held(1, 2, 7, 8)).toEqual([1, 8]);
    tier.checkInvariants();
    tier.unpin(suiteKey(1));
    put(9);
    expect(held(1, 8, 9)).toEqual([8, 9]);
    tier.checkInvariants();
  });

  it('give the CRC32 that the block had when it was stored', async () => {
    const { tier, put } = begin(2);
    put(1);
    const payload = tier.pin(suiteKey(1))!;
    expect(tier.storeContext(suiteKey(1)).payloadCrc).toBe(crc32(payload));
    await tier.tamper(suiteKey(1), (stored) => stored.fill(7, 200, 300));
    expect(tier.storeContext(suiteKey(1)).payloadCrc).toBe(crc32(suiteBytes(suiteKey(1))));
    expect(() => tier.storeContext(suiteKey(2))).toThrow('is not pinned');
  });

  it('are counted', () => {
    const { tier, put, held } = begin(1);
    put(1);
    tier.pin(suiteKey(1));
    tier.pin(suiteKey(1));
    tier.unpin(suiteKey(1));
    expect(put(2)).toBe('full');
    tier.unpin(suiteKey(1));
    expect(() => tier.unpin(suiteKey(1))).toThrow('is not pinned');
    expect(put(2)).toBe('stored');
    expect(held(1, 2)).toEqual([2]);
  });

  it('answer undefined for a missing block', () => {
    expect(begin(1).tier.pin(suiteKey('a'))).toBeUndefined();
  });

  it('a store answers `full` while all blocks are pinned, and evicts nothing', () => {
    const { tier, put, held } = begin(2);
    for (const i of [1, 2]) {
      put(i);
      tier.pin(suiteKey(i));
    }
    expect(put(3)).toBe('full');
    expect(held(1, 2, 3)).toEqual([1, 2]);
    expect(tier.takeEvicted()).toEqual([]);
    tier.checkInvariants();
  });

  it('keep the slot of a deleted block until they end; meanwhile the block is absent and cannot be stored', async () => {
    const { tier, put, held } = begin(2);
    put(1);
    const payload = tier.pin(suiteKey(1))!;
    await tier.delete(suiteKey(1));
    expect(tier.loadNow(suiteKey(1), new Uint8Array(suiteBlockBytes))).toBe('missing');
    expect(tier.pin(suiteKey(1))).toBeUndefined();
    expect([put(1), put(2), put(3)]).toEqual(['full', 'stored', 'stored']);
    expect(payload).toEqual(suiteBytes(suiteKey(1)));
    expect(held(1, 2, 3)).toEqual([3]);
    expect(tier.levels()).toMatchObject({ bytes: 2 * storedBlockBytes, blocks: 1, pinnedBlocks: 0 });
    tier.checkInvariants();
    tier.unpin(suiteKey(1));
    expect([put(1), tier.holds(suiteKey(1))]).toEqual(['stored', true]);
    tier.checkInvariants();
  });

  it('a block that is found corrupt while it is pinned is absent, and stored again after its last pin', async () => {
    const { tier, put } = begin(2);
    put(1);
    tier.pin(suiteKey(1));
    await tier.tamper(suiteKey(1), (stored) => stored.fill(7, 200, 300));
    const into = new Uint8Array(suiteBlockBytes);
    expect(tier.loadNow(suiteKey(1), into)).toBe('corrupt');
    expect([tier.holds(suiteKey(1)), put(1)]).toEqual([false, 'full']);
    tier.unpin(suiteKey(1));
    expect([put(1), tier.loadNow(suiteKey(1), into)]).toEqual(['stored', undefined]);
    expect(into).toEqual(suiteBytes(suiteKey(1)));
  });
});

describe('room for a request', () => {
  it('is made for all blocks or none, and none of the blocks is evicted', () => {
    const { tier, put, held } = begin(4);
    for (const i of [1, 2, 3, 4]) put(i);
    tier.pin(suiteKey(4));
    const keys = (...names: number[]) => names.map((name) => suiteKey(name));
    expect(tier.makeRoomFor(keys(1, 5, 6))).toBe(true);
    expect(held(1, 2, 3, 4)).toEqual([1, 4]);
    expect([put(5), put(6)]).toEqual(['stored', 'stored']);
    expect(tier.makeRoomFor(keys(7, 8, 9, 10))).toBe(false);
    expect(tier.makeRoomFor(keys(1, 5, 6, 7))).toBe(false);
    expect(held(1, 4, 5, 6)).toEqual([1, 4, 5, 6]);
    tier.checkInvariants();
  });

  it('takes the later positions of a touched request first', () => {
    const { tier, put, held } = begin(4);
    for (const i of [1, 2, 3, 4]) put(i);
    tier.touch([1, 2, 3].map((i) => suiteKey(i)));
    put(5);
    put(6);
    expect(held(1, 2, 3, 4)).toEqual([1, 2]);
  });
});

describe('memory', () => {
  it('grows by arenas, and blocks keep their bytes', () => {
    const { tier, put } = begin(9, { arenas: { arenaBytes: 2 * storedBlockBytes + 100 } });
    for (let i = 0; i < 9; i++) expect(put(i)).toBe('stored');
    const into = new Uint8Array(suiteBlockBytes);
    for (let i = 0; i < 9; i++) {
      expect(tier.loadNow(suiteKey(i), into)).toBeUndefined();
      expect(into).toEqual(suiteBytes(suiteKey(i)));
    }
    tier.checkInvariants();
  });

  it('that the system does not have bounds the tier: it evicts, and stores in the memory that it has', () => {
    let arenas = 0;
    const allocate = (bytes: number): Uint8Array => {
      if (arenas++ > 0) throw new RangeError('Array buffer allocation failed');
      return new Uint8Array(bytes);
    };
    const { tier, put, held } = begin(9, { arenas: { arenaBytes: 2 * storedBlockBytes, allocate } });
    for (let i = 0; i < 5; i++) expect(put(i)).toBe('stored');
    expect(held(0, 1, 2, 3, 4)).toEqual([3, 4]);
    expect(tier.counters()).toMatchObject({ allocationFailed: 1, evicted: 3 });
    tier.checkInvariants();
    for (const i of [3, 4]) tier.pin(suiteKey(i));
    expect(put(5)).toBe('full');
  });

  it('of 64 GiB is mapped only where blocks are stored', () => {
    const before = process.memoryUsage().rss;
    const { put } = begin((64 << 20) / 4);
    put(1);
    expect(process.memoryUsage().rss - before).toBeLessThan(100 << 20);
  });
});
