import { describe, expect, it } from 'vitest';
import { type BlockId, blockIndex, groupIndex, type RequestId } from '../../core/ids.ts';
import type { BlockLoadFailure, LoadJob, TransferId } from '../connector.ts';
import { OpenLoads } from './open-loads.ts';
import { suiteKey } from './tier.suite.ts';

const [a, b] = ['a' as RequestId, 'b' as RequestId];
const transfer = (id: number): TransferId => id as TransferId;
const job = (id: number, requestId: RequestId, blocks: readonly number[]): LoadJob => ({
  transfer: transfer(id),
  requestId,
  mode: 'async',
  timeoutMs: 1000,
  blocks: blocks.map((block) => ({
    group: groupIndex(0),
    index: blockIndex(block),
    key: suiteKey(block),
    place: 'host',
    block: block as BlockId,
  })),
});
const failure = (id: number, block: number, reason: BlockLoadFailure['reason'] = 'corrupt'): BlockLoadFailure => ({
  transfer: transfer(id),
  block: block as BlockId,
  reason,
  isBlockBusy: false,
});

describe('OpenLoads', () => {
  it('names the request, key and place of each block that failed, and the reason', () => {
    const loads = new OpenLoads();
    loads.begin(job(1, a, [1, 2]));
    loads.begin(job(2, b, [3]));
    expect(loads.failedBlocks([failure(1, 2), failure(2, 3, 'missing')])).toEqual([
      { requestId: a, key: suiteKey(2), place: 'host', reason: 'corrupt' },
      { requestId: b, key: suiteKey(3), place: 'host', reason: 'missing' },
    ]);
  });

  it('does not blame the tier for blocks that were lost with a worker, and ignores unknown loads and blocks', () => {
    const loads = new OpenLoads();
    loads.begin(job(1, a, [1]));
    expect(loads.failedBlocks([failure(1, 1, 'workerDied'), failure(9, 1), failure(1, 7)])).toEqual([]);
  });

  it('returns the blocks of a load when it is over, once', () => {
    const loads = new OpenLoads();
    loads.begin(job(1, a, [1, 2]));
    expect(loads.finish(transfer(1)).map(({ key }) => key)).toEqual([suiteKey(1), suiteKey(2)]);
    expect(loads.finish(transfer(1))).toEqual([]);
  });

  it('forgets the loads of one request', () => {
    const loads = new OpenLoads();
    loads.begin(job(1, a, [1]));
    loads.begin(job(2, b, [2]));
    loads.forget(a);
    expect(loads.finish(transfer(1))).toEqual([]);
    expect(loads.finish(transfer(2))).toHaveLength(1);
  });
});
