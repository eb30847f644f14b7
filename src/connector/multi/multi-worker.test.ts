/** A list of worker sides that report what the test says. */
import { describe, expect, it } from 'vitest';
import { type BlockId, blockIndex, groupIndex, requestId } from '../../core/ids.ts';
import {
  type BlockLoadFailure,
  type ConnectorMetadata,
  emptyMetadata,
  emptyOutput,
  type LoadJob,
  type SaveJob,
  type TransferId,
  type TransferReport,
  type WorkerConnector,
} from '../connector.ts';
import { suiteKey } from '../tier/tier.suite.ts';
import type { TierOrder, TierOrderAnswer } from '../tier-orders.ts';
import { stepWithConnector } from '../transfer/worker-step.ts';
import { messageFor } from './multi-message.ts';
import { MultiWorker } from './multi-worker.ts';

class ScriptedWorker implements WorkerConnector {
  report: Partial<TransferReport> = {};
  failures: readonly BlockLoadFailure[] = [];
  isDrained: boolean = true;
  readonly calls: string[] = [];
  readonly orders: ConnectorMetadata[] = [];
  readonly flushed: (readonly TransferId[])[] = [];

  registerKvCaches(): void {
    this.calls.push('register');
  }

  async handlePreemptions({ jobsToFlush }: ConnectorMetadata): Promise<void> {
    this.calls.push('preempt');
    this.flushed.push(jobsToFlush);
  }

  bindConnectorMetadata(metadata: ConnectorMetadata): void {
    this.calls.push('bind');
    this.orders.push(metadata);
  }

  startLoadKv(): void {
    this.calls.push('start');
  }

  async waitForLayerLoad(layer: number): Promise<void> {
    this.calls.push(`wait ${layer}`);
  }

  saveKvLayer(layer: number): void {
    this.calls.push(`save ${layer}`);
  }

  async waitForSave(): Promise<void> {
    this.calls.push('waitForSave');
  }

  getFinished(): TransferReport {
    this.calls.push('finished');
    const { loadFailures: _, ...nothing } = emptyOutput;
    const report = { ...nothing, ...this.report };
    this.report = {};
    return report;
  }

  getBlockIdsWithLoadErrors(): readonly BlockLoadFailure[] {
    const { failures } = this;
    this.failures = [];
    return failures;
  }

  clearConnectorMetadata(): void {
    this.calls.push('clear');
  }

  async shutdown(): Promise<{ readonly drained: boolean }> {
    this.calls.push('shutdown');
    return { drained: this.isDrained };
  }
}

const id = (transfer: number): TransferId => transfer as TransferId;
const loadOf = (transfer: number, ...blocks: (readonly [number, string])[]): LoadJob => ({
  transfer: id(transfer),
  requestId: requestId('r'),
  mode: 'async',
  timeoutMs: 100,
  blocks: blocks.map(([n, place]) => ({
    group: groupIndex(0),
    index: blockIndex(n),
    key: suiteKey(n),
    block: n as BlockId,
    place,
  })),
});
const saveOf = (transfer: number, n: number): SaveJob => ({
  transfer: id(transfer),
  blocks: [{ key: suiteKey(n), block: n as BlockId }],
});

function make() {
  const sides = [new ScriptedWorker(), new ScriptedWorker()] as const;
  const list = new MultiWorker(sides);
  const step = async (metadata: Partial<ConnectorMetadata> = {}, hasTokens = false) =>
    (
      await stepWithConnector(
        list,
        { ...emptyMetadata, ...metadata },
        2,
        hasTokens ? () => Promise.resolve() : undefined,
      )
    ).output;
  return { sides, list, step };
}

it('each connector gets its own loads, saves and message, and all cancellations and flushes', async () => {
  const { sides, step } = make();
  const extra = messageFor(new Map([[id(2), 1]]), [undefined, { hello: 1 }])!;
  const [cancelled, jobsToFlush] = [[id(7)], [id(2), id(8)]];
  const loads = [loadOf(1, [1, 'c0-disk'], [2, 'c1-c0-host']), loadOf(3, [3, 'c1-disk'])];
  await step({ loads, saves: [saveOf(2, 5)], extra, cancelled, jobsToFlush }, true);
  const orders = sides.map(({ orders: [own] }) => own);
  expect(orders[0]).toEqual({ loads: [loadOf(1, [1, 'disk'])], saves: [], cancelled, jobsToFlush });
  expect(orders[1]).toEqual({
    loads: [loadOf(1, [2, 'c0-host']), loadOf(3, [3, 'disk'])],
    saves: [saveOf(2, 5)],
    cancelled,
    jobsToFlush,
    extra: { hello: 1 },
  });
  for (const { calls, flushed } of sides) {
    expect(flushed).toEqual([jobsToFlush]);
    expect(calls.join()).toBe('preempt,bind,start,wait 0,wait 1,save 0,save 1,waitForSave,finished,clear');
  }
});

describe('a load with two parts', () => {
  const load = loadOf(1, [1, 'c0-disk'], [2, 'c1-disk']);
  const ended: Partial<TransferReport> = { finishedRecving: [id(1)], drained: [id(1)] };

  it('is decided and drained when both connectors say so', async () => {
    const { sides, step } = make();
    await step({ loads: [load] });
    sides[0].report = ended;
    expect(await step()).toMatchObject({ finishedRecving: [], drained: [] });
    sides[1].report = { finishedRecving: [id(1)] };
    expect(await step()).toMatchObject({ finishedRecving: [1], drained: [] });
    sides[1].report = { drained: [id(1)] };
    expect(await step()).toMatchObject({ finishedRecving: [], drained: [1] });
  });

  it('is not decided by two reports of one connector; later ones reach the ledger, which ignores them', async () => {
    const { sides, step } = make();
    await step({ loads: [load] });
    for (let i = 0; i < 3; i++) {
      sides[0].report = ended;
      expect(await step()).toMatchObject({ finishedRecving: [], drained: [] });
    }
    sides[1].report = ended;
    expect(await step()).toMatchObject(ended);
    sides[0].report = { ...ended, finishedSending: [id(77)] };
    expect(await step()).toMatchObject({ ...ended, finishedSending: [77] });
  });

  it('a part that failed as a whole fails its own blocks only', async () => {
    const { sides, step } = make();
    await step({ loads: [load] });
    sides[1].report = { failedRecving: [id(1), id(50)] };
    const failures = [{ transfer: 1, block: 2, reason: 'storeFailed', isBlockBusy: false }];
    expect(await step()).toMatchObject({ finishedRecving: [], failedRecving: [], loadFailures: failures });
    for (const side of sides) side.report = ended;
    expect(await step()).toMatchObject({ finishedRecving: [1], loadFailures: [] });
  });

  it('a block has arrived when its own connector says so', async () => {
    const { sides, step } = make();
    await step({ loads: [load] });
    const arrived = [1, 2].map((block) => ({ transfer: id(1), block: block as BlockId }));
    sides[0].report = { arrived, ...ended };
    expect((await step()).arrived).toEqual([arrived[0]]);
    sides[0].report = { arrived };
    expect((await step()).arrived).toBeUndefined();
    sides[1].report = { arrived };
    expect((await step()).arrived).toEqual([arrived[1]]);
  });

  it('failures of both are reported, also before the forward pass', async () => {
    const { sides, step } = make();
    const failure = (block: number) =>
      ({ transfer: id(1), block: block as BlockId, reason: 'corrupt', isBlockBusy: true }) as const;
    sides[0].failures = [failure(1)];
    sides[1].failures = [failure(2)];
    expect((await step({ loads: [load] }, true)).loadFailures).toEqual([failure(1), failure(2)]);
  });
});

it('a connector cannot end the save of another', async () => {
  const { sides, step } = make();
  await step({ saves: [saveOf(1, 5)], extra: messageFor(new Map([[id(1), 1]]), [])! });
  const ended = { finishedSending: [id(1)], drained: [id(1)] };
  sides[0].report = ended;
  expect(await step()).toMatchObject({ finishedSending: [], drained: [] });
  sides[1].report = ended;
  expect(await step()).toMatchObject(ended);
});

it('places, counters and evictions have the position of their connector', async () => {
  const { sides, step } = make();
  sides[1].report = {
    evicted: [suiteKey(1)],
    placeChanges: [{ place: 'disk', stored: [suiteKey(2)], evicted: [] }],
    loadedElsewhere: [{ transfer: id(1), block: 1 as BlockId, place: 'host' }],
    counters: { a: 1, 'now.b': -1 },
    stats: { savedBlocks: 2, own: { stored: 2 }, levels: { tiers: { disk: { blocks: 1 } } } },
  };
  sides[0].report = { stats: { savedBlocks: 1, own: { stored: 1 } } };
  expect(await step()).toMatchObject({
    evicted: [],
    placeChanges: [
      { place: 'c1-disk', stored: [suiteKey(2)], evicted: [] },
      { place: 'c1-', stored: [], evicted: [suiteKey(1)] },
    ],
    loadedElsewhere: [{ place: 'c1-host' }],
    counters: { 'c1-a': 1, 'now.c1-b': -1 },
    stats: { savedBlocks: 3, own: { 'c0-stored': 1, 'c1-stored': 2 }, levels: { tiers: { 'c1-disk': { blocks: 1 } } } },
  });
});

it('the number of ranks is the largest that a connector has named', async () => {
  const { sides, step } = make();
  const counts: number[] = [];
  for (const [first, second] of [
    [0, 0],
    [2, 0],
    [0, 3],
    [1, 0],
    [0, 1],
  ] as const) {
    sides[0].report = { expectedFinishedCount: first };
    sides[1].report = { expectedFinishedCount: second };
    counts.push((await step()).expectedFinishedCount);
  }
  expect(counts).toEqual([0, 2, 3, 3, 1]);
});

it('a shutdown reaches all, and I/O of one keeps the memory', async () => {
  const { sides, list } = make();
  list.registerKvCaches({ blockCount: 1, blockBytes: 1, bytesOf: () => new Uint8Array(1) });
  sides[0].isDrained = false;
  expect(await list.shutdown({ timeoutMs: 0 })).toEqual({ drained: false });
  for (const { calls } of sides) expect(calls).toEqual(['register', 'shutdown']);
});

describe('orders for tiers', () => {
  const [one, two] = [suiteKey(1), suiteKey(2)];
  const work = { blocks: 1, bytes: 10, failed: 0 };
  /** The second of three connectors has no tiers. */
  function withTiers(answers: readonly ((order: TierOrder) => TierOrderAnswer)[]) {
    const seen: [number, TierOrder][] = [];
    const sideOf = (answer: (order: TierOrder) => TierOrderAnswer, i: number): WorkerConnector =>
      Object.assign(new ScriptedWorker(), {
        administer: async (order: TierOrder) => {
          seen.push([i, order]);
          return answer(order);
        },
      });
    const [first, last] = answers;
    const list = new MultiWorker([sideOf(first!, 0), new ScriptedWorker(), sideOf(last!, 2)]);
    return { seen, administer: list.administer! };
  }
  const fine = () => ({ tiers: { host: work } });

  it('reach the connectors that they name, with their own names', async () => {
    const { seen, administer } = withTiers([fine, fine]);
    expect(await administer({ kind: 'clear', tier: 'c2-host', filter: {} })).toEqual({ tiers: { 'c2-host': work } });
    await administer({ kind: 'remove', keys: [one], tiers: ['c0-host', 'c0-disk'] });
    await administer({ kind: 'attach', tier: 'c2-new', spec: 'disk:/x' });
    expect(seen).toEqual([
      [2, { kind: 'clear', tier: 'host', filter: {} }],
      [0, { kind: 'remove', keys: [one], tiers: ['host', 'disk'] }],
      [2, { kind: 'attach', tier: 'new', spec: 'disk:/x' }],
    ]);
    expect(await administer({ kind: 'remove', keys: [one] })).toEqual({ tiers: { 'c0-host': work, 'c2-host': work } });
    expect(await administer({ kind: 'detach', tier: 'c9-disk' })).toEqual({ tiers: {} });
  });

  it.each(['host', 'c1-host', 'c9-host', ''])('a tier named "%s" is unknown', async (tier) => {
    const { seen, administer } = withTiers([fine, fine]);
    await expect(administer({ kind: 'clear', tier, filter: {} })).rejects.toMatchObject({
      code: 'KVASIR_TIER_UNKNOWN',
    });
    await expect(administer({ kind: 'attach', tier, spec: '' })).rejects.toMatchObject({ code: 'KVASIR_TIER_UNKNOWN' });
    expect(seen).toEqual([]);
  });

  it('blocks that the first connector fetches are not fetched by the next', async () => {
    const fetching = (has: string) => (order: TierOrder) => ({
      tiers: { host: work },
      fetched: { host: order.kind === 'fetch' ? order.keys.filter((key) => key === has) : [] },
    });
    const { seen, administer } = withTiers([fetching(one), fetching(two)]);
    expect(await administer({ kind: 'fetch', keys: [one, two] })).toMatchObject({
      fetched: { 'c0-host': [one], 'c2-host': [two] },
    });
    expect(seen[1]).toEqual([2, { kind: 'fetch', keys: [two] }]);
  });

  it('if one connector cannot pin, the others do not', async () => {
    const failing = () => {
      throw new Error('cannot pin');
    };
    const { seen, administer } = withTiers([fine, failing]);
    const order = { kind: 'pin', pin: 'p', keys: [one], ttlMs: 1, tiers: ['c0-host', 'c2-host'] } as const;
    await expect(administer(order)).rejects.toThrow('cannot pin');
    expect(seen.map(([side, { kind }]) => `${side} ${kind}`)).toEqual(['0 pin', '2 pin', '0 unpin']);
  });
});
