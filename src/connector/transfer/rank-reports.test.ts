import { describe, expect, it } from 'vitest';
import { ManualTime } from '../../../test/support/manual-time.ts';
import { type BlockId, blockId, blockIndex, groupIndex, requestId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import { type ConnectorOutput, emptyOutput, type RankReport, type TransferId } from '../connector.ts';
import { TransferLedger } from './transfer-ledger.ts';

const key = (n: number): BlockKey => `0-${n}` as BlockKey;

/** A ledger with a load of blocks 1 to 6, a load of blocks 7 and 8, and two saves. `d`: also drained. */
function make() {
  const pinned = new Set<BlockId>();
  const pins = { pin: (id: BlockId) => void pinned.add(id), release: (id: BlockId) => void pinned.delete(id) };
  const ledger = new TransferLedger(new ManualTime(), pins);
  const load = (...blocks: number[]): TransferId =>
    ledger.openLoad(
      requestId('r'),
      {
        mode: 'async',
        timeoutMs: 1000,
        blocks: blocks.map((n) => ({
          group: groupIndex(0),
          index: blockIndex(n),
          key: key(n),
          place: 'disk',
          block: blockId(n),
        })),
      },
      undefined,
    ).transfer;
  const save = (n: number): TransferId => {
    const transfer = ledger.newTransferId();
    ledger.composeMetadata({ saves: [{ transfer, blocks: [{ key: key(n), block: blockId(n) }] }] });
    return transfer;
  };
  const apply = (...reports: (Partial<ConnectorOutput> | 'workerDied' | undefined)[]) => {
    const { outcomes, loads } = ledger.apply(
      reports.map((report): RankReport => (typeof report === 'object' ? { ...emptyOutput, ...report } : report)),
    );
    const failed = outcomes.loads.filter(({ result }) => result !== 'loaded');
    return {
      outcomes,
      decided: loads.map(({ load: { job } }) => job.transfer),
      stored: outcomes.saves.filter(({ result }) => result === 'stored').map(({ transfer }) => transfer),
      loaded: outcomes.loads.length - failed.length,
      failed: failed.map(({ block, result }) => [block, result]),
    };
  };
  return { ledger, pinned, load, save, apply };
}
const failure = (transfer: TransferId, ...blocks: number[]) =>
  blocks.map((n) => ({ transfer, block: blockId(n), reason: 'missing' as const, isBlockBusy: false }));
const nothing = { decided: [], stored: [], loaded: 0, failed: [] };

describe('test_output_aggregator: two ranks', () => {
  it('transfers finish when both ranks report, and a block that failed on one rank has failed', () => {
    const { load, save, apply } = make();
    const [two, three, one] = [load(1, 2, 3, 4, 5, 6), load(7, 8), save(9)];
    const first = apply({ finishedSending: [one], finishedRecving: [two] }, { loadFailures: failure(two, 1) });
    expect(first).toMatchObject(nothing);
    expect(apply({ loadFailures: failure(two, 2) }, { finishedSending: [one] })).toMatchObject({
      ...nothing,
      stored: [one],
    });
    const third = apply(
      { loadFailures: failure(two, 3, 4) },
      { finishedRecving: [two], loadFailures: failure(two, 4, 5), failedRecving: [three] },
    );
    expect(third).toMatchObject({ decided: [two], loaded: 1, failed: [1, 2, 3, 4, 5].map((n) => [n, 'missing']) });
    const fourth = apply({ finishedRecving: [three] }, { finishedRecving: [three] });
    expect(fourth).toMatchObject({ decided: [three], loaded: 0, failed: [7, 8].map((n) => [n, 'storeFailed']) });
    expect(apply({}, {})).toMatchObject(nothing);
  });

  it('a new number of ranks is valid for ids that are first reported later', () => {
    const { save, apply } = make();
    const [one, two] = [save(1), save(2)];
    expect(apply({ finishedSending: [one] }, undefined, undefined, undefined).stored).toEqual([]);
    const later = apply(
      undefined,
      { finishedSending: [one, two], expectedFinishedCount: 2 },
      { finishedSending: [two], expectedFinishedCount: 2 },
      { expectedFinishedCount: 2 },
    );
    expect(later.stored).toEqual([two]);
    expect(apply(undefined, undefined, { finishedSending: [one] }, { finishedSending: [one] }).stored).toEqual([one]);
  });
});

describe('duplicate reports', () => {
  it('a second report of one rank does not count as the report of the other rank', () => {
    const { ledger, load, apply } = make();
    const finishedRecving = [load(1)];
    expect(apply({ finishedRecving }, undefined).decided).toEqual([]);
    expect(apply({ finishedRecving }, undefined).decided).toEqual([]);
    expect(ledger.ignoredCount).toBe(1);
    expect(apply(undefined, { finishedRecving }).decided).toEqual(finishedRecving);
    expect(apply({ finishedRecving }, { finishedRecving }).decided).toEqual([]);
    expect(ledger.ignoredCount).toBe(3);
  });
});

describe('draining', () => {
  it('is counted separately from receiving', () => {
    const { pinned, load, apply } = make();
    const one = [load(1)];
    const loadFailures = [{ ...failure(one[0]!, 1)[0]!, isBlockBusy: true }];
    expect(apply({ finishedRecving: one, drained: one, loadFailures }, { finishedRecving: one }).decided).toEqual(one);
    expect(pinned.size).toBe(1);
    apply(undefined, { drained: one });
    expect(pinned.size).toBe(0);
  });
});

it('complete_store_waits_for_all_worker_acks: three ranks, of which one reports a step before the others', () => {
  const { save, apply } = make();
  const sent = { finishedSending: [save(1)] };
  expect(apply({}, sent, {})).toMatchObject(nothing);
  expect(apply(sent, {}, sent)).toMatchObject({ ...nothing, stored: sent.finishedSending });
});

describe('test_output_aggregator: a step in which a rank fails', () => {
  it('replay_preserves_get_and_clear_fields: the reports of the other ranks count in that step', () => {
    const { load, save, apply } = make();
    const [one, two, three] = [save(1), load(7, 8), load(3)];
    // vLLM keeps this output for the next step.
    const failed = apply(
      {
        finishedSending: [one],
        finishedRecving: [two],
        failedRecving: [three],
        loadFailures: failure(two, 7),
        expectedFinishedCount: 2,
        counters: { loaded: 1 },
      },
      undefined,
    );
    expect(failed).toMatchObject({ ...nothing, outcomes: { counters: { loaded: 1 } } });
    const next = apply(
      { finishedRecving: [three], counters: { loaded: 2 } },
      { finishedSending: [one], finishedRecving: [two, three], counters: { loaded: 4 } },
    );
    expect(next).toMatchObject({ decided: [two, three], stored: [one], loaded: 1 });
    expect(next.failed).toEqual([
      [7, 'missing'],
      [3, 'storeFailed'],
    ]);
    expect(next.outcomes.counters).toEqual({ loaded: 6 });
  });

  it('replay_completes_finished_recving_votes: a load that both ranks reported is over, although no rank reports it again', () => {
    const { load, apply } = make();
    const one = [load(1)];
    const failed = apply({ finishedRecving: one }, { finishedRecving: one, failedRecving: one });
    expect(failed).toMatchObject({ decided: one, loaded: 0, failed: [[1, 'storeFailed']] });
    expect(apply({}, {})).toMatchObject(nothing);
  });

  it('salvaged_kv_cache_events_do_not_raise_quorum: evicted blocks are reported at once and once', () => {
    const { apply } = make();
    const evicting = (n: number) => ({ evicted: [key(n)] });
    expect(apply(evicting(1), undefined).outcomes.evicted).toEqual([key(1)]);
    expect(apply({}, {}).outcomes.evicted).toEqual([]);
    expect(apply(evicting(2), evicting(2)).outcomes.evicted).toEqual([key(2)]);
  });
});

describe('test_output_aggregator: merging', () => {
  it('a load that failed on one rank fails when the other rank reports its end', () => {
    const { load, apply } = make();
    const five = [load(5)];
    expect(apply({ finishedRecving: five, failedRecving: five }, undefined)).toMatchObject(nothing);
    expect(apply(undefined, { finishedRecving: five }).failed).toEqual([[5, 'storeFailed']]);
  });

  it('two reports of one rank count as one', () => {
    const { load, save, apply } = make();
    const reported = { finishedSending: [save(8)], finishedRecving: [load(7)] };
    const evicted = [key(1)];
    expect(apply({ ...reported, evicted }, { evicted }).outcomes.evicted).toEqual(evicted);
    expect(apply(reported, undefined)).toMatchObject(nothing);
    expect(apply(undefined, reported)).toMatchObject({ stored: reported.finishedSending, loaded: 1 });
  });

  it('a block has arrived when it has arrived on all ranks, once', () => {
    const { load, apply } = make();
    const transfer = load(1, 2, 3);
    const arrived = (...blocks: number[]) => ({ arrived: blocks.map((n) => ({ transfer, block: blockId(n) })) });
    expect(apply(arrived(1, 2), arrived(2))).toMatchObject({ decided: [transfer], loaded: 1 });
    expect(apply(arrived(1, 2), undefined)).toMatchObject(nothing);
    expect(apply(undefined, arrived(1))).toMatchObject({ loaded: 1 });
    const end = { finishedRecving: [transfer], loadFailures: failure(transfer, 1) };
    // The engine gets all blocks of a decided load, and the connector only those that it has not heard of.
    expect(apply(end, { finishedRecving: [transfer] })).toMatchObject({ loaded: 1, failed: [] });
  });
});

describe('the transfers of a process that died', () => {
  it('have ended, and failed if the rank had not reported them', () => {
    const { ledger, pinned, load, save, apply } = make();
    const [one, two, three, four, five] = [load(1, 2), load(3), load(4), save(5), save(6)];
    // Rank 0: load 2 and save 5 have ended, and load 3 is decided and not drained.
    apply({ finishedRecving: [two, three], finishedSending: [five], drained: [two, five] }, undefined);
    const rest = { finishedRecving: [one, two, three], finishedSending: [four, five] };
    const died = apply('workerDied', { ...rest, drained: [one, two, three, four, five] });
    expect(died).toMatchObject({ decided: [one, two, three], loaded: 2, stored: [five] });
    expect(died.failed).toEqual([1, 2].map((n) => [n, 'workerDied']));
    expect(died.outcomes.stats).toEqual({ loadFailed: { workerDied: 2 }, saveFailed: { workerDied: 1 } });
    expect([ledger.openCount, ledger.ignoredCount, pinned.size]).toEqual([0, 0, 0]);
    const again = apply('workerDied', undefined);
    expect(again).toMatchObject({ ...nothing, outcomes: { counters: {} } });
    expect(again.outcomes.stats).toBeUndefined();
    // Another worker may load the blocks from the same place.
    load(1, 2);
  });

  it('reset the levels of the rank, so that bytes and stuck threads of a dead process do not count', () => {
    const { apply } = make();
    apply(
      { counters: { 'now.bytes': 500, 'now.stuckThreads': 2, 'tier.stored': 5 } },
      { counters: { 'now.bytes': 7 } },
    );
    const stats = { own: { stored: 5 }, levels: { own: { bytes: 7 } } };
    apply({ counters: { 'now.bytes': -100, 'now.stuckThreads': -2 }, stats }, { stats });
    const died = apply('workerDied', undefined).outcomes;
    expect(died.counters).toEqual({ 'now.bytes': -400 });
    expect(died.stats).toEqual({ levels: { own: { bytes: -7 } } });
    const again = apply('workerDied', undefined).outcomes;
    expect([again.counters, again.stats]).toEqual([{}, undefined]);
  });
});
