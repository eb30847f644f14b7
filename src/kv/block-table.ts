import { assert } from '../base/assert.ts';
import type { BlockId } from '../core/ids.ts';
import type { BlockTable } from '../core/step.ts';

/** A request's pages in one group, in logical order. The array is reused from step to step and grown by doubling. */
export class BlockTableBuffer implements BlockTable {
  #ids: Int32Array;
  #length = 0;

  /** `capacity`: blocks that it is made to hold before it must grow. */
  constructor(capacity: number) {
    this.#ids = new Int32Array(Math.max(capacity, 1));
  }

  get ids(): Int32Array {
    return this.#ids;
  }

  get length(): number {
    return this.#length;
  }

  at(index: number): BlockId {
    if (index < 0 || index >= this.#length) failOutside(index, this.#length);
    return this.#ids[index] as BlockId;
  }

  push(block: BlockId): void {
    if (this.#length === this.#ids.length) {
      const grown = new Int32Array(this.#ids.length * 2);
      grown.set(this.#ids);
      this.#ids = grown;
    }
    this.#ids[this.#length++] = block;
  }

  set(index: number, block: BlockId): void {
    if (index < 0 || index >= this.#length) failOutside(index, this.#length);
    this.#ids[index] = block;
  }

  /** The block whose page it is, from block `from` on. */
  indexOf(block: BlockId, from: number): number | undefined {
    for (let index = from; index < this.#length; index++) if (this.#ids[index] === block) return index;
    return undefined;
  }

  clear(): void {
    this.#length = 0;
  }
}

/** The sentence is made only when it is needed: tables are read several times per token. */
function failOutside(index: number, length: number): never {
  assert(false, `block ${index} outside a table of ${length}`);
}
