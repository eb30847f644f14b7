import { assert } from '../src/base/assert.ts';
import { NULL_BLOCK, type RequestId } from '../src/core/ids.ts';
import type { KvCacheSpec } from '../src/core/kv-spec.ts';
import type { BlockTable, SampledToken, SequencePlan, StepPlan, StepResult } from '../src/core/step.ts';
import { entryOf, firstRead, hiddenSeed, mix, nextTokenOf } from './fake-model.ts';

/** A row has read something else than the KV that an engine without a cache would have there. */
export interface UntrueRead {
  readonly row: number;
  readonly group: number;
  /** The position whose KV was read, and the page in which it was looked for. */
  readonly position: number;
  readonly page: number;
  /** The page was filled for another salt, model or group, whatever is in it (I10). */
  readonly isForeign: boolean;
}

/** What a request ought to read. */
export interface Truth {
  /** Per group, the entries of its tokens. */
  readonly entries: readonly Int32Array[];
  /** Whose KV it is: one number for each salt. Pages are labelled with it when they are filled. */
  readonly label: number;
}

/** A block as transfers move it. */
export interface StoredBlock {
  readonly entries: Int32Array;
  readonly label: number;
}

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
  /** For whom each page was filled last; see `labelOf`. */
  readonly #labels: Int32Array;
  #garbage = 0x2545f491;
  rowsComputed = 0;
  #untrue: UntrueRead | undefined;
  #untrueReads: (UntrueRead | undefined)[] = [];

  constructor(spec: KvCacheSpec, vocabSize: number) {
    this.kvCacheSpec = spec;
    this.vocabSize = vocabSize;
    this.#entriesPerPage = Math.max(...spec.groups.map((group) => group.blockSize));
    this.#entries = new Int32Array(spec.pageCount * this.#entriesPerPage);
    this.#labels = new Int32Array(spec.pageCount).fill(-1);
    for (let i = 0; i < this.#entries.length; i++) this.#entries[i] = this.#nextGarbage();
  }

  /** The first untrue read of each sequence of the last plan, as far as its truth was known. */
  get untrueReads(): readonly (UntrueRead | undefined)[] {
    return this.#untrueReads;
  }

  /**
   * `leftOut`: sequences (indices) that are not computed because something they read is missing. `truthOf`: what
   * requests ought to read, to be compared with what they do read.
   */
  execute(
    plan: StepPlan,
    leftOut: readonly number[] = [],
    truthOf: (id: RequestId) => Truth | undefined = () => undefined,
  ): StepResult {
    let rows = 0;
    this.#untrueReads = [];
    const sampled: (SampledToken | undefined)[] = [];
    for (let index = 0; index < plan.sequences.length; index++) {
      const sequence = plan.sequences[index]!;
      let last = 0;
      const isLeftOut = leftOut.includes(index);
      const truth = truthOf(sequence.requestId);
      this.#untrue = undefined;
      for (const { start, end } of sequence.spans) {
        if (start >= end || end > sequence.tokens.length)
          assert(false, `span [${start}, ${end}) of ${sequence.tokens.length} tokens`);
        for (let position: number = start; position < end && !isLeftOut; position++)
          last = this.#row(sequence, position, truth);
        rows += end - start;
      }
      this.#untrueReads.push(this.#untrue);
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
  readBlock(page: number, group: number): StoredBlock {
    const { kind, blockSize } = this.kvCacheSpec.groups[group]!;
    const first = page * this.#entriesPerPage;
    const entries = this.#entries.slice(first, first + (kind === 'state' ? 1 : blockSize));
    return { entries, label: this.#labels[page]! };
  }

  /** What a transfer writes. */
  writePage(page: number, { entries, label }: StoredBlock): void {
    this.#entries.set(entries, page * this.#entriesPerPage);
    this.#labels[page] = label;
  }

  /** The page's memory is lost or overwritten by somebody else. */
  scribble(page: number): void {
    const first = page * this.#entriesPerPage;
    for (let i = 0; i < this.#entriesPerPage; i++) this.#entries[first + i] = this.#nextGarbage();
  }

  /** The KV of one token is lost; in a state group, the state. */
  scribbleAt(page: number, group: number, position: number): void {
    this.#entries[this.#placeOf(page, group, position)] = this.#nextGarbage();
  }

  /** Whether the page holds the KV of this token (in a state group, the state after it), for those with this truth. */
  isTrue(page: number, group: number, position: number, truth: Truth): boolean {
    return (
      this.#entries[this.#placeOf(page, group, position)] === truth.entries[group]![position] &&
      this.#labels[page] === labelOf(truth, group)
    );
  }

  /** Computes one token; returns what the next token is made of. */
  #row(sequence: SequencePlan, position: number, truth: Truth | undefined): number {
    const groups = this.kvCacheSpec.groups;
    const { blockTables } = sequence;
    let hidden = hiddenSeed(sequence.tokens.at(position), position);
    for (let g = 0; g < groups.length; g++) {
      let read = g;
      const expected = truth?.entries[g];
      const label = truth === undefined ? 0 : labelOf(truth, g);
      const { kind, blockSize } = groups[g]!;
      for (let q = firstRead(groups[g]!, position); q < position; ) {
        const page = this.#pageOf(blockTables[g]!, g, q);
        const isForeign = this.#labels[page] !== label;
        const blockEnd = Math.min(q - (q % blockSize) + blockSize, position);
        for (let place = this.#placeOf(page, g, q); q < blockEnd; q++, place++) {
          const entry = this.#entries[place]!;
          if (expected !== undefined && (isForeign || expected[q] !== entry))
            this.#untrue ??= { row: position, group: g, position: q, page, isForeign };
          read = mix(read, entry);
          // All tokens of a block have one state; a token reads only the last.
          if (kind === 'state') assert(q === position - 1, 'a state is read from further back');
        }
      }
      hidden = mix(hidden, read);
    }
    const writeTables = sequence.writeTables ?? blockTables;
    let output = hidden;
    for (let g = 0; g < groups.length; g++) {
      const page = this.#pageOf(writeTables[g]!, g, position);
      this.#entries[this.#placeOf(page, g, position)] = entryOf(hidden, g);
      if (truth !== undefined) this.#labels[page] = labelOf(truth, g);
      output = mix(output, this.#entries[this.#placeOf(this.#pageOf(blockTables[g]!, g, position), g, position)]!);
      // What went to the null page means nothing, and must not be found there by luck.
      if (page === NULL_BLOCK) this.scribble(NULL_BLOCK);
    }
    return output;
  }

  #placeOf(page: number, g: number, position: number): number {
    const { kind, blockSize } = this.kvCacheSpec.groups[g]!;
    return page * this.#entriesPerPage + (kind === 'state' ? 0 : position % blockSize);
  }

  #pageOf(table: BlockTable, g: number, position: number): number {
    const block = Math.floor(position / this.kvCacheSpec.groups[g]!.blockSize);
    if (block >= table.length) assert(false, `position ${position} lies outside a table of ${table.length} blocks`);
    return table.ids[block]!;
  }

  #nextGarbage(): number {
    this.#garbage = mix(this.#garbage, 0x6a09e667);
    return this.#garbage;
  }
}

/** Pages of different groups never stand for each other either. */
const labelOf = ({ label }: Truth, group: number): number => label * 16 + group;
