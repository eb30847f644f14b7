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
  const ledger = new TransferLedger(new ManualTime(), pins, 'fences');
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

describe('test_output_aggregator: merging', () => {
  it('a report counts although another rank failed in the same step', () => {
    const { load, save, apply } = make();
    const [one, two, four] = [save(1), load(3, 5), save(4)];
    const failed = { finishedSending: [one], loadFailures: failure(two, 3), counters: { loaded: 2 } };
    expect(apply(failed, undefined)).toMatchObject({ ...nothing, outcomes: { counters: { loaded: 2 } } });
    const second = apply(
      { finishedSending: [four], finishedRecving: [two], counters: { loaded: 1 } },
      { finishedSending: [one, four], finishedRecving: [two], counters: { loaded: 3 } },
    );
    expect(second).toMatchObject({ stored: [one, four], loaded: 1, failed: [[3, 'missing']] });
    expect(second.outcomes.counters).toEqual({ loaded: 4 });
  });

  it('a load that failed on one rank fails when the other rank reports its end (vLLM: finished ids seed the intersection)', () => {
    const { load, apply } = make();
    const five = [load(5)];
    expect(apply({ finishedRecving: five, failedRecving: five }, undefined)).toMatchObject(nothing);
    expect(apply(undefined, { finishedRecving: five }).failed).toEqual([[5, 'storeFailed']]);
  });

  it('two reports of one rank count as one (vLLM: pending events do not raise the quorum)', () => {
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
    expect(died.outcomes.counters).toEqual({ 'loadFailed.workerDied': 2, 'saveFailed.workerDied': 1 });
    expect([ledger.openCount, ledger.ignoredCount, pinned.size]).toEqual([0, 0, 0]);
    expect(apply('workerDied', undefined)).toMatchObject({ ...nothing, outcomes: { counters: {} } });
    // Another worker may load the blocks from the same place.
    load(1, 2);
  });

  it('reset the levels of the rank, so that bytes and stuck threads of a dead process do not count', () => {
    const { apply } = make();
    apply(
      { counters: { 'now.bytes': 500, 'now.stuckThreads': 2, 'tier.stored': 5 } },
      { counters: { 'now.bytes': 7 } },
    );
    apply({ counters: { 'now.bytes': -100, 'now.stuckThreads': -2 } }, undefined);
    expect(apply('workerDied', undefined).outcomes.counters).toEqual({ 'now.bytes': -400 });
    expect(apply('workerDied', undefined).outcomes.counters).toEqual({});
  });
});
