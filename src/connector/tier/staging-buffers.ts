import { assert } from '../../base/assert.ts';

/** Reused buffers for copies of blocks, within a budget. */
export class StagingBuffers {
  readonly #blockBytes: number;
  readonly #countMax: number;
  readonly #free: Uint8Array[] = [];
  readonly #taken = new Set<Uint8Array>();

  constructor(blockBytes: number, bytesMax: number) {
    this.#blockBytes = blockBytes;
    this.#countMax = Math.floor(bytesMax / blockBytes);
  }

  /** A buffer of one block with any content, or undefined when the budget is used up. */
  take(): Uint8Array | undefined {
    if (this.#taken.size >= this.#countMax) return undefined;
    const buffer = this.#free.pop() ?? new Uint8Array(this.#blockBytes);
    this.#taken.add(buffer);
    return buffer;
  }

  give(buffer: Uint8Array): void {
    assert(this.#taken.delete(buffer), 'a buffer was given back twice');
    this.#free.push(buffer);
  }
}
