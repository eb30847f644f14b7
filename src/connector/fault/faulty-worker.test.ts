/** The faults around the worker side of a connector without a tier, with time that passes only by hand. */
import { beforeEach, expect, it } from 'vitest';
import { ManualTime } from '../../../test/support/manual-time.ts';
import { until } from '../../../test/support/until.ts';
import { blockedThreadCount } from '../../base/call-thread.ts';
import { blockId, blockIndex, groupIndex, requestId } from '../../core/ids.ts';
import {
  type ConnectorMetadata,
  type ConnectorOutput,
  emptyMetadata,
  type LoadJob,
  type LoadMode,
  type SaveJob,
  type TransferId,
} from '../connector.ts';
import { HostTier } from '../tier/host/tier-host.ts';
import { suiteBlockBytes, suiteBytes, suiteIdentity, suiteKey } from '../tier/tier.suite.ts';
import { TierWorker } from '../tier/tier-worker.ts';
import { stepWithConnector } from '../transfer/worker-step.ts';
import { type FaultRule, faultRule } from './fault-rules.ts';
import { FaultyWorker } from './faulty-worker.ts';

const signal = new AbortController().signal;
// Threads of other test files may be about to return.
beforeEach(() => until(() => blockedThreadCount() === 0));

const turns = async (): Promise<void> => {
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
};

/** A side that keeps blocks 0 to 9 of its store, and a pool of 32 blocks. Block n of the pool has the key n. */
async function make(...rules: readonly (Pick<FaultRule, 'fault'> & Partial<FaultRule>)[]) {
  const time = new ManualTime();
  const host = new HostTier({ identity: suiteIdentity, maxBytes: 1e9 });
  for (let n = 0; n < 10; n++) await host.store(suiteKey(n), suiteBytes(suiteKey(n)), signal);
  let wakes = 0;
  const context = { clock: time, timers: time, wake: () => void wakes++, identity: suiteIdentity };
  const inner = new TierWorker(host, context, {
    loadsAtOnce: 4,
    savesAtOnce: 2,
    saveBufferBytes: 1e6,
    saveTimeoutMs: 1000,
  });
  const seen: ConnectorMetadata[] = [];
  const bind = inner.bindConnectorMetadata.bind(inner);
  inner.bindConnectorMetadata = (metadata) => {
    seen.push(metadata);
    bind(metadata);
  };
  const side = new FaultyWorker(inner, context, { seed: 1, rules: rules.map(faultRule) });
  const pool = new Uint8Array(32 * suiteBlockBytes);
  const bytesOf = (n: number) => pool.subarray(n * suiteBlockBytes, (n + 1) * suiteBlockBytes);
  side.registerKvCaches({ blockCount: 32, blockBytes: suiteBlockBytes, bytesOf });
  let serial = 0;
  const step = async (metadata: Partial<ConnectorMetadata> = {}, hasTokens = false): Promise<ConnectorOutput> => {
    const forward = hasTokens ? () => Promise.resolve() : undefined;
    const { output } = await stepWithConnector(side, { ...emptyMetadata, ...metadata }, 2, forward);
    side.checkInvariants();
    await turns();
    return output;
  };
  const load = (names: readonly number[], mode: LoadMode = 'async'): LoadJob => ({
    transfer: ++serial as TransferId,
    requestId: requestId('r'),
    mode,
    timeoutMs: 100,
    blocks: names.map((n) => ({
      group: groupIndex(0),
      index: blockIndex(n),
      key: suiteKey(n),
      block: blockId(n),
      place: 'host',
    })),
  });
  const save = (names: readonly number[]): SaveJob => ({
    transfer: ++serial as TransferId,
    blocks: names.map((n) => ({ key: suiteKey(n), block: blockId(n) })),
  });
  /** What of the block is in the pool: its bytes, bytes of a fault, or nothing. */
  const content = (n: number): string => {
    const bytes = bytesOf(n);
    if (Buffer.compare(bytes, suiteBytes(suiteKey(n))) === 0) return 'right';
    return bytes.includes(0x5a) ? 'damaged' : bytes.every((byte) => byte === 0) ? 'untouched' : 'else';
  };
  const innerBlocks = (): number[] =>
    seen.flatMap(({ loads }) => loads.flatMap(({ blocks }) => blocks.map(({ block }) => block as number)));
  return { time, host, side, step, load, save, content, innerBlocks, wakes: () => wakes };
}

it.each([
  ['missing', 'missing', 'untouched'],
  ['truncated', 'truncated', 'damaged'],
  ['bitFlip', 'corrupt', 'damaged'],
  ['wrongModel', 'wrongModel', 'damaged'],
  ['partial', 'storeFailed', 'damaged'],
  ['error', 'storeFailed', 'untouched'],
  ['full', 'storeFailed', 'untouched'],
] as const)(
  '%s: the block fails as if the store had this fault, and the others are loaded',
  async (fault, reason, bytes) => {
    for (const mode of ['async', 'sync'] as const) {
      const { step, load, content, innerBlocks, side } = await make({ fault, blocks: [1] });
      const job = load([0, 1, 2], mode);
      const outputs = [await step({ loads: [job] }, true), await step()];
      const failures = outputs.flatMap(({ loadFailures }) => loadFailures);
      expect(failures).toEqual([{ transfer: job.transfer, block: 1, reason, isBlockBusy: false }]);
      expect(outputs.flatMap(({ finishedRecving }) => finishedRecving)).toEqual([job.transfer]);
      expect(outputs.flatMap(({ drained }) => drained)).toEqual([job.transfer]);
      // The failure of a sync load is known in its own step, and no block arrives that fails later.
      if (mode === 'sync') expect(outputs[0]!.finishedRecving).toEqual([job.transfer]);
      expect(outputs.flatMap(({ arrived = [] }) => arrived)).toEqual([]);
      expect([0, 1, 2].map(content)).toEqual(['right', bytes, 'right']);
      expect(innerBlocks()).toEqual([0, 2]);
      expect(outputs[0]!.counters[`injected.${fault}`]).toBe(1);
      expect(await side.shutdown({ timeoutMs: 0 })).toEqual({ drained: true });
    }
  },
);

it('a load whose blocks all fail is decided and drained, and the connector inside never sees it', async () => {
  const { step, load, innerBlocks } = await make({ fault: 'missing' });
  const job = load([0, 1]);
  await step({ loads: [job] });
  expect(await step()).toMatchObject({ finishedRecving: [job.transfer], drained: [job.transfer] });
  expect(innerBlocks()).toEqual([]);
});

it('slow: the block counts as loaded after its delay; a sync step waits for it', async () => {
  const { time, step, load, wakes } = await make({ fault: 'slow', blocks: [1], delayMs: 50 });
  const job = load([0, 1]);
  expect(await step({ loads: [job] })).toMatchObject({ finishedRecving: [] });
  expect(await step()).toMatchObject({ finishedRecving: [], drained: [] });
  const before = wakes();
  time.advance(50);
  await turns();
  expect(wakes()).toBeGreaterThan(before);
  expect(await step()).toMatchObject({ finishedRecving: [job.transfer], drained: [job.transfer], loadFailures: [] });
  const sync = load([0, 1], 'sync');
  let isOver = false;
  const running = step({ loads: [sync] }, true).finally(() => (isOver = true));
  await turns();
  expect(isOver).toBe(false);
  time.advance(50);
  expect(await running).toMatchObject({ finishedRecving: [sync.transfer], loadFailures: [] });
});

it('slow beyond the deadline: the block has failed and nothing writes it', async () => {
  const { time, step, load } = await make({ fault: 'slow', blocks: [1], delayMs: 500 });
  const job = load([0, 1]);
  await step({ loads: [job] });
  await step();
  time.advance(100);
  await turns();
  expect(await step()).toMatchObject({
    finishedRecving: [job.transfer],
    drained: [job.transfer],
    loadFailures: [{ transfer: job.transfer, block: 1, reason: 'timedOut', isBlockBusy: false }],
  });
  expect(time.pending).toBe(0);
});

it.each(['async', 'sync'] as const)(
  'late, %s: the block is busy after the deadline, is written later, and only then the load is drained',
  async (mode) => {
    const { time, step, load, content } = await make({ fault: 'late', blocks: [1], delayMs: 500 });
    const job = load([0, 1], mode);
    const running = step({ loads: [job] }, mode === 'sync');
    await turns();
    time.advance(100);
    await turns();
    const outputs = [await running, await step()];
    expect(outputs.flatMap(({ finishedRecving }) => finishedRecving)).toEqual([job.transfer]);
    expect(outputs.flatMap(({ drained }) => drained)).toEqual([]);
    expect(outputs.flatMap(({ loadFailures }) => loadFailures)).toEqual([
      { transfer: job.transfer, block: 1, reason: 'timedOut', isBlockBusy: true },
    ]);
    expect(content(1)).toBe('right');
    time.advance(400);
    await turns();
    expect(content(1)).toBe('damaged');
    expect(await step()).toMatchObject({ finishedRecving: [], drained: [job.transfer], loadFailures: [] });
  },
);

it('late within the deadline: the block is loaded', async () => {
  const { time, step, load, content } = await make({ fault: 'late', delayMs: 50 });
  const job = load([0, 1]);
  await step({ loads: [job] });
  time.advance(50);
  await turns();
  expect(await step()).toMatchObject({ finishedRecving: [job.transfer], drained: [job.transfer], loadFailures: [] });
  expect([0, 1].map(content)).toEqual(['right', 'right']);
});

it('hung: a thread is blocked until the deadline or the cancellation; with ignoresAbort until the release', async () => {
  const { time, step, load, side } = await make(
    { fault: 'hung', blocks: [1] },
    { fault: 'hung', blocks: [2], ignoresAbort: true },
  );
  const job = load([0, 1]);
  await step({ loads: [job] });
  expect(blockedThreadCount()).toBe(1);
  time.advance(100);
  await turns();
  expect(await step()).toMatchObject({
    finishedRecving: [job.transfer],
    drained: [job.transfer],
    loadFailures: [{ block: 1, reason: 'timedOut', isBlockBusy: false }],
  });
  await until(() => blockedThreadCount() === 0);
  const cancelled = load([0, 2]);
  await step({ loads: [cancelled] });
  const output = await step({ cancelled: [cancelled.transfer] });
  expect(output).toMatchObject({
    finishedRecving: [cancelled.transfer],
    drained: [],
    loadFailures: [{ block: 2, reason: 'cancelled', isBlockBusy: true }],
  });
  expect(blockedThreadCount()).toBe(1);
  expect(await step()).toMatchObject({ drained: [] });
  side.releaseHung();
  await turns();
  expect(await step()).toMatchObject({ finishedRecving: [], drained: [cancelled.transfer] });
  await until(() => blockedThreadCount() === 0);
});

it('shutdown ends loads that are slow, and reports a load that ignores it', async () => {
  const slow = await make({ fault: 'slow', delayMs: 1e6 });
  await slow.step({ loads: [slow.load([0])] });
  expect(await slow.side.shutdown({ timeoutMs: 1000 })).toEqual({ drained: true });
  const hung = await make({ fault: 'hung', ignoresAbort: true });
  await hung.step({ loads: [hung.load([0])] });
  const shutdown = hung.side.shutdown({ timeoutMs: 1000 });
  await turns();
  hung.time.advance(1000);
  expect(await shutdown).toEqual({ drained: false });
  expect(blockedThreadCount()).toBe(0);
});

it('duplicate: the block is loaded, and the load ends once', async () => {
  const { step, load, innerBlocks } = await make({ fault: 'duplicate', blocks: [1] });
  const job = load([0, 1]);
  const outputs = [await step({ loads: [job] }), await step(), await step()];
  expect(outputs.flatMap(({ finishedRecving }) => finishedRecving)).toEqual([job.transfer]);
  expect(outputs.flatMap(({ loadFailures }) => loadFailures)).toEqual([]);
  expect(innerBlocks()).toEqual([0, 1]);
});

it.each([
  ['missing', undefined],
  ['bitFlip', undefined],
  ['full', 'storeFull'],
  ['error', 'storeFailed'],
] as const)(
  'store, %s: the block is not stored, the save is drained and finished, and a flush does not wait',
  async (fault, reason) => {
    const { step, save, host } = await make({ fault, on: 'store', keys: [suiteKey(21)] });
    const job = save([20, 21]);
    const outputs = [await step({ saves: [job], jobsToFlush: [job.transfer] }), await step(), await step()];
    expect(outputs.flatMap(({ drained }) => drained)).toEqual([job.transfer]);
    expect(outputs.flatMap(({ finishedSending }) => finishedSending)).toEqual([job.transfer]);
    expect(outputs.flatMap(({ saveFailures }) => saveFailures.map((failure) => failure.reason))).toEqual(
      reason === undefined ? [] : [reason],
    );
    expect([20, 21].map((n) => host.holds(suiteKey(n)))).toEqual([true, false]);
  },
);

it.each([
  ['slow', 50, [], [true, true]],
  ['hung', 30_000, ['timedOut'], [true, false]],
] as const)(
  'store, %s: the blocks are not pinned, and the result comes after the delay',
  async (fault, ms, failed, kept) => {
    const { time, step, save, host } = await make({ fault, on: 'store', keys: [suiteKey(21)], delayMs: 50 });
    const job = save([20, 21]);
    const outputs = [await step({ saves: [job] }), await step(), await step()];
    expect(outputs.flatMap(({ drained }) => drained)).toEqual([job.transfer]);
    expect(outputs.flatMap(({ finishedSending }) => finishedSending)).toEqual([]);
    expect(blockedThreadCount()).toBe(fault === 'hung' ? 1 : 0);
    time.advance(ms);
    await turns();
    const output = await step();
    expect(output).toMatchObject({ finishedSending: [job.transfer], drained: [] });
    expect(output.saveFailures.map(({ reason }) => reason)).toEqual(failed);
    expect([20, 21].map((n) => host.holds(suiteKey(n)))).toEqual(kept);
    await until(() => blockedThreadCount() === 0);
  },
);
