import { assert } from '../base/assert.ts';
import { defineError } from '../base/errors.ts';
import type { BlockId } from '../core/ids.ts';
import { allocateTensors, type ComputeDevice } from '../ggml/device.ts';
import { type BufferPtr, type ContextPtr, type TensorPtr, viewBytesMax } from '../ggml/ffi.ts';
import type { GraphBuilder } from '../ggml/graph.ts';
import { F16, F32, type GgmlType, I32, Q8_0, rowBytes } from '../ggml/types.ts';

/** Element types of K and V, by the names that users know. */
export const kvTypes = { f16: F16, q8_0: Q8_0 } as const satisfies Readonly<Record<string, GgmlType>>;
export type KvTypeName = keyof typeof kvTypes;
export type KvType = GgmlType;

/**
 * The layout of KV in a block: `[layer][part][token][kvHead * headDim]`. The parts are K and V, or only K. In blocks of
 * states, the states of the group's layers are one after another.
 */
export interface KvLayout {
  readonly type: KvType;
  readonly layerCount: number;
  readonly blockSize: number;
  readonly headCountKv: number;
  readonly headDim: number;
  /** V of a head is this many first elements of the head's K, and is not stored; undefined: V is a part of its own. */
  readonly valueInKey?: number | undefined;
}

export const keyPart = 0;
export const valuePart = 1;
export type KvPart = typeof keyPart | typeof valuePart;

/** K and V, or only K. */
export const partCount = ({ valueInKey }: Pick<KvLayout, 'valueInKey'>): 1 | 2 => (valueInKey === undefined ? 2 : 1);

/** Elements of one token's part in one layer, which is a row of the pool. */
export const rowElements = (layout: Pick<KvLayout, 'headCountKv' | 'headDim'>): number =>
  layout.headCountKv * layout.headDim;

/** Bytes of one block: KV of its tokens in all layers, contiguous, so that a transfer is one copy. */
export const blockBytes = (layout: KvLayout): number => rowsPerBlock(layout) * kvRowBytes(layout);

const rowsPerBlock = (layout: KvLayout): number => layout.layerCount * partCount(layout) * layout.blockSize;

/** Bytes of a row of the pool. */
export const kvRowBytes = (layout: Pick<KvLayout, 'type' | 'headCountKv' | 'headDim'>): number =>
  rowBytes(layout.type, rowElements(layout));

export const kvPoolTooLarge = defineError(
  'KVASIR_KV_POOL_TOO_LARGE',
  'A KV cache of {bytes} bytes has more rows than kernels can count: for this model the largest is {maxBytes} bytes. Use --kv-cache-memory {maxBytes}, or less.',
  400,
);

/** ggml's kernels and Kvasir's count rows, and the granules of a gather, in signed 32-bit integers. */
const rowsMax = 2 ** 31 - 1;

/** The largest number of blocks in a pool; `granuleBytes` as in `KvMemory`. Block ids are smaller than row indices. */
export function blockCountMax(layout: KvLayout, granuleBytes: number): number {
  return Math.floor(rowsMax / Math.max(rowsPerBlock(layout), blockBytes(layout) / granuleBytes));
}

/**
 * A granule is the piece that a gather copies at a time: on a CPU, all of a block's K (or V) in a layer. ggml's Vulkan
 * backend copies only the first 512 elements of a longer I32 row.
 */
function granuleBytesOf(layout: KvLayout, device: Pick<ComputeDevice, 'kind'>): number {
  const partBytes = layout.blockSize * kvRowBytes(layout);
  return device.kind === 'cpu' ? partBytes : greatestCommonDivisor(partBytes, 2048);
}

/** Checks the size before memory is allocated. @throws kvPoolTooLarge */
export function checkPool(device: Pick<ComputeDevice, 'kind'>, layout: KvLayout, blockCount: number): void {
  const most = blockCountMax(layout, granuleBytesOf(layout, device));
  const bytes = blockBytes(layout);
  if (blockCount > most) throw kvPoolTooLarge({ bytes: blockCount * bytes, maxBytes: most * bytes });
}

/**
 * The pool, which attention reads. For ggml it is one 2-D tensor of rows. The row of (block, layer, part, offset) is
 * `((block * layers + layer) * parts + part) * blockSize + offset`.
 */
export class KvMemory {
  readonly layout: KvLayout;
  readonly blockCount: number;
  readonly #device: ComputeDevice;
  readonly #context: ContextPtr;
  readonly #buffer: BufferPtr;
  readonly #pool: TensorPtr;
  /** Address of block 0 in host memory; undefined on other devices. */
  readonly #base: number | undefined;
  readonly #views: Uint8Array[] = [];
  readonly #blocksPerView: number;
  readonly #rowBytes: number;
  /** Bytes of one block's K (or V) in one layer. */
  readonly #partBytes: number;
  readonly granuleBytes: number;
  /** Whether another object with other rows owns the memory. */
  readonly #isView: boolean;

  /**
   * `pool`: of which this is a view (`inLayouts`). Throws `kvPoolTooLarge` or `outOfNativeMemory`. Blocks that were never
   * written need no physical memory on most systems.
   */
  constructor(device: ComputeDevice, layout: KvLayout, blockCount: number, pool?: KvMemory) {
    assert(blockCount >= 2, 'a pool has the null block and one more');
    checkPool(device, layout, blockCount);
    const { native } = device;
    this.#device = device;
    this.layout = layout;
    this.blockCount = blockCount;
    this.#rowBytes = kvRowBytes(layout);
    this.#partBytes = layout.blockSize * this.#rowBytes;
    this.granuleBytes = granuleBytesOf(layout, device);
    this.#blocksPerView = Math.max(1, Math.floor(viewBytesMax / this.blockBytes));
    this.#isView = pool !== undefined;
    if (pool !== undefined) {
      this.#context = pool.#context;
      this.#pool = pool.#pool;
      this.#buffer = pool.#buffer;
      this.#base = pool.#base;
      return;
    }
    this.#context = native.ggml_init({ mem_size: 4096, mem_buffer: 0, no_alloc: true });
    this.#pool = native.ggml_new_tensor_2d(
      this.#context,
      layout.type.id,
      rowElements(layout),
      blockCount * this.rowsPerBlock,
    );
    const bytes = blockCount * this.blockBytes;
    try {
      this.#buffer = allocateTensors(device, this.#context, device.mainBuffers, { purpose: 'the KV cache', bytes });
    } catch (error) {
      native.ggml_free(this.#context);
      throw error;
    }
    if (device.mainBuffers.isHost) {
      this.#base = native.ggml_backend_buffer_get_base(this.#buffer);
      // If KV is padded, the padding is rows of the null block. A kernel may multiply masked rows by 0, so they must
      // not be NaN.
      this.bytesOf(0 as BlockId).fill(0);
    } else native.ggml_backend_buffer_clear(this.#buffer, 0);
  }

  /**
   * The same blocks with the rows of each layout, for groups of layers with other heads. Blocks have as many bytes in each. One object
   * for each layout.
   */
  inLayouts(layouts: readonly KvLayout[]): readonly KvMemory[] {
    const views = new Map<KvLayout, KvMemory>([[this.layout, this]]);
    return layouts.map((layout) => {
      assert(blockBytes(layout) === this.blockBytes, 'all groups have blocks of equal size');
      const view = views.get(layout) ?? new KvMemory(this.#device, layout, this.blockCount, this);
      views.set(layout, view);
      return view;
    });
  }

  get blockBytes(): number {
    return blockBytes(this.layout);
  }

  get rowsPerBlock(): number {
    return rowsPerBlock(this.layout);
  }

  /** The index in `tokenRows` of the token at `offset` in `block`; the same for every layer and part. */
  slotOf(block: BlockId, offset: number): number {
    return block * this.rowsPerBlock + offset;
  }

  /** `[rowElements, ...]`: rows of a layer's K or V, which are written at `slotOf`. */
  tokenRows(graph: GraphBuilder, layer: number, part: KvPart): TensorPtr {
    const skipped = this.#partIndex(layer, part) * this.layout.blockSize;
    const rows = this.blockCount * this.rowsPerBlock - skipped;
    return graph.view2d(this.#pool, rowElements(this.layout), rows, this.#rowBytes, skipped * this.#rowBytes);
  }

  /**
   * I32 `[granuleBytes / 4, ...]`: a layer's K (or V) in granules, which are gathered at `granulesOf`. `ggml_get_rows`
   * copies the bytes of I32 unchanged, and converts other types to F32.
   */
  granuleRows(graph: GraphBuilder, layer: number, part: KvPart): TensorPtr {
    const offset = this.#partIndex(layer, part) * this.#partBytes;
    const rows = Math.floor((this.blockCount * this.blockBytes - offset) / this.granuleBytes);
    const ne = [this.granuleBytes / I32.typeSize, rows, 1] as const;
    return graph.reinterpret(this.#pool, I32, ne, [this.granuleBytes, rows * this.granuleBytes], offset);
  }

  #partIndex(layer: number, part: KvPart): number {
    assert(part < partCount(this.layout), 'a part that is stored');
    return layer * partCount(this.layout) + part;
  }

  /** The indices in `granuleRows` of these blocks, one after the other; the same for every layer and part. */
  granulesOf(blocks: Int32Array): Int32Array {
    const perPart = this.granulesPerPart;
    const perBlock = this.blockBytes / this.granuleBytes;
    const rows = new Int32Array(blocks.length * perPart);
    for (let i = 0; i < rows.length; i++) {
      rows[i] = (blocks[Math.floor(i / perPart)] ?? 0) * perBlock + (i % perPart);
    }
    return rows;
  }

  /** F32 `[ne0, ne1]`: a part of a block that has states, from a byte offset. */
  stateView(graph: GraphBuilder, block: BlockId, offset: number, [ne0, ne1]: readonly [number, number]): TensorPtr {
    const bytes = ne0 * F32.typeSize;
    assert(offset + ne1 * bytes <= this.blockBytes, 'a state within its block');
    return graph.reinterpret(this.#pool, F32, [ne0, ne1, 1], [bytes, bytes * ne1], block * this.blockBytes + offset);
  }

  /** Granules of one block's K (or V) in one layer. */
  get granulesPerPart(): number {
    return this.#partBytes / this.granuleBytes;
  }

  get isHost(): boolean {
    return this.#base !== undefined;
  }

  /** Address of block 0; on a CPU only. */
  get baseAddress(): number {
    assert(this.#base !== undefined, 'the pool is not in host memory');
    return this.#base;
  }

  /** The address of a block; on a CPU only. */
  addressOf(block: BlockId): number {
    this.#checkBlock(block);
    return this.baseAddress + block * this.blockBytes;
  }

  #checkBlock(block: BlockId): void {
    if (block < 0 || block >= this.blockCount) assert(false, `block ${block} is outside the pool`);
  }

  /** Copies a block to host memory, on any device. */
  read(block: BlockId, into: Uint8Array): void {
    this.#checkBlock(block);
    assert(into.length === this.blockBytes, 'a block has as many bytes as its copy');
    this.#device.native.ggml_backend_tensor_get(this.#pool, into, block * this.blockBytes, this.blockBytes);
  }

  /** Copies a block from host memory, on any device. */
  write(block: BlockId, bytes: Uint8Array): void {
    this.#checkBlock(block);
    assert(bytes.length === this.blockBytes, 'a block has as many bytes as its copy');
    this.#device.native.ggml_backend_tensor_set(this.#pool, bytes, block * this.blockBytes, this.blockBytes);
  }

  /** Fills the rest of a block with zeros, on any device. */
  clearFrom(block: BlockId, offset: number): void {
    if (this.isHost) this.bytesOf(block).fill(0, offset);
    else {
      const start = block * this.blockBytes + offset;
      this.#device.native.ggml_backend_tensor_memset(this.#pool, 0, start, this.blockBytes - offset);
    }
  }

  /** A block's bytes in place; on a CPU only. */
  bytesOf(block: BlockId): Uint8Array {
    this.#checkBlock(block);
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
    assert(!this.#isView, 'the pool is closed by its owner');
    this.#device.native.ggml_backend_buffer_free(this.#buffer);
    this.#device.native.ggml_free(this.#context);
  }
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}
