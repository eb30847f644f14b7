import { describe, expect, test } from 'vitest';
import { ManualTime } from '../../../test/support/manual-time.ts';
import { blockId, blockIndex, groupIndex, requestId } from '../../core/ids.ts';
import type { ConnectorMetadata, LoadJob, SaveJob, TransferId } from '../connector.ts';
import { emptyMetadata } from '../connector.ts';
import { namedCounts } from '../connector-stats.ts';
import { FaultInjector } from '../fault/fault-injector.ts';
import { type FaultRule, faultRule } from '../fault/fault-rules.ts';
import { stepWithConnector } from '../transfer/worker-step.ts';
import { HostTier } from './host/tier-host.ts';
import { suiteBlockBytes, suiteBytes, suiteIdentity, suiteKey } from './tier.suite.ts';
import { TierWorker } from './tier-worker.ts';

const signal = new AbortController().signal;
const blockCount = 40;

/** A worker side over a tier in memory, with time that the test advances. */
async function make(rules: readonly FaultRule[] = [], saveBufferBlocks: number | 'none' = 8, loadsAtOnce = 4) {
  const time = new ManualTime();
  const host = new HostTier({ identity: suiteIdentity, maxBytes: 1e9 });
  for (let i = 0; i < 20; i++) await host.store(suiteKey(i), suiteBytes(suiteKey(i)), signal);
  const tier = new FaultInjector(host, { identity: suiteIdentity, timers: time, plan: { seed: 1, rules } });
  let wakeups = 0;
  const side = new TierWorker(
    tier,
    { clock: time, timers: time, wake: () => wakeups++, identity: suiteIdentity },
    {
      loadsAtOnce,
      savesAtOnce: 1,
      ...(saveBufferBlocks === 'none' ? {} : { saveBufferBytes: saveBufferBlocks * suiteBlockBytes }),
      saveTimeoutMs: 1000,
      breaker: { failuresMax: 3, coolDownMs: 1000, coolDownMaxMs: 8000 },
    },
  );
  const pool = new Uint8Array(blockCount * suiteBlockBytes);
  const block = (n: number) => pool.subarray(n * suiteBlockBytes, (n + 1) * suiteBlockBytes);
  side.registerKvCaches({ blockCount, blockBytes: suiteBlockBytes, bytesOf: block });
  let lastId = 0;
  const load = (blocks: readonly number[], mode: LoadJob['mode'] = 'async'): LoadJob => ({
    transfer: ++lastId as TransferId,
    requestId: requestId('r'),
    mode,
    timeoutMs: 100,
    blocks: blocks.map((n) => ({
      group: groupIndex(0),
      index: blockIndex(n),
      key: suiteKey(n),
      block: blockId(n),
      place: 'host',
    })),
  });
  const save = (blocks: readonly number[]): SaveJob => ({
    transfer: ++lastId as TransferId,
    blocks: blocks.map((n) => ({ key: suiteKey(n), block: blockId(n) })),
  });
  const counters: Record<string, number> = {};
  const step = async (metadata: Partial<ConnectorMetadata> = {}, forward?: () => Promise<void>) => {
    const { output } = await stepWithConnector(side, { ...emptyMetadata, ...metadata }, 2, forward);
    await turns();
    side.checkInvariants();
    for (const [name, count] of Object.entries(namedCounts(output.stats ?? {})))
      counters[name] = (counters[name] ?? 0) + count;
    return output;
  };
  return { counters, time, host, tier, side, block, load, save, step, wakeups: () => wakeups };
}

const turns = async (): Promise<void> => {
  for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
};

test('20 loads at once cause no warning of a listener leak', async () => {
  const warnings: Error[] = [];
  const onWarning = (warning: Error): void => void warnings.push(warning);
  process.on('warning', onWarning);
  try {
    const { load, step } = await make([], 8, 16);
    const blocks = Array.from({ length: 20 }, (_, i) => i);
    await step({ loads: [load(blocks)] });
    expect(warnings).toEqual([]);
  } finally {
    process.off('warning', onWarning);
  }
});

test('a sync load is decided before the forward pass, which gets the failed blocks', async () => {
  const { side, load, block } = await make([faultRule({ fault: 'missing', blocks: [2] })]);
  const job = load([1, 2], 'sync');
  let seen: readonly number[] = [];
  const { output } = await stepWithConnector(side, { ...emptyMetadata, loads: [job] }, 2, (failures) => {
    seen = failures.map((failure) => failure.block);
    expect(block(1)).toEqual(suiteBytes(suiteKey(1)));
    return Promise.resolve();
  });
  expect(seen).toEqual([2]);
  expect(output).toMatchObject({
    finishedRecving: [job.transfer],
    drained: [job.transfer],
    loadFailures: [{ transfer: job.transfer, block: 2, reason: 'missing', isBlockBusy: false }],
  });
});

test('an async load wakes the engine when it ends', async () => {
  const { load, step, wakeups } = await make();
  const job = load([1, 2, 3]);
  expect((await step({ loads: [job] })).finishedRecving).toEqual([]);
  expect(wakeups()).toBeGreaterThan(0);
  expect(await step()).toMatchObject({ finishedRecving: [job.transfer], drained: [job.transfer], loadFailures: [] });
});

test('what a tier did in the background is reported after 90 ms, or with the next transfer that ends', async () => {
  const { counters, host, load, step, time } = await make();
  const storeOther = (n: number) => host.store(suiteKey(n), suiteBytes(suiteKey(n)), signal);
  await step();
  const before = counters['tier.stored'];
  await storeOther(100);
  await step();
  expect(counters['tier.stored']).toBe(before);
  time.advance(90);
  await step();
  expect(counters['tier.stored']).toBe(before! + 1);
  await storeOther(101);
  await step({ loads: [load([1])] });
  expect(counters['tier.stored']).toBe(before! + 1);
  await step();
  expect(counters['tier.stored']).toBe(before! + 2);
});

test('a cancelled load is decided at once, and a flush of an unknown save is ignored', async () => {
  const { load, step } = await make([faultRule({ fault: 'hung' })]);
  const job = load([1]);
  await step({ loads: [job] });
  const cancelled = await step({ cancelled: [job.transfer], jobsToFlush: [99 as TransferId] });
  expect(cancelled).toMatchObject({
    finishedRecving: [job.transfer],
    drained: [],
    loadFailures: [{ transfer: job.transfer, block: 1, reason: 'cancelled', isBlockBusy: true }],
  });
  expect(await step()).toMatchObject({ finishedRecving: [], drained: [job.transfer] });
});

test('a store that hangs opens the breaker: later loads fail at once, until a probe succeeds', async () => {
  const { time, load, step, counters } = await make([faultRule({ fault: 'hung', limit: 4 })]);
  const hung = load([0, 1, 2, 3]);
  await step({ loads: [hung] });
  time.advance(100);
  await turns();
  expect((await step()).loadFailures.map(({ reason }) => reason)).toEqual(new Array(4).fill('timedOut'));
  const refused = load([4, 5]);
  await step({ loads: [refused] });
  expect((await step()).loadFailures.map(({ reason }) => reason)).toEqual(['storeDown', 'storeDown']);
  expect(counters).toMatchObject({ 'breakerOpened.load': 1, 'now.breakerOpen.load': 1, 'tier.injected.hung': 4 });
  expect(counters['breakerOpened.save']).toBeUndefined();
  time.advance(1000);
  const probing = load([6]);
  await step({ loads: [probing] });
  expect(await step()).toMatchObject({ finishedRecving: [probing.transfer], loadFailures: [] });
  const all = load([7, 8, 9, 10]);
  await step({ loads: [all] });
  expect(await step()).toMatchObject({ finishedRecving: [all.transfer], loadFailures: [] });
  expect(counters).toMatchObject({
    'breakerOpened.load': 1,
    'now.breakerOpen.load': 0,
    'tier.loaded': 5,
    'now.blocks': 20,
  });
});

test('missing and corrupt blocks do not open the breaker', async () => {
  const { load, step } = await make([
    faultRule({ fault: 'bitFlip', probability: 0.5 }),
    faultRule({ fault: 'missing' }),
  ]);
  for (let i = 0; i < 4; i++) {
    await step({ loads: [load([0, 1, 2, 3].map((n) => n + 4 * i))] });
    const reasons = (await step()).loadFailures.map(({ reason }) => reason);
    expect(reasons).toHaveLength(4);
    expect(reasons).not.toContain('storeDown');
  }
});

test('a save is drained when its blocks are copied, and blocks that do not fit into the buffer are dropped', async () => {
  const rules = [faultRule({ fault: 'slow', on: 'store', delayMs: 10 })];
  const { time, side, host, save, step, block } = await make(rules, 3);
  for (const n of [30, 31, 32, 33, 34]) block(n).set(suiteBytes(suiteKey(n)));
  const job = save([30, 31, 32, 33, 34]);
  expect((await step({ saves: [job] })).drained).toEqual([]);
  const copied = await step();
  expect(copied.drained).toEqual([job.transfer]);
  expect(copied.finishedSending).toEqual([]);
  expect(copied.saveFailures.map(({ key, reason }) => [key, reason])).toEqual([
    [suiteKey(33), 'queueFull'],
    [suiteKey(34), 'queueFull'],
  ]);
  // The engine may write the blocks after the save is drained.
  for (const n of [30, 31, 32]) block(n).fill(0);
  for (let i = 0; i < 3; i++) {
    time.advance(10);
    await turns();
  }
  expect(await step()).toMatchObject({ finishedSending: [job.transfer], saveFailures: [], drained: [] });
  const into = new Uint8Array(suiteBlockBytes);
  for (const n of [30, 31, 32]) {
    expect(await host.load(suiteKey(n), into, signal)).toBeUndefined();
    expect(into).toEqual(suiteBytes(suiteKey(n)));
  }
  // The buffers are free again.
  await step({ saves: [save([35, 36, 37])] });
  expect((await step()).saveFailures).toEqual([]);
  const end = side.shutdown({ timeoutMs: 1000 });
  for (let i = 0; i < 3; i++) {
    time.advance(10);
    await turns();
  }
  expect(await end).toEqual({ drained: true });
});

test('buffers of saves that time out are returned, for waiting and running items', async () => {
  const { time, save, step } = await make([faultRule({ fault: 'hung', on: 'store', limit: 1 })], 3);
  await step({ saves: [save([30, 31, 32])] });
  time.advance(1000);
  await turns();
  const reasons = (await step()).saveFailures.map(({ reason }) => reason);
  expect(reasons).toEqual(['timedOut', 'timedOut', 'timedOut']);
  const again = save([33, 34, 35]);
  await step({ saves: [again] });
  const output = await step();
  expect(output.saveFailures.map(({ reason }) => reason)).not.toContain('queueFull');
  expect(output.finishedSending).toEqual([again.transfer]);
});

test('a shutdown waits for saves, and reports when loads still touch the pool', async () => {
  const { time, side, load, save, step, tier } = await make([faultRule({ fault: 'hung', ignoresAbort: true })]);
  await step({ loads: [load([1])], saves: [save([30])] });
  const end = side.shutdown({ timeoutMs: 500 });
  await turns();
  time.advance(500);
  expect(await end).toEqual({ drained: false });
  expect(await side.shutdown({ timeoutMs: 0 })).toEqual({ drained: false });
  tier.releaseHung();
});

describe.each([
  ['copied blocks', 8],
  ['blocks of the pool', 'none'],
] as const)('saves of %s', (_, saveBufferBlocks) => {
  const stored = async (host: HostTier, n: number) => {
    const into = new Uint8Array(suiteBlockBytes);
    return (await host.load(suiteKey(n), into, signal)) ?? into;
  };

  test('read the pool only after the forward pass was launched', async () => {
    const { host, save, step, block } = await make([], saveBufferBlocks);
    block(30).fill(1);
    const job = save([30]);
    await step({ saves: [job] }, async () => {
      // Runs before the first turn of the event loop, as a runner does that launches its kernels.
      block(30).set(suiteBytes(suiteKey(30)));
      await turns();
    });
    expect(await stored(host, 30)).toEqual(suiteBytes(suiteKey(30)));
  });

  test('read one block in each turn of the event loop', async () => {
    const { host, save, step } = await make([], saveBufferBlocks);
    const counts: number[] = [];
    const job = save([30, 31, 32, 33]);
    await step({ saves: [job] }, async () => {
      while ((host.levels().blocks ?? 0) < 24) {
        await new Promise((resolve) => setImmediate(resolve));
        counts.push((host.levels().blocks ?? 0) - 20);
      }
    });
    expect(counts.length).toBeGreaterThanOrEqual(4);
  });

  test('that a step flushes have read their blocks before the step writes, also those that the step orders', async () => {
    const { side, host, save, step, block } = await make([], saveBufferBlocks);
    for (const n of [30, 31, 32, 33, 34]) block(n).set(suiteBytes(suiteKey(n)));
    const [earlier, now, kept] = [save([30, 31]), save([32, 33]), save([34])];
    // Without a turn of the event loop, so no block of this save is read.
    await stepWithConnector(side, { ...emptyMetadata, saves: [earlier] }, 2, undefined);
    await step({ saves: [now, kept], jobsToFlush: [earlier.transfer, now.transfer] }, async () => {
      for (const n of [30, 31, 32, 33]) block(n).fill(0xff);
    });
    await step();
    for (const n of [30, 31, 32, 33, 34])
      expect(Buffer.compare((await stored(host, n)) as Uint8Array, suiteBytes(suiteKey(n))), `block ${n}`).toBe(0);
  });

  test('that a step flushes may fail, and the step goes on', async () => {
    const rules = [faultRule({ fault: 'error', on: 'store' })];
    const { save, step } = await make(rules, saveBufferBlocks);
    const job = save([30, 31]);
    const output = await step({ saves: [job], jobsToFlush: [job.transfer] }, async () => {});
    const later = await step();
    expect([...output.drained, ...later.drained]).toEqual([job.transfer]);
    expect([...output.saveFailures, ...later.saveFailures].map(({ reason }) => reason)).toEqual([
      'storeFailed',
      'storeFailed',
    ]);
  });
});

test('a flush of a save without copies waits until the tier no longer reads the block', async () => {
  const { time, save, step } = await make([faultRule({ fault: 'slow', on: 'store', delayMs: 50 })], 'none');
  const job = save([30, 31]);
  const first = await step({ saves: [job] });
  expect(first.drained).toEqual([]);
  let hasComputed = false;
  const flushing = step({ jobsToFlush: [job.transfer] }, async () => {
    hasComputed = true;
  });
  await turns();
  expect(hasComputed).toBe(false);
  time.advance(50);
  expect(await flushing).toMatchObject({ drained: [job.transfer], finishedSending: [job.transfer] });
  expect(hasComputed).toBe(true);
});

test('a save that hangs is given up at its deadline, and its block counts as read until the tier lets it go', async () => {
  const rules = [faultRule({ fault: 'hung', on: 'store', ignoresAbort: true })];
  const { time, save, step, side, tier } = await make(rules, 'none');
  const job = save([30]);
  await step({ saves: [job] });
  time.advance(1000);
  await turns();
  const output = await step();
  expect(output).toMatchObject({ finishedSending: [job.transfer], drained: [] });
  expect(output.saveFailures.map(({ reason }) => reason)).toEqual(['timedOut']);
  const end = side.shutdown({ timeoutMs: 500 });
  await turns();
  time.advance(500);
  expect(await end).toEqual({ drained: false });
  tier.releaseHung();
});
