/** A pipeline whose second rank has no layer of the second KV group: its blocks are stored and loaded on the first rank only. */
import { describe, expect, it } from 'vitest';
import { ManualTime } from '../../../test/support/manual-time.ts';
import { systemClock } from '../../base/clock.ts';
import { blockId, blockIndex, groupIndex, requestId, tokenCount } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import {
  type ConnectorMetadata,
  type ConnectorRequest,
  emptyMetadata,
  type KvIdentity,
  type LoadBlock,
  type TransferId,
} from '../connector.ts';
import { FaultInjector } from '../fault/fault-injector.ts';
import { faultRule } from '../fault/fault-rules.ts';
import { ledgerBeside } from '../ledger-beside.suite.ts';
import { TierScheduler } from '../places/tier-scheduler.ts';
import { stepWithConnector } from '../transfer/worker-step.ts';
import { hasKvOn } from './blocks-of-rank.ts';
import { HostTier } from './host/tier-host.ts';
import { suiteBlockBytes, suiteBytes, suiteIdentity, suiteKey } from './tier.suite.ts';
import { TierWorker } from './tier-worker.ts';

const [whole, partial]: readonly [KvIdentity, KvIdentity] = [
  { ...suiteIdentity, worldSize: 2 },
  { ...suiteIdentity, worldSize: 2, rank: 1, groups: [suiteIdentity.groups[0]!, { blockSize: 16, layers: [] }] },
];
/** Of the first group, in which both ranks have layers, and of the second group. */
const [a, b] = [suiteKey('a', 0), suiteKey('b', 1)];
const open = new AbortController().signal;
const turns = async (): Promise<void> => {
  for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
};

it('a rank has KV in the blocks of groups with layers on it', () => {
  expect([a, b].map(hasKvOn(whole))).toEqual([true, true]);
  expect([a, b].map(hasKvOn(partial))).toEqual([true, false]);
});

/** The worker side of the rank without layers of the second group. Loads hang if `hangs`. */
function worker({ hangs = false, saveBufferBytes }: { hangs?: boolean; saveBufferBytes?: number } = {}) {
  const time = new ManualTime();
  const host = new HostTier({ identity: partial, maxBytes: 1e6 });
  const rules = hangs ? [faultRule({ fault: 'hung' })] : [];
  const tier = new FaultInjector(host, { identity: partial, timers: time, plan: { seed: 1, rules } });
  const side = new TierWorker(
    tier,
    { clock: time, timers: time, wake: () => undefined, identity: partial },
    {
      loadsAtOnce: 1,
      savesAtOnce: 1,
      saveTimeoutMs: 1000,
      ...(saveBufferBytes === undefined ? {} : { saveBufferBytes }),
    },
  );
  const pool = Array.from({ length: 4 }, (_, block) => new Uint8Array(suiteBlockBytes).fill(block));
  side.registerKvCaches({ blockCount: 4, blockBytes: suiteBlockBytes, bytesOf: (block) => pool[block]! });
  const step = async (metadata: Partial<ConnectorMetadata> = {}) => {
    const { output } = await stepWithConnector(side, { ...emptyMetadata, ...metadata }, 1, undefined);
    await turns();
    side.checkInvariants();
    return output;
  };
  const loadOf = (transfer: number, keys: readonly BlockKey[]) => ({
    transfer: transfer as TransferId,
    requestId: requestId('r'),
    mode: 'async' as const,
    timeoutMs: 100,
    blocks: keys.map(
      (key, i): LoadBlock => ({
        group: groupIndex(key === b ? 1 : 0),
        index: blockIndex(i),
        key,
        block: blockId(i + 1),
        place: 'host',
      }),
    ),
  });
  return { host, time, pool, step, loadOf };
}

describe('the worker side of a rank without layers of a group', () => {
  it('loads nothing for its blocks, which have arrived at once', async () => {
    const { host, pool, step, loadOf } = worker();
    await host.store(a, suiteBytes(a), open);
    const load = loadOf(1, [b, a]);
    expect(await step({ loads: [load] })).toMatchObject({ arrived: [{ transfer: 1, block: 1 }], loadFailures: [] });
    expect(await step()).toMatchObject({ finishedRecving: [1], drained: [1], loadFailures: [] });
    expect(pool[1]).toEqual(new Uint8Array(suiteBlockBytes).fill(1));
    expect(pool[2]).toEqual(suiteBytes(a));
  });

  it('ends a load of only such blocks in its step, also if the store hangs', async () => {
    const { time, step, loadOf } = worker({ hangs: true });
    await step({ loads: [loadOf(1, [a])] });
    expect(await step({ loads: [loadOf(2, [b])] })).toMatchObject({ finishedRecving: [2], drained: [2] });
    time.advance(100);
    await turns();
    // The other block of the group with layers is lost.
    expect(await step()).toMatchObject({ finishedRecving: [1], loadFailures: [{ transfer: 1, reason: 'timedOut' }] });
  });

  it('reports a block of another group that is missing', async () => {
    const { step, loadOf } = worker();
    await step({ loads: [loadOf(1, [b, a])] });
    expect(await step()).toMatchObject({ loadFailures: [{ transfer: 1, block: 2, reason: 'missing' }] });
  });

  it.each([undefined, 2 * suiteBlockBytes])(
    'stores nothing for its blocks, with a buffer of %s bytes',
    async (bytes) => {
      const { host, step } = worker(bytes === undefined ? {} : { saveBufferBytes: bytes });
      const save = (transfer: number, ...keys: BlockKey[]) => ({
        transfer: transfer as TransferId,
        blocks: keys.map((key, i) => ({ key, block: blockId(i + 1) })),
      });
      const { counters } = await step({ saves: [save(1, b), save(2, b, a)] });
      expect(counters.savedBlocks).toBeUndefined();
      await turns();
      const output = await step({ jobsToFlush: [2 as TransferId] });
      expect(output).toMatchObject({ finishedSending: [2], saveFailures: [], stats: { savedBlocks: 1 } });
      expect(await host.has([a, b], open)).toEqual([true, false]);
      const flushed = await step({ saves: [save(3, b)], jobsToFlush: [3 as TransferId] });
      expect(flushed).toMatchObject({ finishedSending: [3], drained: [3] });
    },
  );
});

describe('the scheduler side of two ranks, of which one has no layers of a group', () => {
  const make = () => {
    const time = new ManualTime();
    const identities = [whole, partial];
    const tiers = identities.map((identity) => new HostTier({ identity, maxBytes: 1e6 }));
    const asked: BlockKey[][] = [];
    let serial = 0;
    const second = Object.assign(tiers[1]!, {
      has: (keys: readonly BlockKey[], signal: AbortSignal) => {
        asked.push([...keys]);
        return HostTier.prototype.has.call(tiers[1], keys, signal);
      },
    });
    const scheduler = new TierScheduler(
      [tiers[0]!, second],
      { clock: time, timers: time, wake: () => undefined, identities },
      { role: 'kv_both', mode: 'async', lookupTimeoutMs: 1000 },
    );
    const put = (rank: number, key: BlockKey) => tiers[rank]!.store(key, suiteBytes(key), open);
    const found = async (keys: readonly BlockKey[]): Promise<readonly BlockKey[]> => {
      const request: ConnectorRequest = {
        id: requestId(`r${serial++}`),
        tokenCount: tokenCount(100),
        wanted: keys.map((key, i) => ({ group: groupIndex(key === b ? 1 : 0), index: blockIndex(i), key })),
      };
      scheduler.getMatchedBlocks(request);
      await turns();
      const answer = scheduler.getMatchedBlocks(request);
      return answer.kind === 'found' ? answer.blocks.map(({ key }) => key) : [];
    };
    return { scheduler, tiers, put, found, asked };
  };

  it('finds a block that all ranks with KV in it have stored, and asks the other rank nothing', async () => {
    const { put, found, asked } = make();
    await put(0, b);
    expect(await found([b])).toEqual([b]);
    expect(asked).toEqual([]);
    await put(0, a);
    expect(await found([b, a])).toEqual([b]);
    expect(asked).toEqual([[a]]);
    await put(1, a);
    expect(await found([b, a, suiteKey('c', 0)])).toEqual([b, a]);
  });

  it('does not find a block that the rank with layers has lost', async () => {
    const { put, found, tiers } = make();
    await Promise.all([put(0, a), put(1, a), put(0, b)]);
    expect(await found([a, b])).toEqual([a, b]);
    await tiers[0]!.delete(b);
    expect(await found([a, b])).toEqual([a]);
  });

  it('saves such a block again only if the rank with layers lost it', async () => {
    const { scheduler, put, found, tiers } = make();
    const { step: planned, output } = ledgerBeside(scheduler, systemClock);
    const offered = {
      group: groupIndex(1),
      index: blockIndex(0),
      key: b,
      requestId: requestId('r'),
      block: blockId(1),
    };
    const step = () => planned([offered], () => undefined);
    await put(0, b);
    await found([b]);
    expect(step().saves).toEqual([]);
    await tiers[0]!.delete(b);
    await found([b]);
    const { saves } = step();
    expect(saves).toMatchObject([{ blocks: [{ key: b }] }]);
    output({ finishedSending: [saves[0]!.transfer] });
    expect(scheduler.takeEvents()).toEqual([{ kind: 'stored', keys: [b], place: 'host' }]);
  });
});
