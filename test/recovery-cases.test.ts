/** Single ways of losing KV, on real weights: what `recovery-schedules.test.ts` meets by chance, by name. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type FaultRule, faultRule } from '../src/connector/fault/fault-rules.ts';
import { promptOf } from './support/drive.ts';
import type { StoredBlocks } from './support/memory-connector.ts';
import {
  blockSize,
  type Completion,
  type HarnessRequest,
  ignoredReports,
  type LifeOptions,
  RecoveryHarness,
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
/** Two that begin alike, for ten blocks. */
const sharers = [request([...shared, 3, 4, 5]), request([...shared, 9, 8, 7, 6])];

const said = ({ text, tokens, logprobs }: Completion) => ({ text, tokens, logprobs });

/** What the requests say alone and without a store, and what a store holds after that. */
async function prepared(requests: readonly HarnessRequest[]) {
  const expected: ReturnType<typeof said>[] = [];
  for (const one of requests) expected.push(said((await harness.live({ requests: [one] })).completions[0]!));
  const { stored } = await harness.live({ requests, store: { mode: 'async' } });
  return { expected, stored };
}

const faulty = (
  stored: StoredBlocks,
  mode: 'sync' | 'async',
  ...rules: (Pick<FaultRule, 'fault'> & Partial<FaultRule>)[]
): NonNullable<LifeOptions['store']> => ({ mode, stored, faults: [{ seed: 1, rules: rules.map(faultRule) }] });

describe.each(['sync', 'async'] as const)('with %s loads', (mode) => {
  it.each([8, 16])('a sharer of broken blocks waits until they are really refilled (%i rows a step)', async (rows) => {
    // Of the owner's blocks three are gone, and with 16 rows it takes him several steps to compute them again. A sharer
    // that ran meanwhile would read what is not there: vLLM issue 49250.
    const { expected, stored } = await prepared(sharers);
    const life = await harness.live({
      requests: sharers,
      store: faulty(stored, mode, { fault: 'missing', blocks: [2, 5, 8] }),
      scheduler: { maxNumBatchedTokens: 256, longPrefillTokenThreshold: rows },
    });
    expect(life.completions.map(said)).toEqual(expected);
    expect(life.failedBlocks).toBe(3);
    // Shared blocks are computed once, by one of the two.
    expect(life.stats.recomputedTokens).toBe(3 * blockSize);
  });

  it('a hole costs one block', async () => {
    const [first] = sharers;
    const { expected, stored } = await prepared([first!]);
    const store = faulty(stored, mode, { fault: 'missing', blocks: [4] });
    const { completions, stats } = await harness.live({ requests: [first!], store });
    expect(completions.map(said)).toEqual(expected);
    expect(stats).toMatchObject({ recomputedTokens: blockSize, transfers: { failedLoads: 1 } });
    expect(completions[0]!.stats.externalTokens).toBe(160);
  });

  it('late and duplicate completions are ignored', async () => {
    const { expected, stored } = await prepared(sharers);
    let ignored = 0;
    for (let seed = 0; seed < 8; seed++) {
      const life = await harness.live({
        requests: sharers,
        store: {
          ...faulty(stored, mode, { fault: 'duplicate' }, { fault: 'late', delayMs: 30, blocks: [1] }),
          reports: { seed, duplicate: 0.9, late: 0.5, unknown: 0.5 },
        },
        loadTimeoutMs: 20,
      });
      expect(life.completions.map(said)).toEqual(expected);
      ignored += ignoredReports(life);
    }
    expect(ignored).toBeGreaterThan(0);
  });
});

describe('nothing leaks', () => {
  // That all blocks are free or cached and no transfer is open afterwards is checked by the rig, after each life.
  it('when loads fail while requests are preempted', async () => {
    const requests = Array.from({ length: 4 }, (_, i) =>
      request(promptOf(60, i + 20, 250), { params: { temperature: 0, maxTokens: 60, ignoreEos: true, logprobs: 1 } }),
    );
    const { expected, stored } = await prepared(requests);
    const store = faulty(stored, 'async', { fault: 'bitFlip', probability: 0.5 });
    const life = await harness.live({ requests, store, blocks: 20 });
    expect(life.completions.map(said)).toEqual(expected);
    expect(life.stats.preemptions).toBeGreaterThan(0);
    expect(life.stats.transfers.failedLoads).toBeGreaterThan(0);
  });

  it.each(['slow', 'late', 'hung'] as const)('when a request is aborted while its loads are %s', async (fault) => {
    const { expected, stored } = await prepared(sharers);
    const store = faulty(stored, 'async', { fault, delayMs: 40, ignoresAbort: true, probability: 0.5 });
    const [first, second] = sharers;
    const { completions } = await harness.live({
      requests: [{ ...first!, abortAfter: 0 }, second!],
      store,
      loadTimeoutMs: 30,
    });
    expect(completions[0]).toMatchObject({ reason: 'abort', tokens: [] });
    expect(said(completions[1]!)).toEqual(expected[1]);
  });

  it.each(['slow', 'late', 'hung'] as const)('when the engine is closed while loads are %s', async (fault) => {
    const { stored } = await prepared(sharers);
    const store = faulty(stored, 'async', { fault, delayMs: 60, ignoresAbort: true, probability: 0.5 });
    const alone = request(promptOf(20, 99, 250));
    // The one that has nothing to load runs at once, and with its first token the engine goes.
    const { completions } = await harness.live({ requests: [...sharers, alone], store, closeAfter: 1 });
    expect(completions.map(({ reason }) => reason)).toEqual(['abort', 'abort', 'abort']);
  });
});
