import { describe, expect, it } from 'vitest';
import type { BlockKey } from '../connector/block-key.ts';
import {
  type ConnectorMetadata,
  emptyMetadata,
  emptyOutput,
  type LoadJob,
  type SaveJob,
  type TransferId,
} from '../connector/connector.ts';
import { blockId, blockIndex, groupIndex, requestId } from '../core/ids.ts';
import { OpenTransfers } from './open-transfers.ts';

const id = (value: number): TransferId => value as TransferId;
const key = (value: number): BlockKey => `0:${value}` as BlockKey;

const load = (transfer: number, ...blocks: number[]): LoadJob => ({
  transfer: id(transfer),
  requestId: requestId('a'),
  mode: 'async',
  timeoutMs: 1000,
  blocks: blocks.map((block) => ({
    group: groupIndex(0),
    index: blockIndex(block),
    key: key(block),
    place: 'disk',
    block: blockId(block),
  })),
});
const save = (transfer: number, ...blocks: number[]): SaveJob => ({
  transfer: id(transfer),
  blocks: blocks.map((block) => ({ key: key(block), block: blockId(block) })),
});
const ordered = (loads: LoadJob[], saves: SaveJob[] = []): ConnectorMetadata => ({ ...emptyMetadata, loads, saves });
const failedLoad = (transfer: number, block: number) => ({
  transfer: id(transfer),
  block: blockId(block),
  reason: 'workerDied',
  isBlockBusy: false,
});

describe('the transfers of a process that died', () => {
  it('are reported as ended, each once, unless the process reported them', () => {
    const transfers = new OpenTransfers();
    transfers.ordered(ordered([load(1, 7, 8), load(2, 9), load(3, 4)], [save(4, 5), save(6, 6), save(7, 7)]));
    transfers.reported({
      ...emptyOutput,
      // 2 and 6 have ended. 3 is decided and not drained. 4 is drained and not decided.
      finishedRecving: [id(2), id(3)],
      finishedSending: [id(6)],
      drained: [id(2), id(4), id(6)],
    });
    expect(transfers.count).toBe(4);
    expect(transfers.settle()).toEqual({
      ...emptyOutput,
      finishedRecving: [id(1)],
      loadFailures: [failedLoad(1, 7), failedLoad(1, 8)],
      finishedSending: [id(4), id(7)],
      saveFailures: [
        { transfer: id(4), key: key(5), reason: 'workerDied' },
        { transfer: id(7), key: key(7), reason: 'workerDied' },
      ],
      drained: [id(1), id(3), id(7)],
      stats: { loadFailed: { workerDied: 2 }, saveFailed: { workerDied: 2 } },
    });
    expect(transfers.settle()).toEqual(emptyOutput);
  });

  it('reset its levels, so that bytes and stuck threads of a dead process do not count', () => {
    const transfers = new OpenTransfers();
    transfers.reported({ ...emptyOutput, counters: { 'now.bytes': 500, 'now.stuckThreads': 2, 'tier.stored': 5 } });
    transfers.reported({ ...emptyOutput, counters: { 'now.bytes': -100, 'now.stuckThreads': -2 } });
    transfers.reported({ ...emptyOutput, stats: { own: { stored: 5 }, levels: { own: { bytes: 7 } } } });
    expect(transfers.settle()).toMatchObject({
      counters: { 'now.bytes': -400 },
      stats: { levels: { own: { bytes: -7 } } },
    });
    expect(transfers.settle()).toEqual(emptyOutput);
  });

  it('do not include transfers that were never ordered', () => {
    const transfers = new OpenTransfers();
    transfers.reported({ ...emptyOutput, finishedRecving: [id(1)], drained: [id(1), id(2)] });
    expect(transfers.count).toBe(0);
  });
});
