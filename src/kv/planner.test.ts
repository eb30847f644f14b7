import { expect, test } from 'vitest';
import { type GroupValidity, planSpans } from './planner.ts';
import { SpanList } from './span-list.ts';

const full = (blocks: number[], blockSize = 4): GroupValidity => ({
  kind: 'full',
  blockSize,
  window: Infinity,
  blockCount: blocks.length,
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

test('nothing is valid: everything', () => {
  expect(plan(10, full([]))).toEqual([[0, 10]]);
});

test('a prompt found in full still computes its last token', () => {
  expect(plan(8, full([whole, whole]))).toEqual([[7, 8]]);
});

test('one lost block costs that block and nothing else', () => {
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

test('a partly filled block goes on where it stopped', () => {
  expect(plan(11, full([whole, 1]))).toEqual([[5, 11]]);
});

test('a window group repairs only what its window can still see', () => {
  expect(plan(16, window(5, [none, none, whole, whole]))).toEqual([[15, 16]]);
  // Token 15 sees 11 to 15; token 11 is missing and sees 7 to 11, which are there.
  expect(plan(16, window(5, [none, whole, 3, whole]))).toEqual([
    [11, 12],
    [15, 16],
  ]);
});

test('a state group goes back to its nearest checkpoint', () => {
  expect(plan(16, state([whole, none, none]))).toEqual([[4, 16]]);
  expect(plan(16, state([whole, whole, 3]))).toEqual([[11, 16]]);
  expect(plan(13, state([none, none, whole]))).toEqual([[12, 13]]);
});

test('a hole in one group is computed with what the other group needs for it', () => {
  // Tokens 4 to 7 are lost in the full group; the state group has checkpoints after 8 and 12 tokens only, so it goes back to 0.
  expect(plan(13, full([whole, none, whole, 1]), state([none, whole, whole]))).toEqual([
    [0, 8],
    [12, 13],
  ]);
  expect(plan(13, full([whole, none, whole, 1]), state([whole, whole, whole]))).toEqual([
    [4, 8],
    [12, 13],
  ]);
});

test('a request without tokens is our bug', () => {
  expect(() => plan(0, full([]))).toThrow('without tokens');
});
