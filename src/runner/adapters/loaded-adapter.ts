import { setImmediate as nextTurn } from 'node:timers/promises';
import { assertDefined } from '../../base/assert.ts';
import { allocateTensors, type ComputeDevice } from '../../ggml/device.ts';
import type { BufferPtr, ContextPtr, NativeApi, TensorPtr } from '../../ggml/ffi.ts';
import type { GgufTensor } from '../../ggml/gguf.ts';
import { type AdapterFile, type AdapterPair, embeddingName, unusable } from '../../ggml/lora-adapter.ts';
import { readTensors } from '../../ggml/tensor-reader.ts';
import { F32, type GgmlType } from '../../ggml/types.ts';
import type { PlacedMatrix } from '../weight-store.ts';

/** `up(down(x))` is added to the product with the model's matrix. F32; transposed if kernels multiply by them. */
export interface LoadedPair {
  readonly down: TensorPtr;
  /** Times the adapter's scale. */
  readonly up: TensorPtr;
  /** With padding. */
  readonly rank: number;
}

/** The weights of a LoRA adapter for the layers of one runner. */
export interface LoadedAdapter {
  /** By the model's matrix. */
  readonly pairs: ReadonlyMap<TensorPtr, LoadedPair>;
  /** Of token embeddings: `down` has a row for each token, `[rank, vocabulary]`. */
  readonly embedding: LoadedPair | undefined;
  close(): void;
}

/** A matrix that is made of one of the file. */
interface NewMatrix {
  readonly tensor: TensorPtr;
  readonly source: GgufTensor;
  readonly scale: number;
  /** With the padding of the rank, before it is transposed. */
  readonly columns: number;
  readonly rows: number;
  readonly isTransposed: boolean;
}

export interface AdapterPlaces {
  /** The matrices of the runner. */
  readonly matrices: readonly PlacedMatrix[];
  /** Whether the runner embeds tokens. */
  readonly hasEmbedding: boolean;
  /** For kernels. */
  readonly isTransposed: boolean;
}

/**
 * Reads the pairs of those matrices that the runner has. Ranks are padded with zeros to whole vectors of the kernels. Throws `adapterUnusable` if a number is not finite, `outOfNativeMemory`, and errors
 * of reading the file.
 */
export async function loadAdapter(
  device: ComputeDevice,
  { file, pairs }: AdapterFile,
  { matrices, hasEmbedding, isTransposed }: AdapterPlaces,
): Promise<LoadedAdapter> {
  const { native } = device;
  const placed = new Map(matrices.map(({ source, tensor }) => [source.name, tensor]));
  // The matrix of embeddings may be the output head too, which a pair of embeddings does not change.
  const own = pairs.filter(({ name }) => (name === embeddingName ? hasEmbedding : placed.has(name)));
  const bytes = (2 * own.length + 1) * native.ggml_tensor_overhead();
  const context = native.ggml_init({ mem_size: bytes, mem_buffer: 0, no_alloc: true });
  let buffer: BufferPtr | undefined;
  const close = (): void => {
    if (buffer !== undefined) native.ggml_backend_buffer_free(buffer);
    native.ggml_free(context);
  };
  try {
    const made = declare(native, context, own, isTransposed);
    const all = [...made.downs.values(), ...made.ups.values()];
    const weightBytes = all.reduce((sum, { columns, rows }) => sum + 4 * columns * rows, 0);
    if (all.length > 0) {
      buffer = allocateTensors(device, context, device.mainBuffers, { purpose: 'a LoRA adapter', bytes: weightBytes });
      native.ggml_backend_buffer_set_usage(buffer, 1);
    }
    for (const matrix of all) {
      const fill = (given: Uint8Array): void => {
        const values = inMemory(numbersOf(native, matrix.source.type, given), matrix);
        if (values.some((value) => !Number.isFinite(value)))
          throw unusable(file.path, `${matrix.source.name} has a number that is not finite`);
        native.ggml_backend_tensor_set(matrix.tensor, values, 0, values.byteLength);
      };
      await readTensors(file, [{ tensor: matrix.source, accept: fill }]);
      await nextTurn();
    }
    const loaded = new Map<TensorPtr, LoadedPair>();
    let embedding: LoadedPair | undefined;
    for (const { name, a } of own) {
      const [down, up] = [made.downs.get(a.name), made.ups.get(name)];
      const [ofA, ofB] = [assertDefined(down, 'A of the pair'), assertDefined(up, 'B of the pair')];
      const pair = { down: ofA.tensor, up: ofB.tensor, rank: ofB.columns };
      if (name === embeddingName) embedding = pair;
      else loaded.set(assertDefined(placed.get(name), 'a matrix of the runner'), pair);
    }
    return { pairs: loaded, embedding, close };
  } catch (error) {
    close();
    throw error;
  }
}

/** `downs` by the names of the file's tensors, because parts of a fused matrix share them. */
function declare(native: NativeApi, context: ContextPtr, pairs: readonly AdapterPair[], isTransposed: boolean) {
  const matrix = (parts: Omit<NewMatrix, 'tensor'>): NewMatrix => {
    const [ne0, ne1] = parts.isTransposed ? [parts.rows, parts.columns] : [parts.columns, parts.rows];
    return { ...parts, tensor: native.ggml_new_tensor_2d(context, F32.id, ne0, ne1) };
  };
  const downs = new Map<string, NewMatrix>();
  const ups = new Map<string, NewMatrix>();
  for (const { name, a, b, scale } of pairs) {
    const rank = Math.ceil(b.ne[0] / rankMultiple) * rankMultiple;
    if (!downs.has(a.name)) {
      const isEmbedding = name === embeddingName;
      const [columns, rows] = isEmbedding ? [rank, a.ne[1]] : [a.ne[0], rank];
      downs.set(a.name, matrix({ source: a, columns, rows, scale: 1, isTransposed: isTransposed && !isEmbedding }));
    }
    ups.set(name, matrix({ source: b, columns: rank, rows: b.ne[1], scale, isTransposed }));
  }
  return { downs, ups };
}

/** The numbers of the file, with zeros where the rank is padded. */
function inMemory(numbers: Float32Array, matrix: NewMatrix): Float32Array {
  const { source, scale, columns, rows, isTransposed } = matrix;
  const values = new Float32Array(columns * rows);
  const [width, count] = source.ne;
  const [rowStride, columnStride] = isTransposed ? [1, rows] : [columns, 1];
  for (let row = 0; row < count; row++) {
    for (let i = 0; i < width; i++) values[row * rowStride + i * columnStride] = numbers[row * width + i]! * scale;
  }
  return values;
}

/** Numbers of one of the types that adapters have. */
function numbersOf(native: NativeApi, { name, blockSize, typeSize }: GgmlType, given: Uint8Array): Float32Array {
  const bytes = given.slice();
  if (name === 'F32') return new Float32Array(bytes.buffer);
  if (name === 'BF16') {
    const bits = Uint32Array.from(new Uint16Array(bytes.buffer), (half) => half << 16);
    return new Float32Array(bits.buffer);
  }
  if (name === 'F16') return fromF16(native, bytes);
  // Q8_0: blocks of a scale in F16 and 32 numbers of 8 bits.
  const count = bytes.length / typeSize;
  const scales = new Uint8Array(2 * count);
  for (let block = 0; block < count; block++)
    scales.set(bytes.subarray(block * typeSize, block * typeSize + 2), 2 * block);
  const factors = fromF16(native, scales);
  const signed = new Int8Array(bytes.buffer);
  return Float32Array.from(
    { length: count * blockSize },
    (_, i) => factors[Math.floor(i / blockSize)]! * signed[Math.floor(i / blockSize) * typeSize + 2 + (i % blockSize)]!,
  );
}

function fromF16(native: NativeApi, bytes: Uint8Array): Float32Array {
  const numbers = new Float32Array(bytes.length / 2);
  native.ggml_fp16_to_fp32_row(bytes, numbers, numbers.length);
  return numbers;
}

/** The lanes of the longest vectors of the kernels. */
const rankMultiple = 16;
