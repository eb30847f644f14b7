import { assert } from '../base/assert.ts';
import type { ComputeDevice } from './device.ts';
import { type AllocatorPtr, type BufferPtr, type GraphPtr, nullPtr } from './ffi.ts';

/** A class of typed arrays, such as `Float32Array`. */
export interface TypedArrayOf<Data> {
  new (memory: ArrayBufferLike, byteOffset: number, length: number): Data;
  readonly BYTES_PER_ELEMENT: number;
}

/**
 * The memory in which graphs on a CPU have their inputs and results: one buffer, as large as the largest graph needs. Several built
 * graphs can share it, because only one is computed at a time. Then a graph's results are valid until another graph runs, and
 * inputs are written before each run.
 */
export class ComputeMemory {
  readonly #device: ComputeDevice;
  #allocator: AllocatorPtr;
  #bytes = 0;
  #moves = 0;
  #view: { readonly bytes: Uint8Array; readonly address: number } | undefined;

  constructor(device: ComputeDevice) {
    assert(device.kind === 'cpu', "a GPU's scheduler has its own memory");
    this.#device = device;
    this.#allocator = device.native.ggml_gallocr_new(device.mainBuffers.pointer);
  }

  /** Gives each tensor of the graph its place. Returns false if there is not enough memory. */
  allocate(graph: GraphPtr): boolean {
    const { native } = this.#device;
    const isAllocated = native.ggml_gallocr_alloc_graph(this.#allocator, graph);
    const bytes = isAllocated ? Number(native.ggml_gallocr_get_buffer_size(this.#allocator, 0)) : 0;
    // ggml frees the buffer before it allocates a larger one, so after a failure there is no buffer. It never allocates a smaller one.
    if (bytes !== this.#bytes) {
      this.#moves++;
      this.#view = undefined;
    }
    this.#bytes = bytes;
    return isAllocated;
  }

  /**
   * Bytes of the buffer in place, valid until the next `allocate`; `buffer` is that of an allocated tensor. All are parts of one view. The
   * garbage collector counts the bytes of each view of native memory as garbage, so a view of each tensor would cause
   * collections while graphs compute.
   */
  bytesAt(address: number, length: number, buffer: BufferPtr): Uint8Array {
    this.#view ??= this.#wholeBuffer(buffer);
    const view = this.#view;
    const start = address - view.address;
    assert(start >= 0 && start + length <= this.#bytes, 'the tensor lies in the memory of results');
    return view.bytes.subarray(start, start + length);
  }

  #wholeBuffer(buffer: BufferPtr): { readonly bytes: Uint8Array; readonly address: number } {
    const { native } = this.#device;
    const address = native.ggml_backend_buffer_get_base(buffer);
    return { bytes: new Uint8Array(native.memoryAt(address, this.#bytes)), address };
  }

  /** How often the buffer was replaced. Then tensors of graphs that were allocated before have no memory. */
  get moves(): number {
    return this.#moves;
  }

  close(): void {
    if (this.#allocator !== 0) this.#device.native.ggml_gallocr_free(this.#allocator);
    this.#allocator = nullPtr();
  }
}
