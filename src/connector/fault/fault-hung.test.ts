/** Fault injection `hung`: a thread is blocked in a read from a FIFO, a thread of the tier if it has some. */
import { existsSync, mkdtempSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { ManualTime } from '../../../test/support/manual-time.ts';
import { until } from '../../../test/support/until.ts';
import { blockedThreadCount } from '../../base/call-thread.ts';
import { blockId, blockIndex, groupIndex, requestId } from '../../core/ids.ts';
import { type ConnectorMetadata, type ConnectorOutput, emptyMetadata, type TransferId } from '../connector.ts';
import { newStack } from '../offloading/stack-under-test.suite.ts';
import { DiskTier } from '../tier/disk/tier-disk.ts';
import { HostTier } from '../tier/host/tier-host.ts';
import { suiteBlockBytes, suiteBytes, suiteIdentity, suiteKey } from '../tier/tier.suite.ts';
import { TierWorker } from '../tier/tier-worker.ts';
import { stepWithConnector } from '../transfer/worker-step.ts';
import { FaultInjector } from './fault-injector.ts';
import { type FaultRule, faultRule } from './fault-rules.ts';

const root = mkdtempSync(join(tmpdir(), 'kvasir-hung-'));
afterAll(() => rmSync(root, { recursive: true }));
let serial = 0;
const signal = new AbortController().signal;

async function make(rules: readonly FaultRule[]) {
  const time = new ManualTime();
  const disk = await DiskTier.open({
    root: join(root, `${serial++}`),
    identity: suiteIdentity,
    maxBytes: 1e9,
    threads: 2,
  });
  for (let i = 0; i < 8; i++) await disk.store(suiteKey(i), suiteBytes(suiteKey(i)), signal);
  const tier = new FaultInjector(disk, { identity: suiteIdentity, timers: time, plan: { seed: 1, rules } });
  const load = (name: number, until = signal) => {
    const block = new Uint8Array(suiteBlockBytes);
    return { block, reason: tier.load(suiteKey(name), block, until) };
  };
  return { time, disk, tier, load };
}

/** The folders of FIFOs of this process. */
const hungFolders = (): string[] =>
  readdirSync(tmpdir()).filter((name) => name.startsWith(`kvasir-hung-${process.pid}-`));

/** Whether a thread has opened a FIFO beside the injector. Only Linux shows it. */
const isRead = (fifo: string): boolean =>
  !existsSync('/proc/self/fd') || openFiles().filter((path) => path === fifo).length === 2;
const openFiles = (): string[] =>
  readdirSync('/proc/self/fd').map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return '';
    }
  });

it('a hung load blocks a thread of the tier, and ends when the signal is aborted', async () => {
  const { disk, tier, load } = await make([faultRule({ fault: 'hung', limit: 1 })]);
  const controller = new AbortController();
  const { block, reason } = load(1, controller.signal);
  await until(() => disk.busyCount === 1);
  controller.abort(new Error('the deadline'));
  await expect(reason).rejects.toThrow('the deadline');
  expect(disk.stuckCount).toBe(1);
  expect(blockedThreadCount()).toBe(1);
  // The rule has reached its limit: the same block loads, and the call of the stuck thread returns.
  const again = load(1);
  expect(await again.reason).toBeUndefined();
  expect(again.block).toEqual(suiteBytes(suiteKey(1)));
  await until(() => disk.stuckCount === 0);
  expect(block).toEqual(new Uint8Array(suiteBlockBytes));
  await tier.close();
  expect(hungFolders()).toEqual([]);
});

it('with ignoresAbort, the load ends when it is released, after its thread was given up', async () => {
  const { disk, tier, load } = await make([faultRule({ fault: 'hung', ignoresAbort: true, limit: 1 })]);
  const controller = new AbortController();
  const { reason } = load(1, controller.signal);
  let isOver = false;
  reason.catch(() => (isOver = true));
  await until(() => disk.busyCount === 1);
  controller.abort();
  await until(() => disk.stuckCount === 1);
  expect(await load(2).reason).toBeUndefined();
  expect(isOver).toBe(false);
  tier.releaseHung();
  await until(() => isOver);
  expect(await load(1).reason).toBeUndefined();
  await tier.close();
});

it.each(['has', 'store'] as const)('a hung %s blocks a thread of the tier too', async (on) => {
  const { disk, tier } = await make([faultRule({ fault: 'hung', on, keys: [suiteKey(1), suiteKey(2)], limit: 2 })]);
  const controller = new AbortController();
  const call = (): Promise<unknown> =>
    on === 'has'
      ? tier.has([suiteKey(0), suiteKey(1), suiteKey(2)], controller.signal)
      : tier.store(suiteKey(1), suiteBytes(suiteKey(1)), controller.signal);
  const first = call();
  await until(() => hungFolders().length === 1 && disk.busyCount === 1);
  controller.abort(new Error('the deadline'));
  if (on === 'has') expect(await first).toEqual([true, undefined, undefined]);
  else await expect(first).rejects.toThrow('the deadline');
  expect([disk.stuckCount, blockedThreadCount()]).toEqual([1, 1]);
  tier.releaseHung();
  await until(() => disk.stuckCount === 0);
  await tier.close();
});

it('calls that hang use up the threads of the tier, and then all its calls fail until it answers again', async () => {
  const { disk, tier, load } = await make([faultRule({ fault: 'hung', limit: 16 })]);
  for (let i = 0; i < 16; i++) {
    const controller = new AbortController();
    const { reason } = load(i % 8, controller.signal);
    await until(() => disk.busyCount === 1);
    controller.abort(new Error('the deadline'));
    await expect(reason).rejects.toThrow('the deadline');
  }
  expect(disk.stuckCount).toBe(16);
  await expect(tier.has([suiteKey(0)], signal)).rejects.toMatchObject({ code: 'KVASIR_TIER_FAILED' });
  tier.releaseHung();
  await until(() => disk.stuckCount === 0);
  expect(await load(0).reason).toBeUndefined();
  await tier.close();
});

it('close releases a load that hangs without an abort', async () => {
  const { disk, tier, load } = await make([faultRule({ fault: 'hung' })]);
  const { reason } = load(3);
  await until(() => disk.busyCount === 1);
  const end = expect(reason).rejects.toMatchObject({ code: 'KVASIR_TIER_FAILED' });
  await tier.close();
  await end;
  expect(blockedThreadCount()).toBe(0);
  expect(hungFolders()).toEqual([]);
});

it.each(['has', 'load', 'store'] as const)(
  'a tier without threads: a hung %s blocks a thread of the injector until the last one ends',
  async (on) => {
    const host = new HostTier({ identity: suiteIdentity, maxBytes: 1e9 });
    const rules = [faultRule({ fault: 'hung', on })];
    const tier = new FaultInjector(host, {
      identity: suiteIdentity,
      timers: new ManualTime(),
      plan: { seed: 1, rules },
    });
    const calls = [0, 1].map((name) => {
      const controller = new AbortController();
      const [key, block] = [suiteKey(name), suiteBytes(suiteKey(name))];
      const settled: Promise<unknown> =
        on === 'has' ? tier.has([key], controller.signal) : tier[on](key, block, controller.signal);
      return { controller, settled: settled.catch((error: Error) => error.message) };
    });
    await until(() => hungFolders().length === 1);
    const folder = join(tmpdir(), hungFolders()[0]!);
    const [fifo] = readdirSync(folder);
    await until(() => isRead(join(folder, fifo!)));
    expect(blockedThreadCount()).toBe(1);
    calls[0]!.controller.abort(new Error('the deadline'));
    expect(await calls[0]!.settled).toEqual(on === 'has' ? [undefined] : 'the deadline');
    expect(blockedThreadCount()).toBe(1);
    calls[1]!.controller.abort(new Error('the deadline'));
    await calls[1]!.settled;
    await until(() => blockedThreadCount() === 0);
    await tier.close();
    expect(hungFolders()).toEqual([]);
  },
);

it.each(['load', 'store'] as const)('a disk below host memory: a hung %s blocks a thread of the disk', async (on) => {
  const { disk, tier: unused, time } = await make([]);
  const { stack } = newStack(8, [disk], { closeTimeoutMs: 1000 });
  const plan = { seed: 1, rules: [faultRule({ fault: 'hung', on, limit: 1 })] };
  const tier = new FaultInjector(stack, { identity: suiteIdentity, timers: time, plan });
  const controller = new AbortController();
  const call = tier[on](suiteKey(1), suiteBytes(suiteKey(1)), controller.signal);
  await until(() => disk.busyCount === 1);
  controller.abort(new Error('the deadline'));
  await expect(call).rejects.toThrow('the deadline');
  expect([disk.stuckCount, blockedThreadCount()]).toEqual([1, 1]);
  await tier.close();
  await unused.close();
  await until(() => blockedThreadCount() === 0);
});

it('hung reads open the breaker; after the limit of the rule, the breaker closes and the blocks load', async () => {
  const { time, disk, tier } = await make([faultRule({ fault: 'hung', limit: 3 })]);
  const side = new TierWorker(
    tier,
    { clock: time, timers: time, wake: () => undefined, identity: suiteIdentity },
    {
      loadsAtOnce: 4,
      savesAtOnce: 1,
      saveBufferBytes: 0,
      saveTimeoutMs: 1000,
      breaker: { failuresMax: 3, coolDownMs: 1000, coolDownMaxMs: 8000 },
    },
  );
  const pool = new Uint8Array(8 * suiteBlockBytes);
  const block = (n: number) => pool.subarray(n * suiteBlockBytes, (n + 1) * suiteBlockBytes);
  side.registerKvCaches({ blockCount: 8, blockBytes: suiteBlockBytes, bytesOf: block });
  const step = (metadata: Partial<ConnectorMetadata> = {}) =>
    stepWithConnector(side, { ...emptyMetadata, ...metadata }, 2, undefined).then(({ output }) => output);
  let transfer = 0;
  const load = async (names: readonly number[], meanwhile = () => Promise.resolve()) => {
    const id = ++transfer as TransferId;
    const blocks = names.map((n) => ({
      group: groupIndex(0),
      index: blockIndex(n),
      key: suiteKey(n),
      block: blockId(n),
      place: 'disk',
    }));
    const outputs: ConnectorOutput[] = [];
    outputs.push(
      await step({ loads: [{ transfer: id, requestId: requestId('r'), mode: 'async', timeoutMs: 100, blocks }] }),
    );
    await meanwhile();
    while (!outputs.some(({ drained }) => drained.includes(id))) {
      outputs.push(await step());
      await new Promise((resolve) => setImmediate(resolve));
    }
    return outputs.flatMap(({ loadFailures }) => loadFailures.map(({ reason }) => reason));
  };
  const timeOut = async (): Promise<void> => {
    await until(() => disk.busyCount === 2);
    time.advance(100);
  };
  expect(await load([0, 1, 2], timeOut)).toEqual(['timedOut', 'timedOut', 'timedOut']);
  expect(disk.stuckCount).toBeGreaterThan(0);
  expect(await load([3])).toEqual(['storeDown']);
  time.advance(1000);
  // The probe reads a block whose file hung.
  expect(await load([0])).toEqual([]);
  expect(await load([1, 2, 3])).toEqual([]);
  for (const n of [0, 1, 2, 3]) expect(block(n)).toEqual(suiteBytes(suiteKey(n)));
  await until(() => disk.stuckCount === 0);
  expect(await side.shutdown({ timeoutMs: 1000 })).toEqual({ drained: true });
});
