import { assert } from '../base/assert.ts';
import type { BlockId } from '../core/ids.ts';
import type { BlockTable } from '../core/step.ts';

/** A request's pages in one group, in logical order. The array is reused from step to step and grown by doubling. */
export class PageTable implements BlockTable {
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

  at(block: number): BlockId {
    if (block < 0 || block >= this.#length) failOutside(block, this.#length);
    return this.#ids[block] as BlockId;
  }

  push(page: BlockId): void {
    if (this.#length === this.#ids.length) {
      const grown = new Int32Array(this.#ids.length * 2);
      grown.set(this.#ids);
      this.#ids = grown;
    }
    this.#ids[this.#length++] = page;
  }

  set(block: number, page: BlockId): void {
    if (block < 0 || block >= this.#length) failOutside(block, this.#length);
    this.#ids[block] = page;
  }

  /** The block whose page it is, from block `from` on. */
  indexOf(page: BlockId, from: number): number | undefined {
    for (let block = from; block < this.#length; block++) if (this.#ids[block] === page) return block;
    return undefined;
  }

  clear(): void {
    this.#length = 0;
  }
}

/** The sentence is made only when it is needed: tables are read several times per token. */
function failOutside(block: number, length: number): never {
  assert(false, `block ${block} outside a table of ${length}`);
}
