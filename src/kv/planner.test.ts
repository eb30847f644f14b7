import { expect, test } from 'vitest';
import { type GroupValidity, planSpans } from './planner.ts';
import { SpanList } from './span-list.ts';

const full = (blocks: number[], blockSize = 4): GroupValidity => ({
  kind: 'full',
  blockSize,
  window: Infinity,
  indexCount: blocks.length,
  validTokens: Int32Array.from(blocks),
});
const window = (size: number, blocks: number[]): GroupValidity => ({
  ...full(blocks),
  kind: 'window',
  window: size,
});
const state = (blocks: number[]): GroupValidity => ({ ...full(blocks), kind: 'state' });
const whole = 4;
const none = 0;

function plan(tokenCount: number, ...groups: GroupValidity[]): [number, number][] {
  const spans = new SpanList();
  planSpans(tokenCount, groups, spans);
  return spans.toArray().map(({ start, end }) => [start, end]);
}

test('without valid KV, all tokens are computed', () => {
  expect(plan(10, full([]))).toEqual([[0, 10]]);
});

test('a fully cached prompt computes its last token', () => {
  expect(plan(8, full([whole, whole]))).toEqual([[7, 8]]);
});

test('one invalid block costs only the tokens of this block and the last token', () => {
  expect(plan(14, full([whole, none, whole, 2]))).toEqual([
    [4, 8],
    [13, 14],
  ]);
  expect(plan(16, full([none, whole, none, whole]))).toEqual([
    [0, 4],
    [8, 12],
    [15, 16],
  ]);
});

test('a partly valid block is computed from its first invalid token', () => {
  expect(plan(11, full([whole, 1]))).toEqual([[5, 11]]);
});

test('a window group computes only the invalid tokens that are still read', () => {
  expect(plan(16, window(5, [none, none, whole, whole]))).toEqual([[15, 16]]);
  // Token 15 reads 11 to 15. Token 11 is invalid and reads 7 to 11, of which 7 to 10 are valid.
  expect(plan(16, window(5, [none, whole, 3, whole]))).toEqual([
    [11, 12],
    [15, 16],
  ]);
});

test('a state group computes from its nearest checkpoint', () => {
  expect(plan(16, state([whole, none, none]))).toEqual([[4, 16]]);
  expect(plan(16, state([whole, whole, 3]))).toEqual([[11, 16]]);
  expect(plan(13, state([none, none, whole]))).toEqual([[12, 13]]);
});

test('computing a hole of one group includes the tokens that another group needs for it', () => {
  // Tokens 4 to 7 are invalid in the full group. The state group has checkpoints only after 8 and 12 tokens, so tokens
  // are computed from 0.
  expect(plan(13, full([whole, none, whole, 1]), state([none, whole, whole]))).toEqual([
    [0, 8],
    [12, 13],
  ]);
  expect(plan(13, full([whole, none, whole, 1]), state([whole, whole, whole]))).toEqual([
    [4, 8],
    [12, 13],
  ]);
});

test('a request without tokens fails an assertion', () => {
  expect(() => plan(0, full([]))).toThrow('without tokens');
});
