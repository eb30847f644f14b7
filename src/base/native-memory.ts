/** Memory by its address, for threads of one process that share memory outside SharedArrayBuffers. */
import koffi from 'koffi';

/** The address of a view's bytes. It is valid while the buffer lives; the caller keeps the buffer. */
export const addressOfBytes = (bytes: Uint8Array): MemoryRange => ({
  // Access the buffer first: then the bytes of a small array move from the JavaScript heap to a separate buffer.
  base: Number(koffi.address(bytes.buffer as ArrayBuffer)),
  baseBytes: bytes.buffer.byteLength,
  offset: bytes.byteOffset,
  length: bytes.length,
});

/** A part of a buffer: plain data that is valid in all threads of a process. */
export interface MemoryRange {
  readonly base: number;
  readonly baseBytes: number;
  readonly offset: number;
  readonly length: number;
}

/** Views of other threads' buffers. Only the last few are kept: the garbage collector counts each view as its own memory. */
export class MemoryViews {
  readonly #views = new Map<string, ArrayBuffer>();

  /** Valid while the buffer lives; the caller must ensure it. */
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
