import { assert } from '../base/assert.ts';
import type { ComputeDevice } from './device.ts';
import { type AllocatorPtr, type BufferPtr, type GraphPtr, nullPtr, viewBytesMax } from './ffi.ts';

/** A class of typed arrays, such as `Float32Array`. */
export interface TypedArrayOf<Data> {
  new (memory: ArrayBufferLike, byteOffset: number, length: number): Data;
  readonly BYTES_PER_ELEMENT: number;
}

/** A part of the buffer. */
interface View {
  /** In bytes from the start of the buffer. */
  readonly start: number;
  readonly bytes: Uint8Array;
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
  /** Of the buffer; undefined until its bytes are asked for. */
  #address: number | undefined;
  /** Usually one, of the whole buffer. */
  readonly #views: View[] = [];
  readonly #viewBytesMax: number;

  /** `bytesMax`: of a view; a larger buffer has several. */
  constructor(device: ComputeDevice, bytesMax = viewBytesMax) {
    assert(device.kind === 'cpu', "a GPU's scheduler has its own memory");
    this.#device = device;
    this.#viewBytesMax = bytesMax;
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
      this.#address = undefined;
      this.#views.length = 0;
    }
    this.#bytes = bytes;
    return isAllocated;
  }

  /**
   * Bytes of the buffer in place, valid until the next `allocate`; `buffer` is that of an allocated tensor. All are parts of a few views. The
   * garbage collector counts the bytes of each view of native memory as garbage, so a view of each tensor would cause
   * collections while graphs compute.
   */
  bytesAt(address: number, length: number, buffer: BufferPtr): Uint8Array {
    this.#address ??= this.#device.native.ggml_backend_buffer_get_base(buffer);
    const start = address - this.#address;
    const end = start + length;
    assert(start >= 0 && end <= this.#bytes, 'the tensor lies in the memory of results');
    const known = this.#views.find((view) => view.start <= start && end <= view.start + view.bytes.length);
    const view = known ?? this.#newView(this.#address, start, length);
    return view.bytes.subarray(start - view.start, end - view.start);
  }

  /** Views begin at few places, unless a tensor is so large that it has one of its own. */
  #newView(address: number, from: number, length: number): View {
    const most = this.#viewBytesMax;
    const start = this.#bytes <= most ? 0 : length <= most / 2 ? from - (from % (most / 2)) : from;
    const size = Math.min(Math.max(most, length), this.#bytes - start);
    const view = { start, bytes: new Uint8Array(this.#device.native.memoryAt(address + start, size)) };
    this.#views.push(view);
    return view;
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
