/** Fault injection `hung` on a disk: the block's file is a FIFO, so a thread blocks in the system call `open`. */
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { ManualTime } from '../../../test/support/manual-time.ts';
import { until } from '../../../test/support/until.ts';
import { blockedThreadCount } from '../../base/call-thread.ts';
import { blockId, blockIndex, groupIndex, requestId } from '../../core/ids.ts';
import { type ConnectorMetadata, type ConnectorOutput, emptyMetadata, type TransferId } from '../connector.ts';
import { DiskTier } from '../tier/disk/tier-disk.ts';
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

/** All files in the tier's folder except blocks and the record. */
const leftovers = ({ path }: DiskTier): string[] =>
  readdirSync(path, { recursive: true, encoding: 'utf8' }).filter(
    (name) =>
      !/^([0-9a-f]{2}|config\.json)$/.test(name) && !(name.endsWith('.kv') && statSync(join(path, name)).isFile()),
  );

/** A thread that opens the file late may find the block. */
const ends = ['loaded', 'KVASIR_TIER_FAILED'];
const endOf = (load: Promise<string | undefined>): Promise<unknown> =>
  load.then(
    (reason) => reason ?? 'loaded',
    (error: { code: unknown }) => error.code,
  );

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
  expect(leftovers(disk)).toEqual([]);
  await tier.close();
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

it('close mends the files, also while a load hangs without an abort', async () => {
  const { disk, tier, load } = await make([faultRule({ fault: 'hung' })]);
  const { reason } = load(3);
  await until(() => disk.busyCount === 1);
  expect(leftovers(disk)).toHaveLength(3);
  const end = endOf(reason);
  await tier.close();
  expect(ends).toContain(await end);
  expect(leftovers(disk)).toEqual([]);
  expect(blockedThreadCount()).toBe(0);
});

it('a block that hangs can be deleted, and its reader returns', async () => {
  const { disk, tier, load } = await make([faultRule({ fault: 'hung', limit: 1 })]);
  const controller = new AbortController();
  const { reason } = load(0, controller.signal);
  await until(() => disk.busyCount === 1);
  controller.abort();
  await expect(reason).rejects.toThrow();
  await tier.delete(suiteKey(0));
  await until(() => disk.stuckCount === 0);
  expect(leftovers(disk)).toEqual([]);
  expect(await load(0).reason).toBe('missing');
  await tier.close();
});

it('a process mends the file that a killed process left', async () => {
  const { disk, tier, load } = await make([faultRule({ fault: 'hung' })]);
  const first = load(1);
  await until(() => disk.busyCount === 1);
  // As after SIGKILL: another tier on the folder finds the FIFO.
  const other = await DiskTier.open({ root: join(disk.path, '../..'), identity: suiteIdentity, maxBytes: 1e9 });
  expect(other.hang(suiteKey(1))).toBe(true);
  other.mend(suiteKey(1));
  expect(ends).toContain(await endOf(first.reason));
  const block = new Uint8Array(suiteBlockBytes);
  expect(await other.load(suiteKey(1), block, signal)).toBeUndefined();
  expect(block).toEqual(suiteBytes(suiteKey(1)));
  await other.close();
  await tier.close();
  expect(leftovers(disk)).toEqual([]);
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
  expect(leftovers(disk)).toEqual([]);
});
