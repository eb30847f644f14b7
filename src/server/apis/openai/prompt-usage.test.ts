import { expect, it } from 'vitest';
import type { RequestStats } from '../../../core/request.ts';
import { reusedTokens } from '../../../engine/stats.ts';
import { promptTokensDetails } from './prompt-usage.ts';

const stats = (change: Partial<RequestStats>): RequestStats => ({
  promptTokens: 100,
  cachedTokens: 64,
  outputTokens: 1,
  computedTokens: 100,
  recomputedTokens: 0,
  preemptions: 0,
  ...change,
});

it.each<[string, Partial<RequestStats>, number]>([
  ['cached in the pool', {}, 64],
  ['loaded', { externalTokens: 48 }, 64],
  ['one block of three failed', { externalTokens: 48, failedLoads: 1, recomputedTokens: 16 }, 48],
  ['all failed', { externalTokens: 64, failedLoads: 4, recomputedTokens: 64 }, 0],
  ['all loaded, then preempted', { externalTokens: 48, recomputedTokens: 90, preemptions: 1 }, 64],
  ['one failed, then preempted', { externalTokens: 48, failedLoads: 1, recomputedTokens: 90, preemptions: 1 }, 16],
])('%s: only reused tokens count as cached', (_, change, cached) => {
  expect(reusedTokens(stats(change))).toBe(cached);
});

it('leaves out extra fields of value 0, but keeps the field of OpenAI', () => {
  const none = { cached_tokens: 0, external_tokens: 0, recomputed_tokens: 0, failed_loads: 0, loaded_tokens: {} };
  expect(promptTokensDetails(none)).toEqual({ cached_tokens: 0 });
  expect(promptTokensDetails({ ...none, failed_loads: 2 })).toEqual({ cached_tokens: 0, failed_loads: 2 });
});
