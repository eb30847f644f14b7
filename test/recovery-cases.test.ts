/** Single faults with real weights, by name; `recovery-schedules.test.ts` has random combinations of them. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { neededTokens } from '../src/cli/proof/needed-tokens.ts';
import { keysInGroups } from '../src/cli/proof/stored-blocks.ts';
import { type BlockKey, groupOfKey } from '../src/connector/block-key.ts';
import { type FaultRule, faultRule } from '../src/connector/fault/fault-rules.ts';
import { promptOf } from './support/drive.ts';
import { inLongForm } from './support/long-form.ts';
import type { StoredBlocks } from './support/memory-connector.ts';
import {
  blockSize,
  type Completion,
  type HarnessRequest,
  ignoredReports,
  RecoveryHarness,
  type RunOptions,
} from './support/recovery-harness.ts';
import { temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

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
async function prepared(requests: readonly HarnessRequest[], on = harness) {
  const expected: ReturnType<typeof outputOf>[] = [];
  for (const one of requests) expected.push(outputOf((await on.run({ requests: [one] })).completions[0]!));
  const { stored } = await on.run({ requests, store: { mode: 'async' } });
  return { expected, stored };
}

const faulty = (
  stored: StoredBlocks,
  mode: 'sync' | 'async',
  ...rules: (Pick<FaultRule, 'fault'> & Partial<FaultRule>)[]
): NonNullable<RunOptions['store']> => ({ mode, stored, faults: [{ seed: 1, rules: rules.map(faultRule) }] });

describe.each(inLongForm<readonly ('sync' | 'async')[]>(['sync', 'async'], ['async']))(
  'requests with %s loads',
  (mode) => {
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
      for (let seed = 0; seed < inLongForm(8, 4); seed++) {
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
  },
);

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

describe('a gemma3 on two ranks, of which the second has no layer of the third KV group', () => {
  const folder = temporaryFolder();
  let ranks: RecoveryHarness;
  beforeAll(async () => {
    const path = folder.file('unequal.gguf');
    await writeTinyModel(path, { architecture: 'gemma3', type: 'Q8_0', layers: 5 });
    ranks = await RecoveryHarness.open(path, 2);
  });
  afterAll(async () => {
    await ranks.close();
    folder.remove();
  });
  /** Ranks and groups with layers. */
  const parts = [0, 1].flatMap((rank) => [0, 1, 2].map((group) => ({ rank, group }))).slice(0, 5);

  it('stores and loads on each rank only blocks of groups with layers there', async () => {
    expect(ranks.identities.map(({ groups }) => groups.map(({ layers }) => layers.length > 0))).toEqual([
      [true, true, true],
      [true, true, false],
    ]);
    const requests = [sharers[0]!];
    const { expected, stored } = await prepared(requests, ranks);
    const groupsOf = (blocks: ReadonlyMap<BlockKey, unknown>) =>
      [...new Set([...blocks.keys()].map(groupOfKey))].toSorted((a, b) => a - b);
    expect(stored.map(groupsOf)).toEqual([
      [0, 1, 2],
      [0, 1],
    ]);
    expect(stored[1]!.size).toBe([...stored[0]!.keys()].filter((key) => groupOfKey(key) < 2).length);
    const loaded = await ranks.run({ requests, store: { mode: 'async', stored } });
    expect(loaded.completions.map(outputOf)).toEqual(expected);
    const found = [...loaded.arrived].map((key) => groupOfKey(key as BlockKey));
    expect(found).toContain(2);
    // Each block is loaded on two ranks, those of the third group on one.
    expect(loaded.stats.transfers.counters.loadedBlocks).toBe(2 * found.length - found.filter((g) => g === 2).length);
    expect(loaded.completions[0]!.stats.computedTokens).toBe(3 + 11);
  });

  it.each(parts)('computes a block of group $group that rank $rank has lost again', async ({ rank, group }) => {
    const [only] = sharers;
    const { expected, stored } = await prepared([only!], ranks);
    const keys = keysInGroups(only!.prompt as number[], ranks.groups, ranks.identities[0]!.fingerprint);
    const lost = keys[group]![9]!;
    const rules = [faultRule({ fault: 'missing', keys: [lost] })];
    const faults = [0, 1].map((at) => ({ seed: 1, rules: at === rank ? rules : [] }));
    for (const mode of ['sync', 'async'] as const) {
      const result = await ranks.run({ requests: [only!], store: { mode, stored, faults } });
      expect(result.completions.map(outputOf)).toEqual(expected);
      expect(result.failedBlocks).toBe(1);
      expect(result.arrived.has(lost)).toBe(false);
      const tokenCount = (only!.prompt as number[]).length;
      const available = result.arrived;
      const minimum = neededTokens([{ tokenCount, keys, outputTokens: 12, available }], ranks.groups);
      expect(result.completions[0]!.stats.computedTokens).toBe(minimum);
      for (const blocks of result.stored) expect(blocks.has(lost)).toBe(blocks === result.stored[0] || group < 2);
      expect(result.stored.map((blocks) => blocks.get(lost))).toEqual(stored.map((blocks) => blocks.get(lost)));
    }
  });
});
