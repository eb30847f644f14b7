import { assert } from '../base/assert.ts';
import type { BlockId, BlockIndex } from '../core/ids.ts';
import type { BlockTable } from '../core/step.ts';

/** The block ids of a request in one group, in logical order. Steps reuse the array, which grows by doubling. */
export class BlockTableBuffer implements BlockTable {
  #ids: Int32Array;
  #length = 0;

  /** `capacity`: blocks that fit before the table grows. */
  constructor(capacity: number) {
    this.#ids = new Int32Array(Math.max(capacity, 1));
  }

  get ids(): Int32Array {
    return this.#ids;
  }

  get length(): number {
    return this.#length;
  }

  at(index: BlockIndex): BlockId {
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

  set(index: BlockIndex, block: BlockId): void {
    if (index < 0 || index >= this.#length) failOutside(index, this.#length);
    this.#ids[index] = block;
  }

  pop(): void {
    assert(this.#length > 0, 'the table has no block');
    this.#length--;
  }

  /** The first index of the block, from index `from` on. */
  indexOf(block: BlockId, from: BlockIndex): BlockIndex | undefined {
    for (let index = from; index < this.#length; index++) if (this.#ids[index] === block) return index;
    return undefined;
  }

  clear(): void {
    this.#length = 0;
  }
}

/** Tables are read several times per token, so the message is built only if the assertion fails. */
function failOutside(index: BlockIndex, length: number): never {
  assert(false, `block index ${index} is outside a table of ${length} blocks`);
}
