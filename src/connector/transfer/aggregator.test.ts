import { describe, expect, it } from 'vitest';
import { blockId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import type { BlockLoadFailure, ConnectorOutput, TransferId } from '../connector.ts';
import { emptyOutput } from '../connector.ts';
import { OutputAggregator } from './aggregator.ts';

interface Short {
  s?: number[];
  r?: number[];
  d?: number[];
  inv?: number[];
  failed?: number[];
  expected?: number;
  counters?: Record<string, number>;
}

const ids = (list: readonly number[] = []) => list.map((n) => n as TransferId);
const failure = (block: number): BlockLoadFailure => ({
  transfer: 9 as TransferId,
  block: blockId(block),
  reason: 'missing',
  isBlockBusy: false,
});
const output = ({ s, r, d, inv, failed, expected, counters }: Short): ConnectorOutput => ({
  ...emptyOutput,
  finishedSending: ids(s),
  finishedRecving: ids(r),
  drained: ids(d),
  failedRecving: ids(failed),
  loadFailures: (inv ?? []).map(failure),
  counters: counters ?? {},
  expectedFinishedCount: expected ?? 0,
});
const short = (made: ConnectorOutput) => ({
  s: made.finishedSending,
  r: made.finishedRecving,
  inv: new Set(made.loadFailures.map(({ block }) => block)),
  failed: made.failedRecving,
});
const nothing = { s: [], r: [], inv: new Set(), failed: [] };

describe('test_output_aggregator: two ranks', () => {
  it('transfers finish when both ranks report, and invalid blocks are reported at once', () => {
    const aggregator = new OutputAggregator(2);
    const step = (...outputs: Short[]) => short(aggregator.aggregate(outputs.map(output)));
    expect(step({ s: [1], r: [2] }, { inv: [1] })).toEqual({ ...nothing, inv: new Set([1]) });
    expect(step({ inv: [2] }, { s: [1] })).toEqual({ ...nothing, s: [1], inv: new Set([2]) });
    expect(step({ inv: [3, 4] }, { r: [2], inv: [4, 5], failed: [3] })).toEqual({
      ...nothing,
      r: [2],
      inv: new Set([3, 4, 5]),
    });
    expect(step({ r: [3] }, { r: [3] })).toEqual({ ...nothing, r: [3], failed: [3] });
    expect(step({}, {})).toEqual(nothing);
  });

  it('a new number of ranks is valid for ids that are first reported later', () => {
    const aggregator = new OutputAggregator(4);
    aggregator.aggregate([output({ s: [1] }), undefined, undefined, undefined]);
    expect(aggregator.remaining('finishedSending', 1 as TransferId)).toBe(3);
    const made = aggregator.aggregate([
      undefined,
      output({ s: [1], expected: 2 }),
      output({ r: [2], expected: 2 }),
      output({ r: [2] }),
    ]);
    expect(short(made)).toEqual({ ...nothing, r: [2] });
    expect(aggregator.remaining('finishedRecving', 2 as TransferId)).toBeUndefined();
    expect(aggregator.remaining('finishedSending', 1 as TransferId)).toBe(2);
  });
});

it('complete_store_waits_for_all_worker_acks: three ranks, of which one reports a step before the others', () => {
  const aggregator = new OutputAggregator(3);
  expect(short(aggregator.aggregate([output({}), output({ s: [1] }), output({})]))).toEqual(nothing);
  expect(aggregator.remaining('finishedSending', 1 as TransferId)).toBe(2);
  expect(short(aggregator.aggregate([output({ s: [1] }), output({}), output({ s: [1] })]))).toEqual({
    ...nothing,
    s: [1],
  });
});

describe('duplicate reports', () => {
  it('a second report of one rank does not count as the report of the other rank', () => {
    const aggregator = new OutputAggregator(2);
    expect(aggregator.aggregate([output({ r: [1] }), undefined]).finishedRecving).toEqual([]);
    const again = aggregator.aggregate([output({ r: [1] }), undefined]);
    expect(again.finishedRecving).toEqual([]);
    expect(again.counters).toEqual({ duplicateReports: 1 });
    expect(aggregator.aggregate([undefined, output({ r: [1] })]).finishedRecving).toEqual([1]);
    expect(aggregator.aggregate([output({ r: [1] }), output({ r: [1] })]).finishedRecving).toEqual([]);
  });

  it('a report about an id that is not open is counted and leaves no countdown', () => {
    const open = new Set<TransferId>([1 as TransferId]);
    const aggregator = new OutputAggregator(2, (id) => open.has(id));
    expect(aggregator.aggregate([output({ r: [7], failed: [7] }), undefined]).counters).toEqual({
      duplicateReports: 1,
    });
    expect(aggregator.remaining('finishedRecving', 7 as TransferId)).toBeUndefined();
    aggregator.aggregate([output({ r: [1] }), undefined]);
    open.delete(1 as TransferId);
    aggregator.aggregate([undefined, undefined]);
    expect(aggregator.remaining('finishedRecving', 1 as TransferId)).toBeUndefined();
  });
});

describe('draining', () => {
  it('is counted separately from receiving', () => {
    const aggregator = new OutputAggregator(2);
    expect(aggregator.aggregate([output({ r: [1], d: [1] }), output({ r: [1] })])).toMatchObject({
      finishedRecving: [1],
      drained: [],
    });
    expect(aggregator.aggregate([undefined, output({ d: [1] })])).toMatchObject({ finishedRecving: [], drained: [1] });
  });
});

describe('test_output_aggregator: a step in which a rank fails', () => {
  it('replay_preserves_get_and_clear_fields: the reports of the other ranks count in that step', () => {
    const aggregator = new OutputAggregator(4);
    // vLLM keeps this output for the next step. Here the invalid block is reported at once.
    const failed = aggregator.aggregate([
      output({ s: [1], r: [2], failed: [3], inv: [7], expected: 2, counters: { loaded: 1 } }),
      undefined,
    ]);
    expect(short(failed)).toEqual({ ...nothing, inv: new Set([7]) });
    expect(failed.counters).toEqual({ loaded: 1 });
    const next = aggregator.aggregate([
      output({ r: [3], counters: { loaded: 2 } }),
      output({ s: [1], r: [2, 3], counters: { loaded: 4 } }),
    ]);
    expect(short(next)).toEqual({ ...nothing, s: [1], r: [2, 3], failed: [3] });
    expect(next.counters).toEqual({ loaded: 6 });
  });

  it('replay_completes_finished_recving_votes: a load that both ranks reported is over, although no rank reports it again', () => {
    const aggregator = new OutputAggregator(2);
    const failed = aggregator.aggregate([output({ r: [1] }), output({ r: [1], failed: [1] })]);
    expect(short(failed)).toEqual({ ...nothing, r: [1], failed: [1] });
    expect(short(aggregator.aggregate([output({}), output({})]))).toEqual(nothing);
  });

  it('salvaged_kv_cache_events_do_not_raise_quorum: evicted blocks are reported at once and once', () => {
    const aggregator = new OutputAggregator(2);
    const evicting = (...keys: string[]) => ({ ...output({}), evicted: keys as BlockKey[] });
    expect(aggregator.aggregate([evicting('0-aa'), undefined]).evicted).toEqual(['0-aa']);
    expect(aggregator.aggregate([output({}), output({})]).evicted).toEqual([]);
    expect(aggregator.aggregate([evicting('0-bb'), evicting('0-bb')]).evicted).toEqual(['0-bb']);
  });
});

describe('test_output_aggregator: merging', () => {
  it('a load that failed on one rank fails when the other rank reports its end', () => {
    const aggregator = new OutputAggregator(2);
    // Rank 0 reports 5 as finished and failed in a step in which rank 1 fails; rank 1 reports it a step later.
    expect(short(aggregator.aggregate([output({ r: [5], failed: [5] }), undefined]))).toEqual(nothing);
    const made = aggregator.aggregate([undefined, output({ r: [5], failed: [5] })]);
    expect(short(made)).toEqual({ ...nothing, r: [5], failed: [5] });
    // A failure before the end of the load is reported with the end of the load.
    expect(short(aggregator.aggregate([output({ failed: [6] }), undefined]))).toEqual(nothing);
    expect(short(aggregator.aggregate([output({ r: [6] }), output({ r: [6] })]))).toEqual({
      ...nothing,
      r: [6],
      failed: [6],
    });
  });

  it('a block has arrived when it has arrived on both ranks, and each rank counts once', () => {
    const open = new Set(ids([7]));
    const aggregator = new OutputAggregator(2, (id) => open.has(id));
    const arrived = (...blocks: number[]) => ({
      ...emptyOutput,
      arrived: blocks.map((block) => ({ transfer: 7 as TransferId, block: blockId(block) })),
    });
    expect(aggregator.aggregate([arrived(1, 2), undefined]).arrived).toBeUndefined();
    expect(aggregator.aggregate([arrived(1), arrived(2)]).arrived).toEqual(arrived(2).arrived);
    expect(aggregator.aggregate([undefined, arrived(1, 2)]).arrived).toEqual(arrived(1).arrived);
    open.clear();
    expect(aggregator.aggregate([arrived(3), arrived(3)]).arrived).toBeUndefined();
  });

  it('two reports of one rank count as one', () => {
    const aggregator = new OutputAggregator(2);
    const evicted = ['0-aa' as BlockKey];
    const reported = { ...output({ s: [8], r: [7] }), evicted };
    expect(aggregator.aggregate([reported, undefined]).evicted).toEqual(evicted);
    const again = aggregator.aggregate([output({ s: [8], r: [7] }), undefined]);
    expect(short(again)).toEqual(nothing);
    expect(again.counters).toEqual({ duplicateReports: 2 });
    expect(short(aggregator.aggregate([undefined, output({ s: [8], r: [7] })]))).toEqual({
      ...nothing,
      s: [8],
      r: [7],
    });
  });
});
