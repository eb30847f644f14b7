import { expect, test } from 'vitest';
import { type ConnectorMetadata, emptyMetadata, type WorkerConnector } from '../connector.ts';
import { stepWithConnector } from './worker-step.ts';

/** Records the names of the calls. */
function recorder(calls: string[]): WorkerConnector {
  const report = {
    finishedSending: [],
    finishedRecving: [],
    drained: [],
    failedRecving: [],
    saveFailures: [],
    evicted: [],
    counters: {},
    expectedFinishedCount: 0,
  };
  return {
    registerKvCaches: () => void calls.push('registerKvCaches'),
    handlePreemptions: async () => void calls.push('handlePreemptions'),
    bindConnectorMetadata: () => void calls.push('bindConnectorMetadata'),
    startLoadKv: () => void calls.push('startLoadKv'),
    waitForLayerLoad: async (layer) => void calls.push(`waitForLayerLoad ${layer}`),
    saveKvLayer: (layer) => void calls.push(`saveKvLayer ${layer}`),
    waitForSave: async () => void calls.push('waitForSave'),
    getFinished: () => {
      calls.push('getFinished');
      return report;
    },
    getBlockIdsWithLoadErrors: () => {
      calls.push('getBlockIdsWithLoadErrors');
      return [];
    },
    clearConnectorMetadata: () => void calls.push('clearConnectorMetadata'),
    shutdown: async () => ({ drained: true }),
  };
}
const begin = ['handlePreemptions', 'bindConnectorMetadata', 'startLoadKv'];
const end = ['getFinished', 'getBlockIdsWithLoadErrors', 'clearConnectorMetadata'];
const metadata: ConnectorMetadata = emptyMetadata;

test('kv_connector_lifecycle: a step without a forward pass binds and clears the metadata once each, and reports transfers', async () => {
  const calls: string[] = [];
  await stepWithConnector(recorder(calls), metadata, 2, undefined);
  // vLLM also calls `wait_for_save`. This step computes no KV, so it does not wait for layers or saves.
  expect(calls).toEqual([...begin, ...end]);
});

test('a step waits for the loads of each layer, ascending, and takes the failed blocks before the forward pass', async () => {
  const calls: string[] = [];
  await stepWithConnector(recorder(calls), metadata, 2, async () => void calls.push('forward'));
  expect(calls).toEqual([
    ...begin,
    'waitForLayerLoad 0',
    'waitForLayerLoad 1',
    'getBlockIdsWithLoadErrors',
    'forward',
    'saveKvLayer 0',
    'saveKvLayer 1',
    'waitForSave',
    ...end,
  ]);
});

test('a step waits for the saves that it flushes before it writes any block', async () => {
  const calls: string[] = [];
  let flushed = (): void => undefined;
  const side = {
    ...recorder(calls),
    handlePreemptions: () => new Promise<void>((resolve) => (flushed = resolve)),
  };
  const done = stepWithConnector(side, metadata, 1, async () => void calls.push('forward'));
  await new Promise((resolve) => setImmediate(resolve));
  expect(calls).toEqual([]);
  flushed();
  await done;
  expect(calls[0]).toBe('bindConnectorMetadata');
  expect(calls).toContain('forward');
});

test('a step clears the metadata also when the forward pass throws', async () => {
  const calls: string[] = [];
  const broken = stepWithConnector(recorder(calls), metadata, 1, () => Promise.reject(new Error('broken')));
  await expect(broken).rejects.toThrow('broken');
  expect(calls.at(-1)).toBe('clearConnectorMetadata');
});
