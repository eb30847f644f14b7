import { assert } from '../base/assert.ts';
import type { BlockId } from '../core/ids.ts';
import { InvalidBlocks } from '../core/invalid-blocks.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { SequencePlan, Span, StepPlan } from '../core/step.ts';
import type { HiddenStates } from '../runner/contract.ts';

/**
 * Indices of the sequences that cannot be computed: their scheduled tokens read one of these blocks, or tokens of a
 * sequence that is left out. A block's owner is before the sequences that read its tokens, so one pass finds all.
 */
export function sequencesWith(plan: StepPlan, blocks: readonly BlockId[], spec: KvCacheSpec): readonly number[] {
  const found: number[] = [];
  if (blocks.length === 0) return found;
  const invalid = new InvalidBlocks(spec, blocks);
  for (const [index, sequence] of plan.sequences.entries()) {
    if (invalid.firstDependentToken(sequence) === Infinity) continue;
    found.push(index);
    invalid.addBlocksFrom(sequence.spans[0]!.start, sequence);
  }
  return found;
}

/** The plan without these sequences. It may have no scheduled tokens. */
export function withoutSequences(plan: StepPlan, leftOut: readonly number[]): StepPlan {
  if (leftOut.length === 0) return plan;
  const sequences = plan.sequences.filter((_, index) => !leftOut.includes(index));
  const expected = plan.sequences.length - leftOut.length;
  assert(sequences.length === expected, `${sequences.length} sequences remain instead of ${expected}`);
  const tokenCount = sequences.reduce((sum, sequence) => sum + tokenCountOf(sequence), 0) as StepPlan['tokenCount'];
  return { ...plan, sequences, tokenCount };
}

/**
 * Hidden states without the rows of `leftOut`. `hidden` has no rows for the sequences in `absent`. Copies only if rows are
 * removed.
 */
export function withoutTokensOf(
  hidden: HiddenStates,
  plan: StepPlan,
  absent: readonly number[],
  leftOut: readonly number[],
): HiddenStates {
  assert(
    absent.every((index) => leftOut.includes(index)),
    'a sequence without hidden states is computed',
  );
  const present = plan.sequences.map((sequence, index) => (absent.includes(index) ? 0 : tokenCountOf(sequence)));
  const tokens = present.reduce((sum, count) => sum + count, 0);
  const kept = present.reduce((sum, count, index) => (leftOut.includes(index) ? sum : sum + count), 0);
  if (kept === tokens) return hidden;
  const width = hidden.length / tokens;
  assert(Number.isInteger(width), `${hidden.length} values of hidden states for ${tokens} tokens`);
  const out = new Float32Array(kept * width);
  let from = 0;
  let to = 0;
  for (const [index, count] of present.entries()) {
    if (!leftOut.includes(index)) {
      out.set(hidden.subarray(from * width, (from + count) * width), to * width);
      to += count;
    }
    from += count;
  }
  assert(from === tokens && to === kept, `${to} of ${from} rows are kept instead of ${kept} of ${tokens}`);
  return out;
}

const tokenCountOf = ({ spans }: SequencePlan): number =>
  spans.reduce((sum, { start, end }: Span) => sum + end - start, 0);
