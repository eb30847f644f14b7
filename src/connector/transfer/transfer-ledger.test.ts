import { expect, test } from 'vitest';
import { ManualTime } from '../../../test/support/manual-time.ts';
import { type BlockId, blockId, blockIndex, groupIndex, type RequestId, requestId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import type { ConnectorOutput, LoadBlock, LoadMode, TransferId } from '../connector.ts';
import { emptyOutput } from '../connector.ts';
import type { LoadFailureReason } from '../reasons.ts';
import { TransferLedger } from './transfer-ledger.ts';

const key = (n: number) => `0-${`${n}`.padStart(64, '0')}` as BlockKey;
const block = (n: number, place = 'disk'): LoadBlock => ({
  group: groupIndex(0),
  index: blockIndex(n),
  key: key(n),
  place,
  block: blockId(n),
});
const [alice, bob] = [requestId('alice'), requestId('bob')];
const noSaves = { saves: [] };

function make() {
  const time = new ManualTime();
  const pinned = new Map<BlockId, number>();
  const add = (block: BlockId, by: number): void => {
    const count = (pinned.get(block) ?? 0) + by;
    if (count === 0) pinned.delete(block);
    else pinned.set(block, count);
  };
  const ledger = new TransferLedger(time, { pin: (block) => add(block, 1), release: (block) => add(block, -1) });
  const apply = (output: Partial<ConnectorOutput>) => {
    const { loads, outcomes } = ledger.apply([{ ...emptyOutput, ...output }]);
    const pins = new Map<BlockId, number>();
    ledger.eachPin((block) => pins.set(block, (pins.get(block) ?? 0) + 1));
    expect(pins).toEqual(pinned);
    const loaded = outcomes.loads.filter(({ result }) => result === 'loaded').map(({ block }) => block);
    const failed = outcomes.loads.filter(({ result }) => result !== 'loaded');
    const decided = loads.filter(({ load }) => load.isDecided).map(({ load }) => load.job.transfer);
    return { decided, loaded, failed, saves: outcomes.saves };
  };
  const openLoad = (request: RequestId, mode: LoadMode, timeoutMs: number, blocks: readonly LoadBlock[]) =>
    ledger.openLoad(request, { mode, timeoutMs, blocks }, undefined);
  const abandonAll = (): void => {
    for (const load of ledger.awaited()) ledger.abandon(load);
  };
  const failure = (transfer: TransferId, block: number, reason: LoadFailureReason = 'missing') => ({
    transfer,
    block: blockId(block),
    reason,
    isBlockBusy: reason === 'timedOut',
  });
  const fenced = (): number[] => {
    const blocks: number[] = [];
    ledger.eachSavedBlock((block) => blocks.push(block));
    return blocks;
  };
  return { time, ledger, openLoad, abandonAll, pinned, fenced, apply, failure };
}

test('a load is sent once, and its blocks are pinned until no I/O touches them', () => {
  const { ledger, pinned, apply, failure, openLoad } = make();
  const load = openLoad(alice, 'async', 100, [block(1), block(2)]);
  expect([...pinned.keys()]).toEqual([1, 2]);
  expect(ledger.composeMetadata(noSaves).loads).toEqual([load]);
  expect(ledger.composeMetadata(noSaves).loads).toEqual([]);
  const { loaded, failed } = apply({
    finishedRecving: [load.transfer],
    loadFailures: [failure(load.transfer, 2, 'timedOut')],
  });
  expect(loaded).toEqual([1]);
  expect(failed).toMatchObject([{ block: 2, place: 'disk', result: 'timedOut', isBlockBusy: true }]);
  expect([...pinned.keys()]).toEqual([2]);
  apply({ drained: [load.transfer] });
  expect(pinned.size).toBe(0);
  expect(ledger.openCount).toBe(0);
});

test('a block may fail before its load is decided, and ranks may report different reasons', () => {
  const { ledger, pinned, apply, failure, openLoad } = make();
  const { transfer } = openLoad(alice, 'async', 100, [block(1), block(2)]);
  ledger.composeMetadata(noSaves);
  expect(apply({ loadFailures: [failure(transfer, 1, 'truncated')] }).decided).toEqual([]);
  const { failed } = apply({ loadFailures: [failure(transfer, 1, 'timedOut')], finishedRecving: [transfer] });
  expect(failed).toMatchObject([{ result: 'truncated', isBlockBusy: true }]);
  expect([...pinned.keys()]).toEqual([1]);
});

test('late, duplicate and unknown reports are counted, change nothing, and do not reach the connector (I6)', () => {
  const { ledger, pinned, apply, failure, openLoad } = make();
  const { transfer } = openLoad(alice, 'async', 100, [block(1)]);
  ledger.composeMetadata(noSaves);
  apply({ finishedRecving: [transfer], loadFailures: [failure(transfer, 1, 'timedOut')] });
  const change = apply({
    finishedRecving: [transfer, 77 as TransferId],
    loadFailures: [failure(transfer, 1), failure(77 as TransferId, 1)],
    failedRecving: [transfer],
    finishedSending: [transfer],
    saveFailures: [{ transfer, key: key(1), reason: 'storeFull' }],
    drained: [78 as TransferId],
  });
  expect(change).toEqual({ decided: [], loaded: [], failed: [], saves: [] });
  expect(ledger.ignoredCount).toBe(8);
  expect(pinned.size).toBe(1);
  apply({ drained: [transfer] });
  apply({ drained: [transfer] });
  expect(ledger.ignoredCount).toBe(9);
  expect(pinned.size).toBe(0);
});

test('a failure of a block that is not part of the load is ignored', () => {
  const { ledger, apply, failure, openLoad } = make();
  const { transfer } = openLoad(alice, 'sync', 100, [block(1)]);
  expect(apply({ loadFailures: [failure(transfer, 5)], finishedRecving: [transfer] }).failed).toEqual([]);
  expect(ledger.ignoredCount).toBe(1);
});

test('a block that failed is not loaded again from the same place for the same request', () => {
  const { ledger, apply, failure, openLoad } = make();
  const { transfer } = openLoad(alice, 'async', 100, [block(1), block(2)]);
  apply({ finishedRecving: [transfer], drained: [transfer], loadFailures: [failure(transfer, 1)] });
  expect(ledger.isUsable(alice, block(1))).toBe(false);
  expect(ledger.isUsable(alice, block(1, 'redis'))).toBe(true);
  expect(ledger.isUsable(alice, block(2))).toBe(true);
  expect(ledger.isUsable(bob, block(1))).toBe(true);
  expect(() => openLoad(alice, 'async', 100, [block(1)])).toThrow(/failed for alice from disk before/);
  expect(ledger.wanted(alice, [block(1), block(2)])).toEqual([{ ...block(1), failedFrom: ['disk'] }, block(2)]);
  expect(ledger.wanted(bob, [block(1)])).toEqual([block(1)]);
  ledger.forget(alice);
  expect(ledger.isUsable(alice, block(1))).toBe(true);
});

test('all blocks of a load that failed as a whole are failed', () => {
  const { apply, openLoad } = make();
  const { transfer } = openLoad(alice, 'async', 100, [block(1), block(2)]);
  const { failed } = apply({ finishedRecving: [transfer], failedRecving: [transfer], drained: [transfer] });
  expect(failed.map(({ block, result }) => [block, result])).toEqual([
    [1, 'storeFailed'],
    [2, 'storeFailed'],
  ]);
});

test('an abandoned load is not sent, or is cancelled and its blocks stay pinned until drained', () => {
  const { ledger, pinned, apply, openLoad, abandonAll } = make();
  openLoad(alice, 'async', 100, [block(1)]);
  abandonAll();
  expect(pinned.size).toBe(0);
  expect(ledger.composeMetadata(noSaves)).toMatchObject({ loads: [], cancelled: [] });

  const { transfer } = openLoad(alice, 'async', 100, [block(1)]);
  ledger.composeMetadata(noSaves);
  abandonAll();
  ledger.forget(alice);
  expect(ledger.hasUnsent).toBe(true);
  expect(ledger.composeMetadata(noSaves).cancelled).toEqual([transfer]);
  expect(pinned.size).toBe(1);
  // The connector hears of it, and no request does.
  expect(apply({ finishedRecving: [transfer], drained: [transfer] })).toMatchObject({ decided: [], loaded: [1] });
  expect(pinned.size).toBe(0);
});

test('a step flushes the saves whose blocks it overwrites, once, and their reports are still expected', () => {
  const { ledger, pinned, fenced, apply } = make();
  const save = (blocks: number[]) => ({
    transfer: ledger.newTransferId(),
    blocks: blocks.map((n) => ({ key: key(n), block: blockId(n) })),
  });
  const [first, second, third] = [save([1, 2]), save([2, 3]), save([4])];
  expect(ledger.composeMetadata({ saves: [first, second, third] }).jobsToFlush).toEqual([]);
  expect(pinned.size).toBe(0);
  expect(fenced()).toEqual([1, 2, 2, 3, 4]);
  for (const block of [2, 1, 9]) ledger.willOverwrite(blockId(block));
  expect(fenced()).toEqual([4]);
  expect(ledger.hasUnsent).toBe(true);
  // The step overwrites block 5 before the connector is offered it.
  const fourth = save([5, 6]);
  const { jobsToFlush } = ledger.composeMetadata({ saves: [fourth] }, (block) => block === 5);
  expect(jobsToFlush).toEqual([first.transfer, second.transfer, fourth.transfer]);
  expect(ledger.flushedSaves).toBe(3);
  expect(fenced()).toEqual([4]);
  const all = [first, second, third, fourth].map(({ transfer }) => transfer);
  const failure = { transfer: first.transfer, key: key(1), reason: 'storeFailed' } as const;
  expect(
    apply({ drained: all, finishedSending: all, saveFailures: [failure] }).saves.filter(
      ({ result }) => result === 'storeFailed',
    ),
  ).toHaveLength(1);
  expect(ledger.openCount).toBe(0);
  expect(ledger.ignoredCount).toBe(0);
  ledger.willOverwrite(blockId(4));
  expect(ledger.hasUnsent).toBe(false);
});

test('the blocks of saves are fenced until they are drained, and saved until all their saves are decided', () => {
  const { ledger, pinned, fenced, apply } = make();
  const save = (blocks: number[]) => ({
    transfer: ledger.newTransferId(),
    blocks: blocks.map((n) => ({ key: key(n), block: blockId(n) })),
  });
  const [first, second] = [save([1, 2]), save([2, 3])];
  ledger.composeMetadata({ saves: [first, second] });
  expect(fenced()).toEqual([1, 2, 2, 3]);
  apply({ drained: [second.transfer] });
  expect(fenced()).toEqual([1, 2]);
  ledger.willOverwrite(blockId(3));
  expect(ledger.composeMetadata(noSaves).jobsToFlush).toEqual([]);
  ledger.willOverwrite(blockId(2));
  expect(ledger.composeMetadata(noSaves).jobsToFlush).toEqual([first.transfer]);
  const full = { transfer: second.transfer, key: key(2), reason: 'storeFull' } as const;
  expect([1, 2, 3].map((n) => ledger.isSaving(key(n)))).toEqual([true, true, true]);
  expect(apply({ saveFailures: [full], finishedSending: [second.transfer] }).saves).toEqual([
    { transfer: second.transfer, key: key(2), result: 'storeFull' },
    { transfer: second.transfer, key: key(3), result: 'stored' },
  ]);
  expect([1, 2, 3].map((n) => ledger.isSaving(key(n)))).toEqual([true, true, false]);
  expect(ledger.wanted(alice, [block(2), block(3)])).toEqual([{ ...block(2), isSaving: true }, block(3)]);
  expect(ledger.openCount).toBe(1);
  apply({ finishedSending: [first.transfer] });
  expect(ledger.openCount).toBe(1);
  apply({ drained: [first.transfer] });
  expect(pinned.size).toBe(0);
  expect(ledger.openCount).toBe(0);
});

test('a load without a report expires (I8), and its blocks stay pinned (I5)', () => {
  const { time, ledger, pinned, apply, openLoad } = make();
  const { transfer } = openLoad(alice, 'async', 1000, [block(1)]);
  ledger.composeMetadata(noSaves);
  expect(ledger.nextExpiryMs()).toBe(6000);
  time.advance(5999);
  expect(apply({}).decided).toEqual([]);
  time.advance(1);
  const { decided, failed } = apply({});
  expect(decided).toEqual([transfer]);
  expect(failed.map(({ result }) => result)).toEqual(['notReported']);
  expect(apply({}).decided).toEqual([]);
  expect(ledger.nextExpiryMs()).toBeUndefined();
  expect(ledger.isUsable(alice, block(1))).toBe(false);
  expect(ledger.composeMetadata(noSaves).cancelled).toEqual([transfer]);
  expect(pinned.size).toBe(1);
  apply({ finishedRecving: [transfer], drained: [transfer] });
  expect(pinned.size).toBe(0);
  expect(ledger.ignoredCount).toBe(1);
});

test('blocks that arrive before their load is decided: async loads only, and no block that failed on a rank', () => {
  const { apply, failure, pinned, openLoad } = make();
  const { transfer } = openLoad(alice, 'async', 100, [block(1), block(2), block(3)]);
  const { transfer: sync } = openLoad(bob, 'sync', 100, [block(4)]);
  const arrived = (id: TransferId, ...blocks: number[]) => blocks.map((n) => ({ transfer: id, block: blockId(n) }));
  expect(apply({ arrived: [...arrived(transfer, 1, 9), ...arrived(sync, 4)] }).loaded).toEqual([1]);
  // Another rank fails before the block has arrived there, in an earlier report or in the same one.
  apply({ loadFailures: [failure(transfer, 2, 'workerDied')] });
  expect(apply({ arrived: arrived(transfer, 2) }).loaded).toEqual([]);
  const both = { loadFailures: [failure(transfer, 3)], arrived: arrived(transfer, 3) };
  expect(apply(both).loaded).toEqual([]);
  expect(pinned.has(blockId(1))).toBe(true);
  const end = apply({ finishedRecving: [transfer], arrived: arrived(transfer, 1) });
  expect([end.loaded, end.failed.map(({ block: id }) => id)]).toEqual([[], [2, 3]]);
  apply({ drained: [transfer] });
  expect(apply({ arrived: arrived(transfer, 1) }).loaded).toEqual([]);
});

test('a load that is drained before it expires keeps no pin', () => {
  const { time, ledger, openLoad, apply, pinned } = make();
  const { transfer } = openLoad(alice, 'async', 1000, [block(1)]);
  ledger.composeMetadata(noSaves);
  apply({ drained: [transfer] });
  expect(pinned.size).toBe(1);
  time.advance(6000);
  expect(apply({}).failed).toMatchObject([{ result: 'notReported' }]);
  expect([pinned.size, ledger.openCount]).toEqual([0, 0]);
});
