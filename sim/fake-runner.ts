import { assert } from '../src/base/assert.ts';
import { NULL_BLOCK } from '../src/core/ids.ts';
import type { KvCacheSpec } from '../src/core/kv-spec.ts';
import type { BlockTable, SampledToken, SequencePlan, StepPlan, StepResult } from '../src/core/step.ts';
import { entryOf, firstRead, hiddenSeed, mix, nextTokenOf } from './fake-model.ts';

/**
 * Executes plans with the fake model over a pool of its own: it writes and reads entries through the block tables, as a
 * real runner does. Rows run one after the other in batch order, which is stricter than a real runner, where all of a
 * layer's writes precede its reads: it also shows whether sharers come after their owner.
 */
export class FakeRunner {
  readonly kvCacheSpec: KvCacheSpec;
  readonly vocabSize: number;
  /** Entry of (page, offset); state groups use offset 0. Starts as garbage, as memory does. */
  readonly #entries: Int32Array;
  readonly #entriesPerPage: number;
  #garbage = 0x2545f491;
  rowsComputed = 0;

  constructor(spec: KvCacheSpec, vocabSize: number) {
    this.kvCacheSpec = spec;
    this.vocabSize = vocabSize;
    this.#entriesPerPage = Math.max(...spec.groups.map((group) => group.blockSize));
    this.#entries = new Int32Array(spec.pageCount * this.#entriesPerPage);
    for (let i = 0; i < this.#entries.length; i++) this.#entries[i] = this.#nextGarbage();
  }

  /** `leftOut`: sequences (indices) that are not computed because something they read is missing. */
  execute(plan: StepPlan, leftOut: readonly number[] = []): StepResult {
    let rows = 0;
    const sampled: (SampledToken | undefined)[] = [];
    for (const [index, sequence] of plan.sequences.entries()) {
      let last = 0;
      const isLeftOut = leftOut.includes(index);
      for (const { start, end } of sequence.spans) {
        assert(
          start < end && end <= sequence.tokens.length,
          `span [${start}, ${end}) of ${sequence.tokens.length} tokens`,
        );
        for (let position: number = start; position < end && !isLeftOut; position++)
          last = this.#row(sequence, position);
        rows += end - start;
      }
      sampled.push(
        isLeftOut
          ? undefined
          : sequence.sample && { token: nextTokenOf(last, this.vocabSize) as SampledToken['token'] },
      );
    }
    assert(rows === plan.tokenCount, `plan of ${plan.tokenCount} rows has ${rows}`);
    this.rowsComputed += rows;
    return { stepId: plan.stepId, sampled };
  }

  /** What a transfer reads: the block's entries; a state is one. */
  readBlock(page: number, group: number): Int32Array {
    const { kind, blockSize } = this.kvCacheSpec.groups[group]!;
    const first = page * this.#entriesPerPage;
    return this.#entries.slice(first, first + (kind === 'state' ? 1 : blockSize));
  }

  /** What a transfer writes. */
  writePage(page: number, entries: Int32Array): void {
    this.#entries.set(entries, page * this.#entriesPerPage);
  }

  /** The page's memory is lost or overwritten by somebody else. */
  scribble(page: number): void {
    const first = page * this.#entriesPerPage;
    for (let i = 0; i < this.#entriesPerPage; i++) this.#entries[first + i] = this.#nextGarbage();
  }

  /** Computes one token; returns what the next token is made of. */
  #row(sequence: SequencePlan, position: number): number {
    const groups = this.kvCacheSpec.groups;
    let hidden = hiddenSeed(sequence.tokens.at(position), position);
    for (let g = 0; g < groups.length; g++) {
      let read = g;
      for (let q = firstRead(groups[g]!, position); q < position; q++)
        read = mix(read, this.#entries[this.#placeOf(sequence.blockTables[g]!, g, q)]!);
      hidden = mix(hidden, read);
    }
    const writeTables = sequence.writeTables ?? sequence.blockTables;
    let output = hidden;
    for (let g = 0; g < groups.length; g++) {
      this.#entries[this.#placeOf(writeTables[g]!, g, position)] = entryOf(hidden, g);
      output = mix(output, this.#entries[this.#placeOf(sequence.blockTables[g]!, g, position)]!);
    }
    // What went to the null page means nothing, and must not be found there by luck.
    this.scribble(NULL_BLOCK);
    return output;
  }

  #placeOf(table: BlockTable, g: number, position: number): number {
    const { kind, blockSize } = this.kvCacheSpec.groups[g]!;
    const block = Math.floor(position / blockSize);
    assert(block < table.length, `position ${position} lies outside a table of ${table.length} blocks`);
    const offset = kind === 'state' ? 0 : position - block * blockSize;
    return table.ids[block]! * this.#entriesPerPage + offset;
  }

  #nextGarbage(): number {
    this.#garbage = mix(this.#garbage, 0x6a09e667);
    return this.#garbage;
  }
}
