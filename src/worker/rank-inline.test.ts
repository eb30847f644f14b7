import { expect, test } from 'vitest';
import { emptyMetadata, type KvIdentity, type TransferId, type WorkerConnector } from '../connector/connector.ts';
import { CheckingRunner, suiteFingerprint } from '../connector/connector-checks.suite.ts';
import { requestId, stepId, tokenCount } from '../core/ids.ts';
import { TokenBuffer } from '../core/tokens.ts';
import { InlineRank } from './rank-inline.ts';

const identity: KvIdentity = {
  fingerprint: suiteFingerprint,
  modelName: 'model',
  dtype: 'f16',
  rank: 0,
  worldSize: 1,
  blockBytes: 1024,
  groups: [{ blockSize: 16, layers: [0, 1, 2] }],
};
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

test('the first rank computes before `execute` returns, so that the event loop works beside it', async () => {
  const runner = new CheckingRunner(identity, 4);
  let steps = 0;
  const execute = runner.execute.bind(runner);
  runner.execute = (...args) => {
    steps++;
    return execute(...args);
  };
  const rank = new InlineRank(runner, identity);
  const table = { ids: Int32Array.of(1), length: 1 };
  const tokens = new TokenBuffer(Int32Array.of(5), 1);
  const spans = [{ start: tokenCount(0), end: tokenCount(1) }];
  const sequence = { requestId: requestId('a'), tokens, spans, blockTables: [table] };
  const step = { stepId: stepId(1), sequences: [sequence], tokenCount: tokenCount(1), released: [] };
  const computing = rank.execute(step, undefined);
  expect(steps).toBe(1);
  await computing;
  await rank.close({ timeoutMs: 0 });
});

test('a rank that waits for saves that a step flushes counts as computing, so the deadline of steps ends the wait', async () => {
  let flushed = (): void => undefined;
  const side: WorkerConnector = {
    registerKvCaches: () => undefined,
    handlePreemptions: () => new Promise((resolve) => (flushed = resolve)),
    bindConnectorMetadata: () => undefined,
    startLoadKv: () => undefined,
    waitForLayerLoad: () => Promise.resolve(),
    saveKvLayer: () => undefined,
    waitForSave: () => Promise.resolve(),
    getFinished: () => report,
    getBlockIdsWithLoadErrors: () => [],
    clearConnectorMetadata: () => undefined,
    shutdown: () => Promise.resolve({ drained: true }),
  };
  const rank = new InlineRank(new CheckingRunner(identity, 4), identity, side);
  const step = (jobsToFlush: TransferId[]) => ({
    stepId: stepId(1),
    sequences: [],
    tokenCount: tokenCount(0),
    released: [],
    connectorMetadata: { ...emptyMetadata, jobsToFlush },
  });
  const idle = rank.execute(step([]), undefined);
  expect(rank.isComputing).toBe(false);
  flushed();
  await idle;
  const flushing = rank.execute(step([1 as TransferId]), undefined);
  expect(rank.isComputing).toBe(true);
  flushed();
  await flushing;
  expect(rank.isComputing).toBe(false);
  await rank.close({ timeoutMs: 0 });
});
