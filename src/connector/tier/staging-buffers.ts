import { assert } from '../../base/assert.ts';

/** Page-sized memory for copies, reused, within a budget. */
export class StagingBuffers {
  readonly #pageBytes: number;
  readonly #countMax: number;
  readonly #free: Uint8Array[] = [];
  readonly #taken = new Set<Uint8Array>();

  constructor(pageBytes: number, bytesMax: number) {
    this.#pageBytes = pageBytes;
    this.#countMax = Math.floor(bytesMax / pageBytes);
  }

  /** A buffer of one page with any content, or undefined when the budget is spent. */
  take(): Uint8Array | undefined {
    if (this.#taken.size >= this.#countMax) return undefined;
    const buffer = this.#free.pop() ?? new Uint8Array(this.#pageBytes);
    this.#taken.add(buffer);
    return buffer;
  }

  give(buffer: Uint8Array): void {
    assert(this.#taken.delete(buffer), 'a buffer was given back twice');
    this.#free.push(buffer);
  }
}
