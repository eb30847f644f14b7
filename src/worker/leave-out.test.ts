import { expect, test } from 'vitest';
import { onePoolSpec } from '../../sim/harness.ts';
import { type BlockId, requestId, stepId, tokenCount } from '../core/ids.ts';
import type { SequencePlan, StepPlan } from '../core/step.ts';
import { TokenBuffer } from '../core/tokens.ts';
import { sequencesWith } from './leave-out.ts';

/** Rows [start, end) over these pages, four tokens a block. */
function sequence(blocks: readonly number[], start: number, end: number, written = blocks): SequencePlan {
  const table = (ids: readonly number[]) => ({ ids: Int32Array.from(ids), length: ids.length });
  return {
    requestId: requestId(blocks.join()),
    tokens: new TokenBuffer(Int32Array.from({ length: end }, () => 1)),
    spans: [{ start: tokenCount(start), end: tokenCount(end) }],
    blockTables: [table(blocks)],
    writeTables: [table(written)],
  };
}

const planOf = (...sequences: SequencePlan[]): StepPlan => ({
  stepId: stepId(1),
  sequences,
  tokenCount: tokenCount(0),
  released: [],
});
const without = (plan: StepPlan, ...blocks: number[]) => sequencesWith(plan, blocks as BlockId[], onePoolSpec(20, 4));

test('whoever has a page that failed is left out, and nobody else', () => {
  const plan = planOf(sequence([1, 2], 4, 8), sequence([3, 4], 4, 8), sequence([1, 5], 4, 8));
  expect(without(plan)).toEqual([]);
  expect(without(plan, 1)).toEqual([0, 2]);
  expect(without(plan, 4)).toEqual([1]);
});

test('and whoever rides on rows that are left out with it, however far', () => {
  // The first lost page 1 and so does not fill page 2, on which the second rides with page 3, and on that the third.
  const plan = planOf(
    sequence([1, 2], 4, 8),
    sequence([9, 2, 3], 8, 12),
    sequence([8, 7, 3, 4], 12, 16),
    sequence([6], 0, 3),
  );
  expect(without(plan, 1)).toEqual([0, 1, 2]);
});

test('pages that a left-out sequence only reads are not spoiled by it, nor is the null page', () => {
  const plan = planOf(sequence([1, 2], 7, 8, [1, 0]), sequence([5, 2], 7, 8), sequence([0, 6], 4, 8));
  expect(without(plan, 1)).toEqual([0]);
});

test('a sequence is computed when none of its rows reads the block that failed', () => {
  const plan = planOf(sequence([1, 2, 3], 4, 8), sequence([1, 2, 3], 8, 12));
  expect(without(plan, 3)).toEqual([1]);
});
