import { type BlockId, NULL_BLOCK } from '../core/ids.ts';
import type { SequencePlan, Span, StepPlan } from '../core/step.ts';
import type { HiddenStates } from '../runner/contract.ts';

/**
 * Indices of the sequences that read or write one of these pages, or a page that one of them was to fill: owners come
 * before those who ride on their rows, so one pass finds all. `blockSizes`: of each KV group.
 */
export function sequencesWith(
  plan: StepPlan,
  pages: ReadonlySet<BlockId>,
  blockSizes: readonly number[],
): readonly number[] {
  if (pages.size === 0) return [];
  const bad = new Set(pages);
  const found: number[] = [];
  for (const [index, sequence] of plan.sequences.entries()) {
    if (!sequence.blockTables.some(({ ids, length }) => has(ids.subarray(0, length), bad))) continue;
    found.push(index);
    addFilled(sequence, blockSizes, bad);
  }
  return found;
}

/** The pages that the sequence's rows were to be written to. */
function addFilled(sequence: SequencePlan, blockSizes: readonly number[], pages: Set<BlockId>): void {
  const tables = sequence.writeTables ?? sequence.blockTables;
  for (const [group, blockSize] of blockSizes.entries()) {
    const { ids } = tables[group]!;
    for (const { start, end } of sequence.spans) {
      for (let block = Math.floor(start / blockSize); block * blockSize < end; block++) {
        if (ids[block] !== NULL_BLOCK) pages.add(ids[block] as BlockId);
      }
    }
  }
}

/** The plan without these sequences. What is left may have no rows. */
export function withoutSequences(plan: StepPlan, leftOut: readonly number[]): StepPlan {
  if (leftOut.length === 0) return plan;
  const sequences = plan.sequences.filter((_, index) => !leftOut.includes(index));
  const tokenCount = sequences.reduce((sum, sequence) => sum + rowsOf(sequence), 0) as StepPlan['tokenCount'];
  return { ...plan, sequences, tokenCount };
}

/**
 * Hidden states without the rows of `leftOut`, where those of `missing` are not in `hidden` to begin with. Copies only
 * when rows go.
 */
export function withoutRows(
  hidden: HiddenStates,
  plan: StepPlan,
  missing: readonly number[],
  leftOut: readonly number[],
): HiddenStates {
  const present = plan.sequences.map((sequence, index) => (missing.includes(index) ? 0 : rowsOf(sequence)));
  const rows = present.reduce((sum, count) => sum + count, 0);
  const kept = present.reduce((sum, count, index) => (leftOut.includes(index) ? sum : sum + count), 0);
  if (kept === rows) return hidden;
  const width = hidden.length / rows;
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
  return out;
}

const rowsOf = ({ spans }: SequencePlan): number => spans.reduce((sum, { start, end }: Span) => sum + end - start, 0);

function has(ids: Int32Array, pages: ReadonlySet<BlockId>): boolean {
  for (let i = 0; i < ids.length; i++) if (pages.has(ids[i] as BlockId)) return true;
  return false;
}
