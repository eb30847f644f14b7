import { expect, test } from 'vitest';
import { type ConnectorMetadata, emptyMetadata, type WorkerConnector } from '../connector.ts';
import { stepWithConnector } from './worker-step.ts';

/** Writes down what is called. */
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
    handlePreemptions: () => void calls.push('handlePreemptions'),
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

test('kv_connector_lifecycle: a step without a forward pass binds and clears the metadata once each, and moves transfers', async () => {
  const calls: string[] = [];
  await stepWithConnector(recorder(calls), metadata, 2, undefined);
  // As in vLLM's no-forward path: nobody waits for layers or saves.
  expect(calls).toEqual([...begin, ...end]);
});

test('a forward pass waits for each layer’s loads, ascending, and what failed is known before it', async () => {
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

test('a forward pass that throws clears the metadata all the same', async () => {
  const calls: string[] = [];
  const broken = stepWithConnector(recorder(calls), metadata, 1, () => Promise.reject(new Error('broken')));
  await expect(broken).rejects.toThrow('broken');
  expect(calls.at(-1)).toBe('clearConnectorMetadata');
});
