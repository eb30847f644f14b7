import { expect, test } from 'vitest';
import { type BlockCount, type BlockId, requestId, stepId, tokenCount } from '../core/ids.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { SequencePlan, StepPlan } from '../core/step.ts';
import { TokenBuffer } from '../core/tokens.ts';
import { sequencesWith } from './leave-out.ts';

const spec: KvCacheSpec = {
  groups: [{ kind: 'full', blockSize: tokenCount(4), layers: [0] }],
  blockBytes: 64,
  blockCount: 21 as BlockCount,
  fingerprint: 'test',
};

/** Scheduled tokens [start, end) in these blocks of four tokens. */
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
const without = (plan: StepPlan, ...blocks: number[]) => sequencesWith(plan, blocks as BlockId[], spec);

test('sequences that read a failed block are left out, and no others', () => {
  const plan = planOf(sequence([1, 2], 4, 8), sequence([3, 4], 4, 8), sequence([1, 5], 4, 8));
  expect(without(plan)).toEqual([]);
  expect(without(plan, 1)).toEqual([0, 2]);
  expect(without(plan, 4)).toEqual([1]);
});

test('sequences that read tokens of a sequence that is left out are left out too, transitively', () => {
  // Sequence 0 needs block 1 and fills block 2. Sequence 1 reads block 2 and fills block 3, which sequence 2 reads.
  const plan = planOf(
    sequence([1, 2], 4, 8),
    sequence([9, 2, 3], 8, 12),
    sequence([8, 7, 3, 4], 12, 16),
    sequence([6], 0, 3),
  );
  expect(without(plan, 1)).toEqual([0, 1, 2]);
});

test('blocks that a left-out sequence only reads stay valid, and so does the null block', () => {
  const plan = planOf(sequence([1, 2], 7, 8, [1, 0]), sequence([5, 2], 7, 8), sequence([0, 6], 4, 8));
  expect(without(plan, 1)).toEqual([0]);
});

test('a sequence is computed when none of its scheduled tokens reads the failed block', () => {
  const plan = planOf(sequence([1, 2, 3], 4, 8), sequence([1, 2, 3], 8, 12));
  expect(without(plan, 3)).toEqual([1]);
});
