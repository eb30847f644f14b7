import { assert } from '../base/assert.ts';
import { defineError } from '../base/errors.ts';
import type { BlockId } from '../core/ids.ts';
import { allocateTensors, type ComputeDevice } from '../ggml/device.ts';
import type { BufferPtr, ContextPtr, TensorPtr } from '../ggml/ffi.ts';
import type { GraphBuilder } from '../ggml/graph.ts';
import { F16, type GgmlType, I32, Q8_0, rowBytes } from '../ggml/types.ts';

/** Element types of K and V, by the names that users know. */
export const kvTypes = { f16: F16, q8_0: Q8_0 } as const satisfies Readonly<Record<string, GgmlType>>;
export type KvTypeName = keyof typeof kvTypes;
export type KvType = GgmlType;

/** How KV lies in a page: `[layer][K|V][token][kvHead * headDim]`. */
export interface KvLayout {
  readonly type: KvType;
  readonly layerCount: number;
  readonly blockSize: number;
  readonly headCountKv: number;
  readonly headDim: number;
}

export const keyPart = 0;
export const valuePart = 1;
export type KvPart = typeof keyPart | typeof valuePart;

/** Elements of one token's K (or V) in one layer: a *row* of the pool. */
export const rowElements = (layout: KvLayout): number => layout.headCountKv * layout.headDim;

/** Bytes of one page: everything one block of tokens has in all layers, contiguous, so that a transfer is one copy. */
export const blockBytes = (layout: KvLayout): number => layout.layerCount * 2 * layout.blockSize * kvRowBytes(layout);

/** Bytes of a row of the pool. */
export const kvRowBytes = (layout: KvLayout): number => rowBytes(layout.type, rowElements(layout));

export const kvPoolTooLarge = defineError(
  'KVASIR_KV_POOL_TOO_LARGE',
  'A KV cache of {bytes} bytes has more rows than kernels can count: of this model at most {maxBytes} bytes. Use --kv-cache-memory {maxBytes}, or less.',
  400,
);

/** Kernels of ggml's and of ours count rows, and the pieces that a gather copies, in 32 bits with a sign. */
const rowsMax = 2 ** 31 - 1;

/** How many pages a pool can have at most; `granuleBytes` as in `KvMemory`. Block ids are smaller than row numbers. */
export function blockCountMax(layout: KvLayout, granuleBytes: number): number {
  const rowsPerBlock = layout.layerCount * 2 * layout.blockSize;
  return Math.floor(rowsMax / Math.max(rowsPerBlock, blockBytes(layout) / granuleBytes));
}

/**
 * What a gather copies at a time: on a CPU, all of a block's K (or V) in a layer. ggml's Vulkan backend copies only the first
 * 512 elements of a longer I32 row.
 */
function granuleBytesOf(layout: KvLayout, device: Pick<ComputeDevice, 'kind'>): number {
  const partBytes = layout.blockSize * kvRowBytes(layout);
  return device.kind === 'cpu' ? partBytes : greatestCommonDivisor(partBytes, 2048);
}

/** Before any memory is asked for. @throws kvPoolTooLarge */
export function checkPool(device: Pick<ComputeDevice, 'kind'>, layout: KvLayout, blockCount: number): void {
  const most = blockCountMax(layout, granuleBytesOf(layout, device));
  const bytes = blockBytes(layout);
  if (blockCount > most) throw kvPoolTooLarge({ bytes: blockCount * bytes, maxBytes: most * bytes });
}

/** Node 20 has no views of 4 GiB and more: larger pools are seen through several. */
const viewBytesMax = 2 ** 30;

/**
 * The device pool: the memory attention reads. ggml sees it as one 2-D tensor of rows, the row of
 * (block, layer, part, offset) being `((block * layers + layer) * 2 + part) * blockSize + offset`.
 */
export class KvMemory {
  readonly layout: KvLayout;
  readonly blockCount: number;
  readonly #device: ComputeDevice;
  readonly #context: ContextPtr;
  readonly #buffer: BufferPtr;
  readonly #pool: TensorPtr;
  /** Where page 0 lies in host memory; undefined on other devices. */
  readonly #base: number | undefined;
  readonly #views: Uint8Array[] = [];
  readonly #blocksPerView: number;
  readonly #rowBytes: number;
  /** Bytes of one block's K (or V) in one layer. */
  readonly #partBytes: number;
  readonly granuleBytes: number;

  /** Throws `kvPoolTooLarge` or `outOfNativeMemory`. Pages that were never written cost no physical memory where the system allocates lazily. */
  constructor(device: ComputeDevice, layout: KvLayout, blockCount: number) {
    assert(blockCount >= 2, 'a pool needs the null page and one more');
    checkPool(device, layout, blockCount);
    const { native } = device;
    this.#device = device;
    this.layout = layout;
    this.blockCount = blockCount;
    this.#rowBytes = kvRowBytes(layout);
    this.#partBytes = layout.blockSize * this.#rowBytes;
    this.granuleBytes = granuleBytesOf(layout, device);
    this.#blocksPerView = Math.max(1, Math.floor(viewBytesMax / this.blockBytes));
    this.#context = native.ggml_init({ mem_size: 4096, mem_buffer: 0, no_alloc: true });
    this.#pool = native.ggml_new_tensor_2d(
      this.#context,
      layout.type.id,
      rowElements(layout),
      blockCount * this.rowsPerBlock,
    );
    const bytes = blockCount * this.blockBytes;
    try {
      this.#buffer = allocateTensors(device, this.#context, device.mainBuffers, 'the KV cache', bytes);
    } catch (error) {
      native.ggml_free(this.#context);
      throw error;
    }
    if (device.mainBuffers.isHost) {
      this.#base = native.ggml_backend_buffer_get_base(this.#buffer);
      // Where KV is padded, a mask hides rows of the null page, and a kernel may multiply them by 0: they must not be NaN.
      this.bytesOf(0 as BlockId).fill(0);
    } else native.ggml_backend_buffer_clear(this.#buffer, 0);
  }

  get blockBytes(): number {
    return blockBytes(this.layout);
  }

  get rowsPerBlock(): number {
    return this.layout.layerCount * 2 * this.layout.blockSize;
  }

  /** The row index, within `tokenRows`, of a token that lies at `offset` in `block`; the same for every layer and part. */
  slotOf(block: BlockId, offset: number): number {
    return block * this.rowsPerBlock + offset;
  }

  /** `[rowElements, ...]`: rows of a layer's K or V, to be written at `slotOf`. */
  tokenRows(graph: GraphBuilder, layer: number, part: KvPart): TensorPtr {
    const skipped = (layer * 2 + part) * this.layout.blockSize;
    const rows = this.blockCount * this.rowsPerBlock - skipped;
    return graph.view2d(this.#pool, rowElements(this.layout), rows, this.#rowBytes, skipped * this.#rowBytes);
  }

  /**
   * I32 `[granuleBytes / 4, ...]`: a layer's K (or V) in pieces of `granuleBytes`, to be gathered at `granulesOf`. As I32
   * the bytes pass through `ggml_get_rows` untouched, where other types would become F32.
   */
  granuleRows(graph: GraphBuilder, layer: number, part: KvPart): TensorPtr {
    const offset = (layer * 2 + part) * this.#partBytes;
    const rows = Math.floor((this.blockCount * this.blockBytes - offset) / this.granuleBytes);
    const ne = [this.granuleBytes / I32.typeSize, rows, 1] as const;
    return graph.reinterpret(this.#pool, I32, ne, [this.granuleBytes, rows * this.granuleBytes], offset);
  }

  /** The rows, within `granuleRows`, of these blocks one after the other; the same for every layer and part. */
  granulesOf(blocks: Int32Array): Int32Array {
    const perBlock = this.granulesPerBlock;
    const perPage = this.blockBytes / this.granuleBytes;
    const rows = new Int32Array(blocks.length * perBlock);
    for (let i = 0; i < rows.length; i++) {
      rows[i] = (blocks[Math.floor(i / perBlock)] ?? 0) * perPage + (i % perBlock);
    }
    return rows;
  }

  get granulesPerBlock(): number {
    return this.#partBytes / this.granuleBytes;
  }

  /** Where page 0 begins; on a CPU only. */
  get baseAddress(): number {
    assert(this.#base !== undefined, 'the pool is not in host memory');
    return this.#base;
  }

  /** A page's bytes in place; on a CPU only. */
  bytesOf(block: BlockId): Uint8Array {
    if (block < 0 || block >= this.blockCount) assert(false, `block ${block} outside the pool`);
    const index = Math.floor(block / this.#blocksPerView);
    const start = (block - index * this.#blocksPerView) * this.blockBytes;
    return (this.#views[index] ?? this.#newView(index)).subarray(start, start + this.blockBytes);
  }

  #newView(index: number): Uint8Array {
    const first = index * this.#blocksPerView;
    const blocks = Math.min(this.#blocksPerView, this.blockCount - first);
    const memory = this.#device.native.memoryAt(this.baseAddress + first * this.blockBytes, blocks * this.blockBytes);
    const view = new Uint8Array(memory);
    this.#views[index] = view;
    return view;
  }

  close(): void {
    this.#device.native.ggml_backend_buffer_free(this.#buffer);
    this.#device.native.ggml_free(this.#context);
  }
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}
