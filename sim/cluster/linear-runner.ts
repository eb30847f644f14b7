import { assert } from '../../src/base/assert.ts';
import type { BlockMemory } from '../../src/core/block-memory.ts';
import type { BlockId, TokenId } from '../../src/core/ids.ts';
import type { SequencePlan, StepPlan, StepResult } from '../../src/core/step.ts';
import { entryOf, hiddenSeed, mix, nextTokenOf } from '../fake-model.ts';

export const vocabSize = 1 << 15;
const bytesPerEntry = 4;

/**
 * The model of `fake-model.ts` with one group of full attention, over a pool whose bytes the real connector loads and saves. What a token reads is
 * a hash of all entries before it, so a span costs as many hashes as its context has tokens, and not a multiple. Memory starts as garbage.
 */
export class LinearRunner implements BlockMemory {
  readonly blockCount: number;
  readonly blockBytes: number;
  readonly #blockSize: number;
  readonly #entries: Int32Array;
  readonly #bytes: Uint8Array;

  /** `garbage`: decides the first content of the memory. */
  constructor(blockCount: number, blockSize: number, garbage: number) {
    this.blockCount = blockCount;
    this.blockBytes = blockSize * bytesPerEntry;
    this.#blockSize = blockSize;
    this.#entries = new Int32Array(blockCount * blockSize);
    this.#bytes = new Uint8Array(this.#entries.buffer);
    for (let i = 0, value = garbage; i < this.#entries.length; i++) this.#entries[i] = value = mix(value, 0x6a09e667);
  }

  bytesOf(block: BlockId): Uint8Array {
    return this.#bytes.subarray(block * this.blockBytes, (block + 1) * this.blockBytes);
  }

  execute(plan: StepPlan): StepResult {
    return {
      stepId: plan.stepId,
      sampled: plan.sequences.map((sequence) => {
        const last = this.#compute(sequence);
        return sequence.sample && { token: nextTokenOf(last, vocabSize) as TokenId };
      }),
    };
  }

  /** Returns the value from which the token after the last span follows. */
  #compute({ spans, tokens, blockTables, writeTables }: SequencePlan): number {
    const [table, writeTable] = [blockTables[0]!, (writeTables ?? blockTables)[0]!];
    const [entries, blockSize] = [this.#entries, this.#blockSize];
    let [read, readEnd, out] = [0, 0, 0];
    for (const { start, end } of spans)
      for (let position: number = start; position < end; position++) {
        const index = Math.floor(position / blockSize);
        if (index >= table.length) assert(false, `position ${position} is outside a table of ${table.length} blocks`);
        while (readEnd < position) {
          const readIndex = Math.floor(readEnd / blockSize);
          let at = table.ids[readIndex]! * blockSize + (readEnd - readIndex * blockSize);
          const last = Math.min((readIndex + 1) * blockSize, position);
          for (; readEnd < last; readEnd++) read = mix(read, entries[at++]!);
        }
        const hidden = mix(hiddenSeed(tokens.at(position), position), read);
        const place = position - index * blockSize;
        entries[writeTable.ids[index]! * blockSize + place] = entryOf(hidden, 0);
        out = mix(hidden, entries[table.ids[index]! * blockSize + place]!);
      }
    return out;
  }
}

/** The naive engine for one conversation: no blocks, no cache, no replicas. Tokens are only appended. */
export class ReferenceText {
  readonly #tokens: number[] = [];
  #read = 0;
  #out = 0;

  get tokens(): readonly number[] {
    return this.#tokens;
  }

  append(tokens: readonly number[]): void {
    for (const token of tokens) {
      const hidden = mix(hiddenSeed(token, this.#tokens.length), this.#read);
      const entry = entryOf(hidden, 0);
      this.#out = mix(hidden, entry);
      this.#read = mix(this.#read, entry);
      this.#tokens.push(token);
    }
  }

  /** Appends the next tokens of the text, and returns them. */
  generate(count: number): readonly number[] {
    const first = this.#tokens.length;
    for (let i = 0; i < count; i++) this.append([nextTokenOf(this.#out, vocabSize)]);
    return this.#tokens.slice(first);
  }
}
