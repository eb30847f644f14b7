/** A list over sides whose answers the test sets: who is asked what, and what reaches whom. */
import { describe, expect, it } from 'vitest';
import { ManualTime } from '../../../test/support/manual-time.ts';
import type { BlockId, RequestId } from '../../core/ids.ts';
import {
  type ConnectorRequest,
  type ConnectorStep,
  defaultLoadTimeoutMs,
  type LoadJob,
  type LoadMode,
  type MatchAnswer,
  type SchedulerConnector,
  type TransferId,
  type TransferOutcomes,
} from '../connector.ts';
import { block, request, valid } from '../places/scheduler-under-test.suite.ts';
import { suiteKey } from '../tier/tier.suite.ts';
import { messageOf } from './multi-message.ts';
import { MultiScheduler } from './multi-scheduler.ts';

/** A side that finds the blocks with these indices in its place, and saves all that are offered. */
class ScriptedSide implements SchedulerConnector {
  found: readonly number[] = [];
  mode: LoadMode = 'async';
  askLaterUntilMs: number | undefined;
  answer: Record<string, string> | undefined;
  readonly loadPolicy;
  readonly loadTimeoutMs: number | undefined;
  readonly asked: ConnectorRequest[] = [];
  readonly loads: (LoadJob | undefined)[] = [];
  readonly steps: ConnectorStep[] = [];
  readonly outcomes: TransferOutcomes[] = [];
  finished = 0;
  isClosed: boolean = false;
  isBusy: boolean = false;

  constructor({ loadPolicy, loadTimeoutMs }: Pick<SchedulerConnector, 'loadPolicy'> & { loadTimeoutMs?: number } = {}) {
    this.loadPolicy = loadPolicy;
    this.loadTimeoutMs = loadTimeoutMs;
  }

  getMatchedBlocks(asked: ConnectorRequest): MatchAnswer {
    this.asked.push(asked);
    if (this.askLaterUntilMs !== undefined) return { kind: 'askLater', deadlineMs: this.askLaterUntilMs };
    const blocks = asked.wanted.filter(
      ({ index, failedFrom }) => this.found.includes(index) && failedFrom === undefined,
    );
    return { kind: 'found', blocks: blocks.map((found) => ({ ...found, place: 'disk' })), mode: this.mode };
  }

  updateStateAfterAlloc(_: ConnectorRequest, load: LoadJob | undefined): void {
    this.loads.push(load);
  }

  buildConnectorMeta(step: ConnectorStep) {
    this.steps.push(step);
    const blocks = step.newlyValid.map(({ key, block }) => ({ key, block }));
    const saves = blocks.length === 0 ? [] : [{ transfer: step.newTransferId(), blocks }];
    return blocks.length === 0 ? { saves } : { saves, extra: { count: blocks.length } };
  }

  updateConnectorOutput(outcomes: TransferOutcomes): void {
    this.outcomes.push(outcomes);
  }

  requestFinished() {
    this.finished++;
    return this.answer === undefined ? {} : { kvTransferParams: this.answer };
  }

  takeEvents() {
    return [{ kind: 'stored', keys: [suiteKey(0)], place: 'disk' }] as const;
  }

  placeKind(place: string) {
    return place === 'disk' ? ({ medium: 'STORAGE', locality: 'LOCAL' } as const) : undefined;
  }

  listed() {
    return [{ place: 'disk', keys: new Set([suiteKey(1)]) }];
  }

  counters() {
    return { waits: 1, 'now.open': 2 };
  }

  stats() {
    return {
      loadedBlocks: 1,
      own: { stored: 1 },
      tiers: { disk: { storedBlocks: 1 } },
      levels: { breakerOpen: { load: 1 }, own: { blocks: 3 } },
    };
  }

  hasPendingWork(): boolean {
    return this.isBusy;
  }

  async close(): Promise<void> {
    this.isClosed = true;
  }
}

function make(sides: readonly ScriptedSide[] = [new ScriptedSide(), new ScriptedSide()]) {
  const time = new ManualTime();
  const list = new MultiScheduler(sides, time);
  let lastId = 0;
  const step = (newlyValid: ConnectorStep['newlyValid'] = [], inPool: readonly number[] = []) =>
    list.buildConnectorMeta({
      stepId: 1 as ConnectorStep['stepId'],
      newlyValid,
      validBlock: (key) => {
        const index = inPool.find((one) => suiteKey(one) === key);
        return index === undefined ? undefined : ((index + 1) as BlockId);
      },
      isSaving: () => true,
      newTransferId: () => ++lastId as TransferId,
    });
  const output = (outcomes: Partial<TransferOutcomes>): void =>
    list.updateConnectorOutput({ loads: [], saves: [], evicted: [], placeChanges: [], counters: {}, ...outcomes });
  const places = (wanted: readonly number[], id = 'r'): unknown => {
    const answer = list.getMatchedBlocks(request(id, wanted));
    return answer.kind === 'askLater'
      ? answer.deadlineMs
      : answer.blocks.map(({ index, place }) => `${place} ${index}`);
  };
  const load = (...blocks: (readonly [number, string])[]): LoadJob => ({
    transfer: 99 as TransferId,
    requestId: 'r' as RequestId,
    mode: 'async',
    timeoutMs: 10,
    blocks: blocks.map(([index, place]) => ({ ...block(index), place, block: (index + 1) as BlockId })),
  });
  return { time, list, sides: sides as readonly [ScriptedSide, ScriptedSide], step, output, places, load };
}

const outcome = (index: number, place: string, result: 'loaded' | 'corrupt' = 'loaded') => ({
  ...block(index),
  block: (index + 1) as BlockId,
  transfer: 99 as TransferId,
  requestId: 'r' as RequestId,
  place,
  result,
  isBlockBusy: false,
});

describe('a request', () => {
  it('loads each block from the first connector that has it', () => {
    const { sides, places } = make();
    sides[0].found = [0, 2];
    sides[1].found = [0, 1, 4];
    expect(places([0, 1, 2, 3, 4])).toEqual(['c0-disk 0', 'c0-disk 2', 'c1-disk 1', 'c1-disk 4']);
  });

  it('each connector gets its blocks of a load with its own places, or none', () => {
    const { list, sides, load } = make();
    list.updateStateAfterAlloc(request('r', []), load([0, 'c1-disk'], [1, 'c1-disk']), () => []);
    list.updateStateAfterAlloc(request('r', []), undefined, () => []);
    expect(sides[0].loads).toEqual([undefined, undefined]);
    expect(sides[1].loads).toEqual([load([0, 'disk'], [1, 'disk']), undefined]);
  });

  it('a block that failed from one connector is wanted from the next', () => {
    const { list, sides } = make();
    for (const side of sides) side.found = [0];
    const wanted = [{ ...block(0), failedFrom: ['c0-disk'] }];
    expect(list.getMatchedBlocks({ ...request('r', []), wanted })).toMatchObject({ blocks: [{ place: 'c1-disk' }] });
    expect(sides.map(({ asked }) => asked[0]!.wanted[0]!.failedFrom)).toEqual([['disk'], undefined]);
  });

  it('waits for a connector until its first deadline, and then uses the answers of the others', () => {
    const { time, list, sides, places } = make();
    sides[0].askLaterUntilMs = 500;
    sides[1].found = [1];
    expect(places([0, 1])).toBe(500);
    time.advance(400);
    sides[0].askLaterUntilMs = 900;
    expect(places([0, 1])).toBe(500);
    time.advance(100);
    expect(places([0, 1])).toEqual(['c1-disk 1']);
    // After its admission, a new question has a new deadline.
    list.updateStateAfterAlloc(request('r', []), undefined, () => []);
    expect(places([0, 1])).toBe(900);
    expect(places([0, 1], 'other')).toBe(900);
    list.requestFinished(request('r', []), () => []);
  });

  it('waits for no connector after those that have all blocks, and at most 30 s', () => {
    const { time, sides, places } = make();
    sides[0].found = [0, 1];
    sides[1].askLaterUntilMs = Infinity;
    expect(places([0, 1])).toEqual(['c0-disk 0', 'c0-disk 1']);
    expect(places([0, 1, 2])).toBe(30_000);
    time.advance(30_000);
    expect(places([0, 1, 2])).toEqual(['c0-disk 0', 'c0-disk 1']);
  });

  it('its load is sync if all connectors with a part of it say so', () => {
    const { list, sides } = make();
    sides[0].found = [0];
    sides[0].mode = 'sync';
    sides[1].found = [1];
    const modeOf = (...wanted: number[]) => list.getMatchedBlocks(request('r', wanted));
    expect(modeOf(0)).toMatchObject({ mode: 'sync' });
    expect(modeOf(0, 1)).toMatchObject({ mode: 'async' });
  });

  it('each connector learns that it has ended; of a field that several answer, the first answer counts', () => {
    const { list, sides } = make();
    sides[0].answer = { a: 'first', b: 'first' };
    sides[1].answer = { b: 'second', c: 'second' };
    expect(list.requestFinished(request('r', []), () => [])).toEqual({
      kvTransferParams: { a: 'first', b: 'first', c: 'second' },
    });
    expect(sides.map(({ finished }) => finished)).toEqual([1, 1]);
  });
});

describe('saves', () => {
  it('each connector saves each block, and knows its own open saves only', () => {
    const { list, sides, step, output } = make();
    const plan = step([valid(0), valid(1)]);
    expect(plan.saves.map(({ transfer, blocks }) => [transfer, blocks.length])).toEqual([
      [1, 2],
      [2, 2],
    ]);
    expect(messageOf(plan.extra)).toEqual({ saves: { 1: 0, 2: 1 }, extras: { 0: { count: 2 }, 1: { count: 2 } } });
    const saved = (transfer: number, index: number) =>
      ({ transfer: transfer as TransferId, key: suiteKey(index), result: 'stored' }) as const;
    output({ saves: [saved(1, 0), saved(1, 1), saved(2, 1)] });
    expect(sides.map(({ outcomes }) => outcomes[0]!.saves)).toEqual([[saved(1, 0), saved(1, 1)], [saved(2, 1)]]);
    step();
    const isSaving = sides.map(({ steps }) => [0, 1].map((index) => steps[1]!.isSaving(suiteKey(index))));
    expect(isSaving).toEqual([
      [false, false],
      [true, false],
    ]);
    list.getMatchedBlocks({ ...request('r', []), wanted: [{ ...block(0), isSaving: true }] });
    expect(sides.map(({ asked }) => asked[0]!.wanted[0]!.isSaving)).toEqual([undefined, true]);
    // A later report of the same save is of none.
    output({ saves: [saved(2, 0), saved(2, 0)] });
    expect(sides[1].outcomes[1]!.saves).toEqual([saved(2, 0)]);
  });

  it('a block that one connector has loaded is offered to the others, if it is still valid', () => {
    const { list, sides, step, output } = make();
    output({ loads: [outcome(0, 'c1-disk'), outcome(1, 'c1-disk'), outcome(2, 'c0-disk', 'corrupt')] });
    expect(list.hasPendingWork()).toBe(true);
    step([valid(5)], [0, 2, 5]);
    expect(sides.map(({ steps }) => steps[0]!.newlyValid.map(({ index }) => index))).toEqual([[5, 0], [5]]);
    expect(list.hasPendingWork()).toBe(false);
    step([], [0, 2, 5]);
    expect(sides[0].steps[1]!.newlyValid).toEqual([]);
  });
});

describe('outcomes, counts and events', () => {
  it('reach the connector that they are of, with its own names', () => {
    const { sides, output } = make();
    output({
      loads: [outcome(0, 'c1-disk', 'corrupt'), outcome(1, 'c0-disk')],
      placeChanges: [
        { place: 'c0-', stored: [], evicted: [suiteKey(1)] },
        { place: 'c0-', stored: [], evicted: [suiteKey(1)] },
        { place: 'c1-disk', stored: [suiteKey(2)], evicted: [] },
      ],
      counters: { 'c0-a': 1, 'now.c1-b': 2 },
      stats: {
        loadedBlocks: 5,
        tiers: { 'c1-disk': { storedBlocks: 1 } },
        levels: { breakerOpen: { load: 1 }, own: { 'c0-x': 1 } },
      },
    });
    expect(sides[0].outcomes[0]).toEqual({
      loads: [outcome(1, 'disk')],
      saves: [],
      evicted: [suiteKey(1)],
      placeChanges: [],
      counters: { a: 1 },
      stats: { tiers: {}, levels: { own: { x: 1 } } },
    });
    expect(sides[1].outcomes[0]).toEqual({
      loads: [outcome(0, 'disk', 'corrupt')],
      saves: [],
      evicted: [],
      placeChanges: [{ place: 'disk', stored: [suiteKey(2)], evicted: [] }],
      counters: { 'now.b': 2 },
      stats: { tiers: { disk: { storedBlocks: 1 } }, levels: { own: {} } },
    });
  });

  it('have the position of their connector, and totals are sums', () => {
    const { list } = make();
    expect(list.counters()).toEqual({ 'c0-waits': 1, 'c1-waits': 1, 'now.c0-open': 2, 'now.c1-open': 2 });
    expect(list.stats()).toEqual({
      loadedBlocks: 2,
      own: { 'c0-stored': 1, 'c1-stored': 1 },
      tiers: { 'c0-disk': { storedBlocks: 1 }, 'c1-disk': { storedBlocks: 1 } },
      levels: { breakerOpen: { load: 2 }, own: { 'c0-blocks': 3, 'c1-blocks': 3 } },
    });
    expect(list.takeEvents().map(({ place }) => place)).toEqual(['c0-disk', 'c1-disk']);
    expect(list.listed().map(({ place }) => place)).toEqual(['c0-disk', 'c1-disk']);
    expect(list.placeKind('c1-disk')).toEqual({ medium: 'STORAGE', locality: 'LOCAL' });
    for (const unknown of ['c2-disk', 'disk', 'c1-other', '']) expect(list.placeKind(unknown)).toBeUndefined();
  });

  it('the policy is `auto` if that of all is, and the deadline of a load is the longest of all', () => {
    const auto = { loadPolicy: 'auto' } as const;
    const of = (...settings: ConstructorParameters<typeof ScriptedSide>) => new ScriptedSide(...settings);
    expect(make([of(auto), of(auto)]).list.loadPolicy).toBe('auto');
    expect(make([of(auto), of()]).list.loadPolicy).toBe('always');
    expect(make().list.loadTimeoutMs).toBeUndefined();
    const { loadTimeoutMs } = make([of({ loadTimeoutMs: 3_000 }), of()]).list;
    expect([1024, 20_480].map((tokens) => loadTimeoutMs!(tokens))).toEqual([3_000, defaultLoadTimeoutMs(20_480)]);
  });

  it('the list has work while one of its connectors has, and closes all', async () => {
    const { list, sides } = make();
    sides[1].isBusy = true;
    expect(list.hasPendingWork()).toBe(true);
    await list.close();
    expect(sides.map(({ isClosed }) => isClosed)).toEqual([true, true]);
  });
});
