import type { NativeApi } from '../ggml/ffi.ts';

/** Memory that C reads. Its address changes only in `reserve`. */
export class NativeMemory {
  readonly #native: NativeApi;
  #buffer = new ArrayBuffer(0);
  #address = 0;
  bytes = new DataView(this.#buffer);
  words = new Int32Array(this.#buffer);

  constructor(native: NativeApi, byteLength = 0) {
    this.#native = native;
    this.reserve(byteLength);
  }

  /** Allocates at least this size. If the memory grows, its content is lost and all bytes are 0. */
  reserve(byteLength: number): void {
    if (byteLength <= this.#buffer.byteLength) return;
    this.#buffer = new ArrayBuffer(2 ** Math.ceil(Math.log2(Math.max(byteLength, 4096))));
    this.#address = this.#native.addressOf(this.#buffer);
    this.bytes = new DataView(this.#buffer);
    this.words = new Int32Array(this.#buffer);
  }

  get address(): number {
    return this.#address;
  }

  setPointer(at: number, address: number): void {
    this.setInt64(at, address);
  }

  /** A safe integer. In two halves, because a BigInt allocates memory. */
  setInt64(at: number, value: number): void {
    this.bytes.setUint32(at, value, true);
    this.bytes.setInt32(at + 4, Math.floor(value / 2 ** 32), true);
  }
}
