import { assert } from '../src/base/assert.ts';
import { NULL_BLOCK, type RequestId } from '../src/core/ids.ts';
import type { KvCacheSpec } from '../src/core/kv-spec.ts';
import type { BlockTable, SampledToken, SequencePlan, StepPlan, StepResult } from '../src/core/step.ts';
import { entryOf, firstRead, hiddenSeed, mix, nextTokenOf } from './fake-model.ts';

/** A row has read something else than the KV that an engine without a cache would have there. */
export interface WrongRead {
  readonly token: number;
  readonly group: number;
  /** The position whose KV was read, and the page in which it was looked for. */
  readonly position: number;
  readonly block: number;
  /** The page was filled for another salt, model or group, whatever is in it (I10). */
  readonly isForeign: boolean;
}

/** What a request ought to read. */
export interface ReferenceKv {
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
  readonly #entriesPerBlock: number;
  /** For whom each page was filled last; see `labelOf`. */
  readonly #labels: Int32Array;
  #garbage = 0x2545f491;
  tokensComputed = 0;
  #wrongRead: WrongRead | undefined;
  #wrongReads: (WrongRead | undefined)[] = [];

  constructor(spec: KvCacheSpec, vocabSize: number) {
    this.kvCacheSpec = spec;
    this.vocabSize = vocabSize;
    this.#entriesPerBlock = Math.max(...spec.groups.map((group) => group.blockSize));
    this.#entries = new Int32Array(spec.blockCount * this.#entriesPerBlock);
    this.#labels = new Int32Array(spec.blockCount).fill(-1);
    for (let i = 0; i < this.#entries.length; i++) this.#entries[i] = this.#nextGarbage();
  }

  /** The first untrue read of each sequence of the last plan, as far as its truth was known. */
  get wrongReads(): readonly (WrongRead | undefined)[] {
    return this.#wrongReads;
  }

  /**
   * `leftOut`: sequences (indices) that are not computed because something they read is missing. `truthOf`: what
   * requests ought to read, to be compared with what they do read.
   */
  execute(
    plan: StepPlan,
    leftOut: readonly number[] = [],
    referenceOf: (id: RequestId) => ReferenceKv | undefined = () => undefined,
  ): StepResult {
    let rows = 0;
    this.#wrongReads = [];
    const sampled: (SampledToken | undefined)[] = [];
    for (let index = 0; index < plan.sequences.length; index++) {
      const sequence = plan.sequences[index]!;
      let last = 0;
      const isLeftOut = leftOut.includes(index);
      const reference = referenceOf(sequence.requestId);
      this.#wrongRead = undefined;
      for (const { start, end } of sequence.spans) {
        if (start >= end || end > sequence.tokens.length)
          assert(false, `span [${start}, ${end}) of ${sequence.tokens.length} tokens`);
        for (let position: number = start; position < end && !isLeftOut; position++)
          last = this.#token(sequence, position, reference);
        rows += end - start;
      }
      this.#wrongReads.push(this.#wrongRead);
      sampled.push(
        isLeftOut
          ? undefined
          : sequence.sample && { token: nextTokenOf(last, this.vocabSize) as SampledToken['token'] },
      );
    }
    assert(rows === plan.tokenCount, `plan of ${plan.tokenCount} rows has ${rows}`);
    this.tokensComputed += rows;
    return { stepId: plan.stepId, sampled };
  }

  /** What a transfer reads: the block's entries; a state is one. */
  readBlock(block: number, group: number): StoredBlock {
    const { kind, blockSize } = this.kvCacheSpec.groups[group]!;
    const first = block * this.#entriesPerBlock;
    const entries = this.#entries.slice(first, first + (kind === 'state' ? 1 : blockSize));
    return { entries, label: this.#labels[block]! };
  }

  /** What a transfer writes. */
  writeBlock(block: number, { entries, label }: StoredBlock): void {
    this.#entries.set(entries, block * this.#entriesPerBlock);
    this.#labels[block] = label;
  }

  /** The page's memory is lost or overwritten by somebody else. */
  overwrite(block: number): void {
    const first = block * this.#entriesPerBlock;
    for (let i = 0; i < this.#entriesPerBlock; i++) this.#entries[first + i] = this.#nextGarbage();
  }

  /** The KV of one token is lost; in a state group, the state. */
  overwriteAt(block: number, group: number, position: number): void {
    this.#entries[this.#placeOf(block, group, position)] = this.#nextGarbage();
  }

  /** Whether the page holds the KV of this token (in a state group, the state after it), for those with this truth. */
  matchesReference(block: number, group: number, position: number, reference: ReferenceKv): boolean {
    return (
      this.#entries[this.#placeOf(block, group, position)] === reference.entries[group]![position] &&
      this.#labels[block] === labelOf(reference, group)
    );
  }

  /** Computes one token; returns what the next token is made of. */
  #token(sequence: SequencePlan, position: number, reference: ReferenceKv | undefined): number {
    const groups = this.kvCacheSpec.groups;
    const { blockTables } = sequence;
    let hidden = hiddenSeed(sequence.tokens.at(position), position);
    for (let g = 0; g < groups.length; g++) {
      let read = g;
      const expected = reference?.entries[g];
      const label = reference === undefined ? 0 : labelOf(reference, g);
      const { kind, blockSize } = groups[g]!;
      for (let q = firstRead(groups[g]!, position); q < position; ) {
        const block = this.#blockAt(blockTables[g]!, g, q);
        const isForeign = this.#labels[block] !== label;
        const blockEnd = Math.min(q - (q % blockSize) + blockSize, position);
        for (let place = this.#placeOf(block, g, q); q < blockEnd; q++, place++) {
          const entry = this.#entries[place]!;
          if (expected !== undefined && (isForeign || expected[q] !== entry))
            this.#wrongRead ??= { token: position, group: g, position: q, block, isForeign };
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
      const block = this.#blockAt(writeTables[g]!, g, position);
      this.#entries[this.#placeOf(block, g, position)] = entryOf(hidden, g);
      if (reference !== undefined) this.#labels[block] = labelOf(reference, g);
      output = mix(output, this.#entries[this.#placeOf(this.#blockAt(blockTables[g]!, g, position), g, position)]!);
      // What went to the null page means nothing, and must not be found there by luck.
      if (block === NULL_BLOCK) this.overwrite(NULL_BLOCK);
    }
    return output;
  }

  #placeOf(block: number, g: number, position: number): number {
    const { kind, blockSize } = this.kvCacheSpec.groups[g]!;
    return block * this.#entriesPerBlock + (kind === 'state' ? 0 : position % blockSize);
  }

  #blockAt(table: BlockTable, g: number, position: number): number {
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
const labelOf = ({ label }: ReferenceKv, group: number): number => label * 16 + group;
