import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterAll, describe, expect, it } from 'vitest';
import { ManualTime } from '../../../test/support/manual-time.ts';
import { MemoryAhead } from '../../base/memory-ahead.ts';
import type { KvIdentity } from '../connector.ts';
import { FaultInjector } from '../fault/fault-injector.ts';
import { type FaultRule, faultRule } from '../fault/fault-rules.ts';
import { systemTimers } from '../system-timers.ts';
import { DiskTier } from '../tier/disk/tier-disk.ts';
import { HostTier } from '../tier/host/tier-host.ts';
import {
  storedBlockBytes,
  suiteBlockBytes,
  suiteBytes,
  suiteIdentity,
  suiteKey,
  tierSuite,
} from '../tier/tier.suite.ts';
import type { Tier } from '../tier/tier.ts';
import { newStack } from './stack-under-test.suite.ts';
import type { TierStack } from './tier-stack.ts';
import { WritePace } from './write-pace.ts';

const root = mkdtempSync(join(tmpdir(), 'kvasir-stack-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));
let serial = 0;
const open = new AbortController().signal;
const fresh = (): Uint8Array => new Uint8Array(suiteBlockBytes).fill(0xee);

const openDisk = (folder: string, name = 'disk', identity: KvIdentity = suiteIdentity, maxBytes = 1e9) =>
  DiskTier.open({ root: folder, identity, maxBytes, name, threads: 2 });
const newDisk = (name?: string) => openDisk(join(root, `${serial++}`), name);
const faulty = (tier: Tier, ...rules: Partial<FaultRule>[]) =>
  new FaultInjector(tier, {
    identity: suiteIdentity,
    timers: systemTimers,
    plan: { seed: 1, rules: rules.map((rule) => faultRule({ fault: 'error', ...rule })) },
  });

// A stack keeps blocks that host memory evicts on the disk, so it has no bound of its own.
tierSuite(
  'TierStack of host memory and a disk',
  async () => {
    const folder = join(root, `${serial++}`);
    const disk = await openDisk(folder);
    const { stack, whenWritten } = newStack(100, [disk]);
    return {
      tier: stack,
      reopen: async (identity) => {
        await whenWritten();
        return openDisk(folder, 'disk', identity);
      },
    };
  },
  {
    isBounded: false,
    missCount: (tier, reason) => (tier as TierStack).stats().tiers?.host?.loadFailed?.[reason],
  },
);

describe('TierStack', () => {
  const put = (stack: Tier, name: string | number) => stack.store(suiteKey(name), suiteBytes(suiteKey(name)), open);
  async function loads(stack: Tier, name: string | number, place?: string) {
    const into = fresh();
    const sources: string[] = [];
    const context = { ...(place === undefined ? {} : { place }), servedBy: (source: string) => sources.push(source) };
    const reason = await stack.load(suiteKey(name), into, open, context);
    if (reason === undefined) expect(into).toEqual(suiteBytes(suiteKey(name)));
    return reason ?? sources.join();
  }

  it('cascade to both tiers: a store in host memory is written to every tier below it', async () => {
    const [a, b] = [await newDisk('a'), await newDisk('b')];
    const { stack, whenWritten } = newStack(8, [a, b]);
    expect(await put(stack, 1)).toBe('stored');
    expect(await put(stack, 1)).toBe('alreadyStored');
    await whenWritten();
    for (const tier of [a, b]) expect(await tier.has([suiteKey(1)], open)).toEqual([true]);
    const storedBlocks = 1;
    expect(stack.stats().tiers).toMatchObject({ host: { storedBlocks }, a: { storedBlocks }, b: { storedBlocks } });
    await stack.close();
  });

  it('loads an evicted block from the first tier that has it, and keeps it in host memory again', async () => {
    const [a, b] = [await newDisk('a'), await newDisk('b')];
    const { stack, host, whenWritten } = newStack(2, [a, b]);
    for (const i of [1, 2, 3]) {
      await put(stack, i);
      await whenWritten();
    }
    expect(stack.takeEvicted()).toEqual([suiteKey(1)]);
    expect(await loads(stack, 3)).toBe('host');
    expect(await loads(stack, 1)).toBe('a');
    expect(host.holds(suiteKey(1))).toBe(true);
    expect(await loads(stack, 1)).toBe('host');
    await a.delete(suiteKey(2));
    expect(await loads(stack, 2)).toBe('b');
    await stack.close();
  });

  it('tries host memory first, then the promised tier, and then the others', async () => {
    const [a, b] = [await newDisk('a'), await newDisk('b')];
    const { stack, whenWritten } = newStack(1, [a, b]);
    for (const i of [1, 2]) {
      await put(stack, i);
      await whenWritten();
    }
    expect(await loads(stack, 2, 'b')).toBe('host');
    expect(await loads(stack, 1, 'b')).toBe('b');
    await b.delete(suiteKey(2));
    expect(await loads(stack, 2, 'b')).toBe('a');
    expect(await loads(stack, 3, 'b')).toBe('missing');
    await stack.close();
  });

  it.each<[string, Partial<FaultRule>]>([
    ['fails', { on: 'load', fault: 'error' }],
    ['has a damaged block', { on: 'load', fault: 'bitFlip' }],
    ['hangs and ignores the abort', { on: 'load', fault: 'hung', ignoresAbort: true }],
  ])('a tier that %s is followed by the next', async (_, rule) => {
    const [bare, b] = [await newDisk('a'), await newDisk('b')];
    const a = faulty(bare, rule);
    // The load from `b` has a deadline too, and must not reach it on a busy machine.
    const time = new ManualTime();
    const { stack, host, whenWritten } = newStack(2, [a, b], { clock: time, timers: time, loadTimeoutMs: 20 });
    await put(stack, 1);
    await whenWritten();
    await host.delete(suiteKey(1));
    const place = loads(stack, 1);
    if (rule.fault === 'hung') {
      while (time.pending === 0) await nextTurn();
      time.advance(20);
    }
    expect(await place).toBe('b');
    a.releaseHung();
    await stack.close();
  });

  it('says why the block could not be loaded, and not that the last tier lacks it', async () => {
    const [a, b] = [await newDisk('a'), await newDisk('b')];
    const { stack, host, whenWritten } = newStack(2, [a, b]);
    await put(stack, 1);
    await whenWritten();
    await stack.tamper(suiteKey(1), (stored) => stored.subarray(0, stored.length - 1));
    await b.delete(suiteKey(1));
    expect(await loads(stack, 1)).toBe('truncated');
    expect(host.holds(suiteKey(1))).toBe(false);
    await stack.close();
  });

  it('a tier that is down is not called: its breaker opens, and closes again when the tier answers', async () => {
    const bare = await newDisk('a');
    const a = faulty(bare, { on: 'load', limit: 2 }, { on: 'store', limit: 2 });
    const { stack, host, whenWritten } = newStack(8, [a], {
      storesAtOnce: 1,
      breaker: { failuresMax: 2, coolDownMs: 1, coolDownMaxMs: 1 },
    });
    for (const i of [1, 2]) {
      await put(stack, i);
      await whenWritten();
    }
    expect(stack.stats().tiers!.a).toMatchObject({ storeFailed: { storeFailed: 2 }, breakerOpened: { store: 1 } });
    for (let i = 3; stack.stats().levels!.tiers!.a!.breakerOpen!.store !== 0; i++) {
      await put(stack, i);
      await whenWritten();
    }
    await put(stack, 'later');
    await whenWritten();
    await host.delete(suiteKey('later'));
    for (const _ of [1, 2]) expect(await loads(stack, 'later')).toBe('storeFailed');
    let result = await loads(stack, 'later');
    while (result === 'storeDown') result = await loads(stack, 'later');
    expect(result).toBe('a');
    expect(stack.stats().levels!.tiers!.a!.breakerOpen!.load).toBe(0);
    await stack.close();
  });

  it('a tier that is too slow loses blocks, and host memory is never full because of it', async () => {
    const bare = await newDisk('a');
    // Only the first store hangs, and the others wait in the queue: so the close does not wait for deadlines.
    const a = faulty(bare, { on: 'store', fault: 'hung', limit: 1 });
    const { stack, host } = newStack(6, [a], { queuedMax: 3, storesAtOnce: 1 });
    for (let i = 0; i < 20; i++) expect(await put(stack, i)).toBe('stored');
    const { tiers, levels } = stack.stats();
    expect(tiers!.a!.dropped).toBeGreaterThan(0);
    expect(levels!.tiers).toMatchObject({ a: { openStores: 4 }, host: { bytes: 6 * storedBlockBytes } });
    stack.checkInvariants();
    host.checkInvariants();
    const closing = stack.close();
    a.releaseHung();
    await closing;
  });

  it('a failed store in one tier does not touch the others', async () => {
    const [bare, b] = [await newDisk('a'), await newDisk('b')];
    const { stack, whenWritten } = newStack(2, [faulty(bare, { on: 'store' }), b]);
    await put(stack, 1);
    await whenWritten();
    expect(await b.has([suiteKey(1)], open)).toEqual([true]);
    expect(await bare.has([suiteKey(1)], open)).toEqual([false]);
    await stack.close();
  });

  it('while a block loads, no block is written to any tier, and afterwards all of them are', async () => {
    const time = new ManualTime();
    const pace = new WritePace({ clock: time, timers: time, isBusy: () => false, busyShare: 0.01 });
    const calls: string[] = [];
    const logged = (bare: Tier, whenLoaded: Promise<void>): Tier => ({
      ...slow(bare, time, 0),
      load: async (key, into, signal) => {
        calls.push(`${bare.name} loads`);
        await whenLoaded;
        return bare.load(key, into, signal);
      },
      store: (key, bytes, signal) => {
        calls.push(`${bare.name} stores`);
        return bare.store(key, bytes, signal);
      },
    });
    const bare = ['a', 'b'].map((name) => new HostTier({ identity: suiteIdentity, maxBytes: 1e6, name }));
    let goOn = (): void => undefined;
    const whenLoaded = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    const tiers = bare.map((tier) => logged(tier, whenLoaded));
    const { stack, whenWritten } = newStack(9, tiers, { clock: time, timers: time, pace });
    bare[0]!.storeNow(suiteKey('old'), suiteBytes(suiteKey('old')));
    const loading = loads(stack, 'old');
    while (calls.length === 0) await nextTurn();
    for (const i of [1, 2, 3]) expect(await put(stack, i)).toBe('stored');
    time.advance(1_000);
    await nextTurn();
    expect(calls).toEqual(['a loads']);
    goOn();
    expect(await loading).toBe('a');
    time.advance(100);
    await whenWritten();
    for (const { name } of bare) expect(calls.filter((call) => call === `${name} stores`)).toHaveLength(3);
    expect(calls).toHaveLength(7);
    await stack.close();
  });

  it('maps memory of host memory ahead after it opens and after a store, and not after it is closed', async () => {
    const time = new ManualTime();
    const mapped: number[] = [];
    const memoryAhead = new MemoryAhead<Uint8Array>({
      nextPiece: () => (mapped.length % 2 === 0 ? new Uint8Array(1) : undefined),
      map: (piece) => {
        mapped.push(piece.length);
        return Promise.resolve(true);
      },
      isBusy: () => false,
      timers: time,
    });
    const { stack } = newStack(9, [], { memoryAhead });
    time.advance(100);
    await nextTurn();
    expect(mapped).toEqual([1]);
    mapped.push(0);
    await put(stack, 1);
    time.advance(100);
    await nextTurn();
    expect(mapped).toEqual([1, 0, 1]);
    mapped.push(0);
    await put(stack, 2);
    await stack.close();
    time.advance(100);
    expect(mapped).toEqual([1, 0, 1, 0]);
  });

  /** The stores of this tier take `storeMs`. */
  const slow = (bare: Tier, time: ManualTime, storeMs: number): Tier => ({
    name: bare.name,
    has: (keys, signal) => bare.has(keys, signal),
    load: (key, into, signal) => bare.load(key, into, signal),
    store: async (key, bytes, signal) => {
      await new Promise<void>((resolve) => void time.after(storeMs, resolve));
      return bare.store(key, bytes, signal);
    },
    delete: (key) => bare.delete(key),
    takeEvicted: () => bare.takeEvicted(),
    counters: () => bare.counters(),
    levels: () => bare.levels?.() ?? {},
    close: () => Promise.resolve(),
  });

  it.each([
    ['all blocks if each takes less than the limit', 400, 5],
    ['blocks for a few seconds at most', 499, 8],
    ['no block that takes much longer', 2000, 0],
  ])('a close waits for blocks to be written, as long as there is progress: %s', async (_, storeMs, written) => {
    const time = new ManualTime();
    const bare = new HostTier({ identity: suiteIdentity, maxBytes: 100 * storedBlockBytes, name: 'slow' });
    const { stack } = newStack(20, [slow(bare, time, storeMs)], {
      clock: time,
      timers: time,
      closeTimeoutMs: 500,
      storesAtOnce: 1,
    });
    for (let i = 0; i < (storeMs === 400 ? 5 : 20); i++) expect(await put(stack, i)).toBe('stored');
    let isClosed = false;
    const closing = stack.close().then(() => {
      isClosed = true;
    });
    for (let turns = 0; !isClosed && turns < 10_000; turns++) {
      await nextTurn();
      time.advance(1);
    }
    await closing;
    const stored = await bare.has(
      Array.from({ length: 20 }, (_, i) => suiteKey(i)),
      open,
    );
    expect(stored.filter(Boolean)).toHaveLength(written);
  });
});
