import { assert } from '../base/assert.ts';
import { blockIndexOf, NULL_BLOCK } from '../core/ids.ts';
import type { KvGroupSpec } from '../core/kv-spec.ts';
import { blockAt, type LayerRange, type SequencePlan, type Span, type StepPlan } from '../core/step.ts';
import type { AttentionRows } from './attention/attention.ts';
import type { KvMemory } from './kv-memory.ts';
import type { RowRule } from './matmul/row-rule.ts';
import { addSegments, type StateSegment } from './states/segments.ts';

/** One request's part of the batch. Its rows are adjacent, in ascending order of position. */
export interface BatchSequence {
  readonly plan: SequencePlan;
  readonly firstRow: number;
  readonly rowCount: number;
  /** Tokens of KV that the last row sees: its position + 1. */
  readonly kvLength: number;
  /** Index in `outputRows` if the sequence is sampled. The sampled row is the last, or the first of `outputCount`. */
  readonly outputIndex: number | undefined;
  /** Rows after which tokens are sampled: with drafts, also the row of each draft. They are the last of the sequence. */
  readonly outputCount: number;
  /** The index in `promptRows` of the first row of `plan.prompt`; the others follow. */
  readonly promptIndex: number | undefined;
}

/**
 * A step as the input arrays of the graph. Rows after `rowCount` (`outputCount`) are padding, and their results unused.
 */
export interface Batch {
  readonly sequences: readonly BatchSequence[];
  readonly rowCount: number;
  readonly paddedRowCount: number;
  readonly tokens: Int32Array;
  readonly positions: Int32Array;
  /** The last position that each row sees: its own, or the last of its text if the model is an encoder. */
  readonly seen: Int32Array;
  /** By KV group, the slot of each row's KV (`KvMemory.slotOf`); padding is written to the null block. State groups have none. */
  readonly slots: readonly Int32Array[];
  /** By KV group, where states are read and written; other groups have none. */
  readonly segments: readonly (readonly StateSegment[])[];
  readonly outputCount: number;
  /** The sampled rows, padded by repeating the last one. */
  readonly outputRows: Int32Array;
  readonly outputPositions: Int32Array;
  /** The rows of `SequencePlan.prompt`, not padded. */
  readonly promptRows: Int32Array;
  /**
   * The layers that are computed for the rows after the sampled ones, which are the last sequence's; undefined: all layers for all
   * rows. The sampled rows come first, in the order of `outputRows`.
   */
  readonly slice: LayerRange | undefined;
  /** The LoRA adapters of its sequences, in the order of their digests. */
  readonly adapters: readonly BatchAdapter[];
  /** With an output head: the rows whose hidden states after the last norm are a result; undefined: none. */
  readonly hiddenRows: AttentionRows | undefined;
}

/** The rows of the sequences with one adapter. */
export interface BatchAdapter {
  readonly digest: string;
  /** Indices among all rows. */
  readonly rows: Int32Array;
  /** Indices in `Batch.outputRows`. */
  readonly outputs: Int32Array;
}

/** The groups that share the pool. */
export interface BatchMemory {
  /** The pool with the rows of each group. */
  readonly memories: readonly KvMemory[];
  readonly groups: readonly KvGroupSpec[];
  /** See `ModelConfig.isEncoder`. */
  readonly isEncoder?: boolean | undefined;
  /** The rows whose hidden states are asked for. Of a chunk by layers there are none. */
  readonly hiddenRows?: AttentionRows | undefined;
}

/** Lays a plan out as rows. `rule` is the padding that exact numerics need. */
export function layOutBatch(
  plan: StepPlan,
  { memories, groups, isEncoder = false, hiddenRows }: BatchMemory,
  rule: RowRule,
): Batch {
  const rowCount = plan.tokenCount;
  const paddedRowCount = rule(rowCount);
  const tokens = new Int32Array(paddedRowCount);
  const positions = new Int32Array(paddedRowCount);
  const slots = groups.map(({ kind }) => new Int32Array(kind === 'state' ? 0 : paddedRowCount));
  const segments = groups.map((): StateSegment[] => []);
  const outputs: number[] = [];
  const promptRows: number[] = [];
  const sequences: BatchSequence[] = [];
  let row = 0;
  for (const sequence of plan.sequences) {
    const firstRow = row;
    // Not `entries()` here and below, which allocates memory for each element until V8 has optimized the function.
    for (let group = 0; group < groups.length; group++) {
      const { kind, blockSize } = groups[group]!;
      if (kind === 'state') addSegments(segments[group]!, sequence, { group, blockSize, firstRow });
    }
    for (const span of sequence.spans) {
      setTokens(tokens, row, sequence, span);
      for (let group = 0; group < slots.length; group++)
        if (slots[group]!.length > 0) fillSlots(slots[group]!, row, sequence, span, group, memories[group]!);
      for (let position: number = span.start; position < span.end; position++, row++) positions[row] = position;
    }
    assert(row > firstRow, 'a sequence has rows');
    const promptIndex = sequence.prompt === undefined ? undefined : promptRows.length;
    if (sequence.prompt !== undefined) addPromptRows(promptRows, sequence.prompt, sequence.spans.at(-1)!, row);
    const outputIndex = outputs.length;
    const outputCount = sequence.sample === undefined ? 0 : 1 + (sequence.drafts?.tokens.length ?? 0);
    for (let output = row - outputCount; output < row; output++) outputs.push(output);
    sequences.push({
      plan: sequence,
      firstRow,
      rowCount: row - firstRow,
      kvLength: (positions[row - 1] ?? 0) + 1,
      outputIndex: outputCount === 0 ? undefined : outputIndex,
      outputCount,
      promptIndex,
    });
  }
  assert(row === rowCount, 'the spans add up to the batch');
  for (const [group, ofGroup] of slots.entries()) {
    const memory = memories[group]!;
    const { blockSize } = memory.layout;
    for (let pad = rowCount; pad < ofGroup.length; pad++) ofGroup[pad] = memory.slotOf(NULL_BLOCK, pad % blockSize);
  }
  const outputRows = padOutputs(outputs, rule);
  const slice = plan.sequences.at(-1)?.layers;
  if (slice !== undefined) checkSlice(sequences, outputs, paddedRowCount);
  return {
    sequences,
    rowCount,
    paddedRowCount,
    tokens,
    positions,
    seen: isEncoder ? lastOfTexts(sequences, positions) : positions,
    slots,
    segments,
    outputCount: outputs.length,
    outputRows,
    outputPositions: outputRows.map((index) => positions[index] ?? 0),
    promptRows: Int32Array.from(promptRows),
    slice,
    adapters: plan.sequences.some(hasAdapter) ? adaptersOf(sequences) : noAdapters,
    // If all rows are sampled, the two are one, and need one graph.
    hiddenRows:
      hiddenRows !== undefined && (slice !== undefined || outputs.length === rowCount) ? 'outputs' : hiddenRows,
  };
}

function lastOfTexts(sequences: readonly BatchSequence[], positions: Int32Array): Int32Array {
  const seen = positions.slice();
  for (const { plan, firstRow, rowCount } of sequences) {
    assert(rowCount === plan.tokens.length, 'an encoder computes whole texts');
    seen.fill(rowCount - 1, firstRow, firstRow + rowCount);
  }
  return seen;
}

const noAdapters: readonly BatchAdapter[] = [];
const hasAdapter = ({ adapter }: SequencePlan): boolean => adapter !== undefined;

function adaptersOf(sequences: readonly BatchSequence[]): BatchAdapter[] {
  const found = new Map<string, { readonly rows: number[]; readonly outputs: number[] }>();
  for (const { plan, firstRow, rowCount, outputIndex, outputCount } of sequences) {
    if (plan.adapter === undefined) continue;
    const { rows, outputs } = found.get(plan.adapter) ?? { rows: [], outputs: [] };
    found.set(plan.adapter, { rows, outputs });
    for (let row = firstRow; row < firstRow + rowCount; row++) rows.push(row);
    for (let i = 0; i < outputCount; i++) outputs.push(outputIndex! + i);
  }
  return [...found]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([digest, { rows, outputs }]) => ({
      digest,
      rows: Int32Array.from(rows),
      outputs: Int32Array.from(outputs),
    }));
}

/** See `SequencePlan.layers`. */
function checkSlice(sequences: readonly BatchSequence[], outputs: readonly number[], paddedRowCount: number): void {
  const { firstRow, rowCount, plan } = sequences.at(-1)!;
  assert(plan.sample === undefined && plan.prompt === undefined, 'a chunk by layers has no results');
  assert(
    outputs.length === firstRow && outputs.every((row, i) => row === i),
    'all rows before a chunk by layers are sampled',
  );
  assert(paddedRowCount === firstRow + rowCount, 'a batch with a chunk by layers has no padding');
}

/** Writes the tokens of a span; after the request's own tokens come the drafts. */
function setTokens(rows: Int32Array, row: number, { tokens, drafts }: SequencePlan, { start, end }: Span): void {
  const own = drafts === undefined ? end : tokens.length;
  rows.set(tokens.view(start, own), row);
  if (drafts === undefined) return;
  assert(end - own === drafts.tokens.length, 'the span ends after the drafts');
  rows.set(drafts.tokens, row + own - start);
}

/** Writes the rows of the pool to which the KV of a span's tokens goes in one KV group. */
// biome-ignore lint/complexity/useMaxParams: called for each group of each sequence of each step, so without an object
function fillSlots(
  slots: Int32Array,
  firstRow: number,
  { writeTables, blockTables }: SequencePlan,
  { start, end }: Span,
  group: number,
  memory: KvMemory,
): void {
  const { blockSize } = memory.layout;
  const table = (writeTables ?? blockTables)[group];
  const last = blockIndexOf(end - 1, blockSize);
  assert(table !== undefined && last < table.length, 'tokens within their block table');
  for (let position: number = start, row = firstRow; position < end; position++, row++) {
    slots[row] = memory.slotOf(blockAt(table, blockIndexOf(position, blockSize)), position % blockSize);
  }
}

/** `endRow`: the row after the last span. */
function addPromptRows(rows: number[], { start, end }: Span, span: Span, endRow: number): void {
  assert(span.start <= start && start < end && end <= span.end, 'the rows of a prompt are in the last span');
  for (let position: number = start; position < end; position++) rows.push(endRow - (span.end - position));
}

function padOutputs(rows: readonly number[], rule: RowRule): Int32Array {
  if (rows.length === 0) return new Int32Array(0);
  const padded = new Int32Array(rule(rows.length)).fill(rows.at(-1) ?? 0);
  padded.set(rows);
  return padded;
}
