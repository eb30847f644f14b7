import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { agentTurns, randomScenario, scheduledTokens } from './pool-scenarios.ts';

/**
 * The tokens that our scheduler computes, beside those of vLLM 0.33.0's own scheduler on the same requests. `vllm-tokens.json` has vLLM's
 * tokens for the seeds 1 to 300, written by `tools/vllm-scheduler/run.py`.
 */
const vllm = JSON.parse(readFileSync(new URL('./vllm-tokens.json', import.meta.url), 'utf8')) as {
  readonly full: readonly number[];
  readonly window: readonly number[];
};

describe('random requests in small pools compute fewer tokens than with vLLM', () => {
  test.each([
    { what: 'one group', kind: 'full', moreMax: 5, share: 0.984 },
    { what: 'one or two windows too', kind: 'window', moreMax: 17, share: 0.971 },
  ] as const)('$what', ({ kind, moreMax, share }) => {
    const ours = vllm[kind].map((_, i) => scheduledTokens(randomScenario(i + 1, kind === 'window')));
    const sum = (list: readonly number[]): number => list.reduce((a, b) => a + b, 0);
    expect(sum(ours) / sum(vllm[kind])).toBeLessThan(share);
    // Requests with less room pass others, or begin earlier than in vLLM, and evict what vLLM still has.
    expect(ours.filter((tokens, i) => tokens > vllm[kind][i]!).length).toBeLessThanOrEqual(moreMax);
  });
});

describe('turns of agents with a model of states compute the tokens after the last checkpoint again', () => {
  // 377,851 tokens in prompts, of which 55,297 are new. vLLM stores partial tails.
  test.each([
    { blockSize: 16, stateTokens: 16, tokens: 56_040, ofVllm: 57_528 },
    { blockSize: 16, stateTokens: 64, tokens: 58_200, ofVllm: 64_728 },
    { blockSize: 16, stateTokens: 512, tokens: 83_032, ofVllm: 78_248 },
    { blockSize: 576, stateTokens: 576, tokens: 84_440, ofVllm: 73_016 },
  ])('blocks of $blockSize tokens, states of $stateTokens', ({ blockSize, stateTokens, tokens, ofVllm }) => {
    expect(scheduledTokens(agentTurns(blockSize, stateTokens))).toBe(tokens);
    expect(tokens / ofVllm).toBeLessThan(1.16);
  });
});
