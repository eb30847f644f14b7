/**
 * vLLM's `test_hybrid_kv_load_failure_recovery` (pull request 35223) with its numbers on the bundled hybrid model, whose weights are
 * trained: full attention, a window of 64 tokens, and states with a checkpoint after each 32 tokens. vLLM computes all 1,600 tokens again.
 * `vllm-hybrid-model.test.ts` has the tests on a random gemma3.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { neededTokens } from '../src/cli/proof/needed-tokens.ts';
import { keysInGroups } from '../src/cli/proof/stored-blocks.ts';
import type { BlockKey } from '../src/connector/block-key.ts';
import { faultRule } from '../src/connector/fault/fault-rules.ts';
import { promptOf } from './support/drive.ts';
import type { StoredBlocks } from './support/memory-connector.ts';
import { RecoveryHarness, type RunResult } from './support/recovery-harness.ts';

const promptTokens = 1600;
const params = { maxTokens: 3, temperature: 0, ignoreEos: true, logprobs: 2 };
const requests = [1, 2].map((seed) => ({ prompt: [...promptOf(promptTokens, seed, 250)], params }));
const scheduler = { maxModelLen: 2000, maxNumBatchedTokens: 2048 };

let harness: RecoveryHarness;
let saved: RunResult;
/** A store with the blocks of the first 1,584 tokens of both prompts. */
let stored: StoredBlocks;
/** By prompt and KV group. */
let keys: readonly (readonly (readonly BlockKey[])[])[];

beforeAll(async () => {
  harness = await RecoveryHarness.open('models/kvasir-hybrid.gguf');
  const store = { mode: 'async' as const, maxBytes: 64 << 20 };
  saved = await harness.run({ requests, scheduler, isSequential: true, store });
  keys = requests.map(({ prompt }) => keysInGroups(prompt, harness.groups, harness.identities[0]!.fingerprint));
  const kept = new Set(keys.flatMap((ofPrompt) => ofPrompt.flatMap((ofGroup, group) => ofGroup.slice(0, stop(group)))));
  stored = saved.stored.map((ofRank) => new Map([...ofRank].filter(([key]) => kept.has(key))));
});
afterAll(() => harness.close());

/** The number of a group's full blocks in 99 blocks of 16 tokens. */
const stop = (group: number): number => Math.floor((99 * 16) / harness.groups[group]!.blockSize);

it('the model has full attention, a window and states', () => {
  expect(harness.groups.map(({ kind, blockSize }) => [kind, blockSize])).toEqual([
    ['full', 16],
    ['window', 16],
    ['state', 32],
  ]);
});

describe.each(['sync', 'async'] as const)('test_hybrid_kv_load_failure_recovery: 100 and 99, %s', (mode) => {
  it.each([
    // The state before the block, and the last state, are loaded: 16 tokens, and those after the last checkpoint.
    { what: 'full group, index 50', lost: () => keys[0]![0]![50]!, computed: 16 + (promptTokens - 1568) },
    // The checkpoint before the lost one is loaded.
    { what: 'the last state', lost: () => keys[0]![2]![48]!, computed: promptTokens - 1536 },
  ])('$what: only $computed of 1600 tokens are computed', async ({ lost, computed }) => {
    const rules = [faultRule({ fault: 'bitFlip', keys: [lost()] })];
    const store = { mode, stored, faults: [{ seed: 1, rules }], maxBytes: 64 << 20 };
    const result = await harness.run({ requests, scheduler, loadTimeoutMs: 20_000, store });
    for (const [prompt, { text, tokens, logprobs }] of result.completions.entries()) {
      const wanted = saved.completions[prompt]!;
      expect({ text, tokens, logprobs }).toEqual({
        text: wanted.text,
        tokens: wanted.tokens,
        logprobs: wanted.logprobs,
      });
    }
    // The two generated tokens that are computed, and the other request's tokens after its last checkpoint.
    expect(result.completions.map(({ stats }) => stats.computedTokens)).toEqual([
      computed + 2,
      promptTokens - 1568 + 2,
    ]);
    expect(result.failedBlocks).toBe(1);
    const available = new Set<string>(stored.flatMap((ofRank) => [...ofRank.keys()]));
    available.delete(lost());
    const first = { tokenCount: promptTokens, keys: keys[0]!, outputTokens: 3, available };
    expect(neededTokens([first], harness.groups)).toBe(computed + 2);
    // The recomputed block or state has the bytes of the lost one.
    expect(result.stored[0]!.get(lost())).toEqual(saved.stored[0]!.get(lost()));
  });
});
