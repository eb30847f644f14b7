/** Memory by its address, for threads of one process that share more than SharedArrayBuffers. */
import koffi from 'koffi';

/** Where a view's bytes lie, for as long as its buffer lives. The caller keeps the buffer. */
export const addressOfBytes = (bytes: Uint8Array): MemoryRange => ({
  // The buffer first: small arrays move into memory of their own when it is asked for.
  base: Number(koffi.address(bytes.buffer as ArrayBuffer)),
  baseBytes: bytes.buffer.byteLength,
  offset: bytes.byteOffset,
  length: bytes.length,
});

/** Part of a buffer: plain data that means the same in all threads of a process. */
export interface MemoryRange {
  readonly base: number;
  readonly baseBytes: number;
  readonly offset: number;
  readonly length: number;
}

/** Views of other threads' buffers; the last few are kept, because the garbage collector takes each for memory of its own. */
export class MemoryViews {
  readonly #views = new Map<string, ArrayBuffer>();

  /** Valid while the buffer lives; the caller guards that. */
  bytesAt({ base, baseBytes, offset, length }: MemoryRange): Uint8Array {
    const name = `${base}+${baseBytes}`;
    let view = this.#views.get(name);
    if (view === undefined) {
      view = koffi.view(base, baseBytes);
      this.#views.set(name, view);
      const [oldest] = this.#views.keys();
      if (this.#views.size > viewsMax && oldest !== undefined) this.#views.delete(oldest);
    }
    return new Uint8Array(view, offset, length);
  }
}

const viewsMax = 8;
