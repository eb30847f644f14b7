import { expect, test } from 'vitest';
import { tokenCount } from '../../src/core/ids.ts';
import type { KvGroupSpec } from '../../src/core/kv-spec.ts';
import { neededInGroups } from './needed-in-groups.ts';

const groups: readonly KvGroupSpec[] = [
  { kind: 'full', blockSize: tokenCount(4), layers: [1] },
  { kind: 'window', blockSize: tokenCount(4), layers: [0], window: tokenCount(6) },
];
/** A prompt of 22 tokens with blocks a to e in the full group and A to E in the window group. */
const request = (arrived: string, outputTokens = 1) => ({
  tokenCount: 22,
  keys: [[...'abcde'], [...'ABCDE']],
  outputTokens,
  arrived: new Set(arrived),
});
const needed = (...requests: ReturnType<typeof request>[]) => neededInGroups(requests, groups);

test('without stored blocks the whole prompt and all generated tokens but the last are computed', () => {
  expect(needed(request('', 5))).toBe(26);
});

test('blocks before the window are not needed', () => {
  expect(needed(request('abcdeDE'))).toBe(2);
  expect(needed(request('abcdeE'))).toBe(2 + 16);
});

test('a hole in the full group needs its tokens and their windows', () => {
  expect(needed(request('abdeABDE'))).toBe(2 + 4);
  expect(needed(request('abdeDE'))).toBe(2 + 12);
});

test('blocks that an earlier request has computed are available', () => {
  expect(needed(request(''), request(''))).toBe(22 + 2);
  expect(needed(request('abcdeDE'), request('abcdeDE'))).toBe(2 + 2);
});
