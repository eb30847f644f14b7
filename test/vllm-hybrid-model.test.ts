/**
 * vLLM's tests of failed loads with several KV groups (pull request 35223), with their numbers, on a real model: a random gemma3 with
 * one layer with full attention and two with a window of 128 tokens, which are in groups of their own. All groups have blocks of 16
 * tokens; vLLM's test has window blocks of 32. vLLM computes all 1,600 tokens again, and ends with an error in 0.33.0.
 *
 * `sim/scheduler/vllm-hybrid.test.ts` has the same tests with states and other block sizes, on the simulator's model.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { neededTokens, type ReferenceGroup } from '../src/cli/proof/needed-tokens.ts';
import { keysInGroups } from '../src/cli/proof/stored-blocks.ts';
import type { BlockKey } from '../src/connector/block-key.ts';
import { groupOfKey } from '../src/connector/block-key.ts';
import type { LoadMode } from '../src/connector/connector.ts';
import { faultRule } from '../src/connector/fault/fault-rules.ts';
import { promptOf } from './support/drive.ts';
import { inLongForm } from './support/long-form.ts';
import type { StoredBlocks } from './support/memory-connector.ts';
import { blockSize, RecoveryHarness, type RunOptions, type RunResult } from './support/recovery-harness.ts';
import { temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

const window = 128;
const groups: readonly ReferenceGroup[] = [
  { kind: 'full', blockSize },
  { kind: 'window', window, blockSize },
  { kind: 'window', window, blockSize },
];
const blocks = 100;
const requests = [1, 2].map((seed) => ({
  prompt: [...promptOf(blocks * blockSize, seed, 250)],
  params: { maxTokens: 3, temperature: 0, ignoreEos: true, logprobs: 2 },
}));
const scheduler = { maxModelLen: 2000, maxNumBatchedTokens: 2048 };

const folder = temporaryFolder();
let harness: RecoveryHarness;
let reference: RunResult;
/** All full blocks of both prompts. */
let all: StoredBlocks;
/** By prompt and KV group. */
let keys: readonly (readonly (readonly BlockKey[])[])[];

beforeAll(async () => {
  const path = folder.file('hybrid.gguf');
  const shape = {
    layers: 3,
    windowPattern: 3,
    window,
    context: 2048,
    embedding: 64,
    heads: 1,
    headsKv: 1,
    headDim: 32,
  };
  await writeTinyModel(path, { architecture: 'gemma3', type: 'F16', ...shape, feedForward: 64 });
  harness = await RecoveryHarness.open(path);
  reference = await harness.run({ requests, scheduler, isSequential: true });
  const store = { mode: 'async' as const, maxBytes: 64 << 20 };
  all = (await harness.run({ requests, scheduler, isSequential: true, store })).stored;
  keys = requests.map(({ prompt }) => keysInGroups(prompt, groups, harness.identities[0]!.fingerprint));
});
afterAll(async () => {
  await harness.close();
  folder.remove();
});

/** A store with the first blocks of both prompts. One block of the first prompt is corrupt: its load fails, and it is deleted. */
function run(
  first: number,
  corrupt: BlockKey | undefined,
  mode: LoadMode,
  options: Partial<RunOptions> = {},
): Promise<RunResult> {
  const kept = new Set(keys.flatMap((ofPrompt) => ofPrompt.flatMap((ofGroup) => ofGroup.slice(0, first))));
  const stored = all.map((ofRank) => new Map([...ofRank].filter(([key]) => kept.has(key))));
  const rules = corrupt === undefined ? [] : [faultRule({ fault: 'bitFlip', keys: [corrupt] })];
  const faults = [{ seed: 1, rules }];
  const store = { mode, stored, faults, maxBytes: 64 << 20 };
  return harness.run({ requests, scheduler, loadTimeoutMs: 20_000, store, ...options });
}

const keyAt = (prompt: number, group: number, index: number): BlockKey => keys[prompt]![group]![index]!;

/** Tokens, logprobs and texts are those of the run without a store. */
function expectSame(result: RunResult, prompts = [0, 1]): void {
  for (const prompt of prompts) {
    const { text, tokens, logprobs, reason } = result.completions[prompt]!;
    const wanted = reference.completions[prompt]!;
    expect({ text, tokens, logprobs, reason }).toEqual({
      text: wanted.text,
      tokens: wanted.tokens,
      logprobs: wanted.logprobs,
      reason: wanted.reason,
    });
  }
}

function minimumOf(prompt: number, first: number, lost: readonly BlockKey[] = []): number {
  const available = new Set<string>(keys[prompt]!.flatMap((ofGroup) => ofGroup.slice(0, first)));
  for (const key of lost) available.delete(key);
  return neededTokens([{ tokenCount: blocks * blockSize, keys: keys[prompt]!, outputTokens: 3, available }], groups);
}

it('a hit at every block boundary of a prompt of three windows: the tokens after the hit are computed, with the same output', async () => {
  const boundaries = (3 * window) / blockSize;
  const request = { ...requests[0]!, prompt: requests[0]!.prompt.slice(0, 3 * window + 5) };
  const alone = await harness.run({ requests: [request], scheduler });
  for (let first = 0; first <= boundaries; first += inLongForm(1, 5)) {
    const result = await run(first, undefined, 'async', { requests: [request] });
    const [{ stats, tokens, logprobs }] = result.completions as [RunResult['completions'][number]];
    expect({ tokens, logprobs }).toEqual({
      tokens: alone.completions[0]!.tokens,
      logprobs: alone.completions[0]!.logprobs,
    });
    expect(stats.computedTokens, `${first} blocks`).toBe(3 * window + 5 - first * blockSize + 2);
    // Of the window groups, only the last window is loaded.
    const windowBlocks = Math.min(first, Math.ceil((window - 1) / blockSize));
    expect(result.arrived.size, `${first} blocks`).toBe(first + 2 * windowBlocks);
  }
});

describe.each(['sync', 'async'] as const)('test_hybrid_kv_load_failure_recovery: 100 and 99, index 50, %s', (mode) => {
  it('full group: only the tokens of the failed block and the last 16 are computed, of 1600', async () => {
    const corrupt = keyAt(0, 0, 50);
    const result = await run(99, corrupt, mode);
    expectSame(result);
    expect(result.completions.map(({ stats }) => stats.computedTokens)).toEqual([16 + 16 + 2, 16 + 2]);
    expect(minimumOf(0, 99, [corrupt])).toBe(34);
    expect(result.completions[0]!.stats).toMatchObject({ preemptions: 0, failedLoads: 1, recomputedTokens: 16 });
    // The recomputed block has the bytes of the lost block.
    expect(result.stored[0]!.get(corrupt)).toEqual(all[0]!.get(corrupt));
  });

  it('policy fail: the request ends with an error, and the other request is not affected', async () => {
    const result = await run(99, keyAt(0, 0, 50), mode, { scheduler: { ...scheduler, kvLoadFailurePolicy: 'fail' } });
    expect(result.completions[0]!.reason).toBe('error');
    expectSame(result, [1]);
    expect(result.completions[1]!.stats.computedTokens).toBe(18);
    expect(result.stats.blocks.referenced).toBe(0);
  });
});

describe('multi-group fail: 75 of 100 blocks in the store, the second block that is loaded in the last group fails', () => {
  // The window before token 1200 begins at token 1073: blocks 67 to 74.
  const second = 68;

  it.each(['sync', 'async'] as const)(
    '%s, policy fail: the request ends, and no block stays allocated',
    async (mode) => {
      const options = {
        requests: requests.slice(0, 1),
        scheduler: { ...scheduler, kvLoadFailurePolicy: 'fail' as const },
      };
      const result = await run(75, keyAt(0, 2, second), mode, options);
      expect(result.completions.map(({ reason }) => reason)).toEqual(['error']);
      expect(result.stats).toMatchObject({ running: 0, waiting: 0, blocks: { referenced: 0 } });
    },
  );

  it.each(['sync', 'async'] as const)('%s, policy recompute: 416 tokens are computed, of 1600', async (mode) => {
    const corrupt = keyAt(0, 2, second);
    const result = await run(75, corrupt, mode, { requests: requests.slice(0, 1) });
    expectSame(result, [0]);
    const { stats } = result.completions[0]!;
    expect(stats.computedTokens).toBe(400 + 16 + 2);
    expect(minimumOf(0, 75, [corrupt])).toBe(400 + 16 + 2);
    expect(stats).toMatchObject({ failedLoads: 1, recomputedTokens: 16 });
    expect(result.stored[0]!.get(corrupt)).toEqual(all[0]!.get(corrupt));
    // Of the window groups, only the last window and the window before the failed block are loaded.
    const loaded = [...result.arrived].filter((key) => groupOfKey(key as BlockKey) > 0);
    expect(loaded.length).toBe(2 * (75 - 60) - 1);
  });
});
