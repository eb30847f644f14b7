import { expect, it } from 'vitest';
import type { BlockMemory } from '../../core/block-memory.ts';
import { type BlockId, blockId, requestId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import {
  type BlockLoadFailure,
  type ConnectorMetadata,
  emptyMetadata,
  type LoadJob,
  type TransferId,
  type TransferReport,
  type WorkerConnector,
} from '../connector.ts';
import { StagedWorker } from './staged-worker.ts';
import { stepWithConnector } from './worker-step.ts';

const blockBytes = 4;
const nothing: TransferReport = {
  finishedSending: [],
  finishedRecving: [],
  drained: [],
  failedRecving: [],
  saveFailures: [],
  evicted: [],
  counters: {},
  expectedFinishedCount: 0,
};
const transfer = 1 as TransferId;

/** A pool with the block's id in each byte, and a connector whose reports the test writes. */
function rig() {
  const pool = new Map<BlockId, number[]>();
  const told = {
    report: nothing,
    failures: [] as BlockLoadFailure[],
    memory: undefined as BlockMemory | undefined,
    /** What happens while the forward pass waits for loads. */
    waits: [] as (() => void)[],
  };
  const inner: WorkerConnector = {
    registerKvCaches: (memory) => {
      told.memory = memory;
    },
    handlePreemptions: async () => undefined,
    bindConnectorMetadata: () => undefined,
    startLoadKv: () => undefined,
    waitForLayerLoad: async () => {
      for (const wait of told.waits.splice(0)) wait();
    },
    saveKvLayer: () => undefined,
    waitForSave: async () => undefined,
    getFinished: () => told.report,
    getBlockIdsWithLoadErrors: () => told.failures.splice(0),
    clearConnectorMetadata: () => undefined,
    shutdown: async () => ({ drained: false }),
  };
  const staged = new StagedWorker(inner, {
    blockCount: 9,
    blockBytes,
    read: (block, into) => void into.fill(block),
    write: (block, bytes) => void pool.set(block, [...bytes]),
  });
  const step = (
    metadata: Partial<ConnectorMetadata>,
    report: Partial<TransferReport> = {},
    forward?: () => Promise<void>,
  ) => {
    told.report = { ...nothing, ...report };
    return stepWithConnector(staged, { ...emptyMetadata, ...metadata }, 1, forward);
  };
  return { pool, told, step, bytesOf: (block: number) => told.memory!.bytesOf(blockId(block)), staged };
}

const loadOf = (...blocks: number[]): LoadJob => ({
  transfer,
  requestId: requestId('r'),
  mode: 'async',
  timeoutMs: 1000,
  blocks: blocks.map((block, index) => ({
    key: `0-${block}` as BlockKey,
    block: blockId(block),
    group: 0 as never,
    index: index as never,
    place: 'disk',
  })),
});

it('copies blocks of saves before the connector may read them, and has no copy after they are drained', async () => {
  const { step, bytesOf } = rig();
  await step({ saves: [{ transfer, blocks: [{ key: '0-5' as BlockKey, block: blockId(5) }] }] });
  expect([...bytesOf(5)]).toEqual([5, 5, 5, 5]);
  await step({}, { drained: [transfer] });
  expect(() => bytesOf(5)).toThrow('block 5 is of an open transfer');
});

it('writes each block of a load once: when it has arrived, or else when the load is decided', async () => {
  const { pool, step, bytesOf } = rig();
  await step({ loads: [loadOf(2, 3)] });
  bytesOf(2).fill(20);
  await step({}, { arrived: [{ transfer, block: blockId(2) }] });
  expect([...pool]).toEqual([[2, [20, 20, 20, 20]]]);
  // The engine may compute in an arrived block, so it is not written again.
  pool.clear();
  bytesOf(3).fill(30);
  await step({}, { finishedRecving: [transfer], drained: [transfer] });
  expect([...pool]).toEqual([[3, [30, 30, 30, 30]]]);
});

it('has written the blocks of `sync` loads when the forward pass begins', async () => {
  const { pool, told, step, bytesOf } = rig();
  told.waits.push(() => void bytesOf(2).fill(20));
  const seen: number[][] = [];
  await step({ loads: [{ ...loadOf(2), mode: 'sync' }] }, {}, async () => void seen.push(...pool.values()));
  expect(seen).toEqual([[20, 20, 20, 20]]);
});

it('does not write a `sync` load before it is decided, when its step computes nothing and so does not wait', async () => {
  const { pool, step, bytesOf } = rig();
  await step({ loads: [{ ...loadOf(2), mode: 'sync' }] });
  expect(pool.size).toBe(0);
  bytesOf(2).fill(20);
  await step({}, { finishedRecving: [transfer], drained: [transfer] });
  expect([...pool]).toEqual([[2, [20, 20, 20, 20]]]);
});

it('does not write a block that has failed, also if its load is decided later, because the engine computes it meanwhile', async () => {
  const { pool, told, step } = rig();
  await step({ loads: [loadOf(2, 3)] });
  told.failures.push({ transfer, block: blockId(2), reason: 'missing', isBlockBusy: false } as BlockLoadFailure);
  await step({});
  await step({}, { finishedRecving: [transfer], drained: [transfer] });
  expect([...pool.keys()]).toEqual([3]);
});

it('writes no block of a load that failed as a whole', async () => {
  const { pool, step } = rig();
  await step({ loads: [loadOf(2)] });
  await step({}, { failedRecving: [transfer] });
  await step({}, { finishedRecving: [transfer], drained: [transfer] });
  expect(pool.size).toBe(0);
});

it('lets the memory of the device be freed while I/O still touches the copies', async () => {
  expect(await rig().staged.shutdown({ timeoutMs: 0 })).toEqual({ drained: true });
});
