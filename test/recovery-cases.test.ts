/** Single faults with real weights, by name; `recovery-schedules.test.ts` has random combinations of them. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type FaultRule, faultRule } from '../src/connector/fault/fault-rules.ts';
import { promptOf } from './support/drive.ts';
import type { StoredBlocks } from './support/memory-connector.ts';
import {
  blockSize,
  type Completion,
  type HarnessRequest,
  ignoredReports,
  RecoveryHarness,
  type RunOptions,
} from './support/recovery-harness.ts';

let harness: RecoveryHarness;
beforeAll(async () => {
  harness = await RecoveryHarness.open('models/kvasir-demo.gguf');
});
afterAll(() => harness.close());

const shared = promptOf(160, 7, 250);
const request = (prompt: ArrayLike<number>, more: Partial<HarnessRequest> = {}): HarnessRequest => ({
  prompt: Array.from(prompt),
  params: { temperature: 0.8, seed: 5, maxTokens: 12, ignoreEos: true, logprobs: 1 },
  ...more,
});
/** Two requests with a shared prefix of ten blocks. */
const sharers = [request([...shared, 3, 4, 5]), request([...shared, 9, 8, 7, 6])];

const outputOf = ({ text, tokens, logprobs }: Completion) => ({ text, tokens, logprobs });

/** The output of each request alone without a store, and the content of a store after all of them. */
async function prepared(requests: readonly HarnessRequest[]) {
  const expected: ReturnType<typeof outputOf>[] = [];
  for (const one of requests) expected.push(outputOf((await harness.run({ requests: [one] })).completions[0]!));
  const { stored } = await harness.run({ requests, store: { mode: 'async' } });
  return { expected, stored };
}

const faulty = (
  stored: StoredBlocks,
  mode: 'sync' | 'async',
  ...rules: (Pick<FaultRule, 'fault'> & Partial<FaultRule>)[]
): NonNullable<RunOptions['store']> => ({ mode, stored, faults: [{ seed: 1, rules: rules.map(faultRule) }] });

describe.each(['sync', 'async'] as const)('requests with %s loads', (mode) => {
  it.each([8, 16])('wait until shared invalid blocks are filled again (steps of %i tokens)', async (threshold) => {
    // Three of the owner's blocks are missing. With a threshold of 16, it computes them again in several steps. If the other request
    // ran meanwhile, it would read invalid KV: vLLM issue 49250.
    const { expected, stored } = await prepared(sharers);
    const result = await harness.run({
      requests: sharers,
      store: faulty(stored, mode, { fault: 'missing', blocks: [2, 5, 8] }),
      scheduler: { maxNumBatchedTokens: 256, longPrefillTokenThreshold: threshold },
    });
    expect(result.completions.map(outputOf)).toEqual(expected);
    expect(result.failedBlocks).toBe(3);
    // Shared blocks are computed once, by one of the two.
    expect(result.stats.recomputedTokens).toBe(3 * blockSize);
  });

  it('recompute one block for a hole of one block', async () => {
    const [first] = sharers;
    const { expected, stored } = await prepared([first!]);
    const store = faulty(stored, mode, { fault: 'missing', blocks: [4] });
    const { completions, stats } = await harness.run({ requests: [first!], store });
    expect(completions.map(outputOf)).toEqual(expected);
    expect(stats).toMatchObject({ recomputedTokens: blockSize, transfers: { failedLoads: 1 } });
    expect(completions[0]!.stats.externalTokens).toBe(160);
  });

  it('ignore late and repeated reports', async () => {
    const { expected, stored } = await prepared(sharers);
    let ignored = 0;
    for (let seed = 0; seed < 8; seed++) {
      const result = await harness.run({
        requests: sharers,
        store: {
          ...faulty(stored, mode, { fault: 'duplicate' }, { fault: 'late', delayMs: 30, blocks: [1] }),
          reports: { seed, duplicate: 0.9, late: 0.5, unknown: 0.5 },
        },
        loadTimeoutMs: 20,
      });
      expect(result.completions.map(outputOf)).toEqual(expected);
      ignored += ignoredReports(result);
    }
    expect(ignored).toBeGreaterThan(0);
  });
});

describe('no block and no transfer leaks', () => {
  // After each run, the harness checks that all blocks are free or cached and no transfer is open.
  it('when loads fail while requests are preempted', async () => {
    const requests = Array.from({ length: 4 }, (_, i) =>
      request(promptOf(60, i + 20, 250), { params: { temperature: 0, maxTokens: 60, ignoreEos: true, logprobs: 1 } }),
    );
    const { expected, stored } = await prepared(requests);
    const store = faulty(stored, 'async', { fault: 'bitFlip', probability: 0.5 });
    const result = await harness.run({ requests, store, blocks: 20 });
    expect(result.completions.map(outputOf)).toEqual(expected);
    expect(result.stats.preemptions).toBeGreaterThan(0);
    expect(result.stats.transfers.failedLoads).toBeGreaterThan(0);
  });

  it.each(['slow', 'late', 'hung'] as const)('when a request is aborted while its loads are %s', async (fault) => {
    const { expected, stored } = await prepared(sharers);
    const store = faulty(stored, 'async', { fault, delayMs: 40, ignoresAbort: true, probability: 0.5 });
    const [first, second] = sharers;
    const { completions } = await harness.run({
      requests: [{ ...first!, abortAfter: 0 }, second!],
      store,
      loadTimeoutMs: 30,
    });
    expect(completions[0]).toMatchObject({ reason: 'abort', tokens: [] });
    expect(outputOf(completions[1]!)).toEqual(expected[1]);
  });

  it.each(['slow', 'late', 'hung'] as const)('when the engine is closed while loads are %s', async (fault) => {
    const { stored } = await prepared(sharers);
    const store = faulty(stored, 'async', { fault, delayMs: 60, ignoresAbort: true, probability: 0.5 });
    const alone = request(promptOf(20, 99, 250));
    // The request without loads runs at once, and the engine closes at its first token.
    const { completions } = await harness.run({ requests: [...sharers, alone], store, closeAfter: 1 });
    expect(completions.map(({ reason }) => reason)).toEqual(['abort', 'abort', 'abort']);
  });
});
