import { assert, assertDefined } from '../base/assert.ts';
import { defineError } from '../base/errors.ts';
import { preferHugePages } from '../base/huge-pages.ts';
import { canMapFiles, MappedFile } from '../base/mapped-file.ts';
import { allocateTensors, type BufferType, type ComputeDevice } from '../ggml/device.ts';
import { modelFileChanged, withModelFile } from '../ggml/errors.ts';
import type { BufferPtr, ContextPtr, RawPtr, TensorPtr } from '../ggml/ffi.ts';
import { isSameFile, stateOf } from '../ggml/file-state.ts';
import type { GgufFile, GgufPart, GgufTensor } from '../ggml/gguf.ts';
import { canMultiply, canMultiplyExperts, canTakeRows } from '../ggml/operation-support.ts';
import { readTensors, type TensorTarget } from '../ggml/tensor-reader.ts';
import { dataPointer } from '../ggml/tensor-struct.ts';
import { F32 } from '../ggml/types.ts';

export const brokenWeights = defineError(
  'KVASIR_BROKEN_WEIGHTS',
  'The model {path} is broken: its tensor {tensor} has {found} as number {index}. Download or convert the model again.',
  500,
);

/**
 * Whether the weights of a file can be mapped: the system has calls for it, and ggml can read each tensor in its place. A matrix that is
 * mapped is laid out each time it is used, so steps are slower, with the same bits.
 */
export const canMapWeights = ({ tensors }: Pick<GgufFile, 'tensors'>): boolean =>
  canMapFiles() && [...tensors.values()].every(({ fileOffset }) => fileOffset % tensorAlignment === 0);

/** ggml's, and the default of GGUF. */
const tensorAlignment = 32;

/** Reading so many numbers takes a few milliseconds. */
const checkedBytesMax = 4 << 20;

/** A matrix and its buffers, which decide the kernel that multiplies it. */
export interface PlacedMatrix {
  readonly tensor: TensorPtr;
  readonly source: GgufTensor;
  readonly buffers: BufferType;
  /** It lies in a mapped file, which nothing may write. */
  readonly isMapped?: boolean;
}

export interface PlacementOptions {
  /** Tensors in plain host memory are those of the mapped file, instead of copies; default: copies. See `canMapWeights`. */
  readonly map?: boolean;
  /** Whether matrices may be in ggml's repacked CPU buffers, as in llama.cpp by default. */
  readonly repack: boolean;
  /** Matrices that must be in plain host memory on a CPU, in the layout of the file, because Kvasir lays them out. */
  readonly keepPlain?: (matrix: GgufTensor) => boolean;
}

export type LoadProgress = (loadedBytes: number, totalBytes: number) => void;

/** See the methods of `WeightStore`. */
export type LayerTensors = Pick<WeightStore, 'vector' | 'matrix' | 'router' | 'experts'>;

/** The tensors of one type of buffer. */
interface BufferGroup {
  readonly buffers: BufferType;
  readonly isMapped: boolean;
  readonly context: ContextPtr;
  readonly tensors: Map<string, { readonly pointer: TensorPtr; readonly source: GgufTensor }>;
  /** One, or one for each mapped part of the file. */
  readonly allocated: BufferPtr[];
}

/**
 * Tensors are declared first. Then the buffer of each group is allocated at once, and filled from the file.
 *
 * A matrix goes to repacked buffers if ggml has a kernel for its type and shape on this CPU and `keepPlain` is false for
 * it. Other tensors go to the device's plain buffers, or to the CPU's if the device cannot compute with them. With `map`, the CPU's
 * plain buffers are the file itself.
 */
export class WeightStore {
  readonly matrices: PlacedMatrix[] = [];
  readonly expertMatrices: PlacedMatrix[] = [];
  byteLength = 0;
  readonly #device: ComputeDevice;
  readonly #file: GgufFile;
  readonly #options: PlacementOptions;
  readonly #groups = new Map<string, BufferGroup>();
  readonly #tables = new Set<string>();
  readonly #mapped: MappedFile[] = [];
  readonly #constants = new Map<string, Float32Array<ArrayBuffer>>();

  constructor(device: ComputeDevice, file: GgufFile, options: PlacementOptions) {
    this.#device = device;
    this.#file = file;
    this.#options = options;
  }

  /** Numbers that are added or multiplied. */
  vector(name: string): TensorPtr {
    return this.#declare(name, this.#device.mainBuffers);
  }

  /** Numbers that are not in the file. */
  constant(name: string, values: Float32Array<ArrayBuffer>): TensorPtr {
    this.#constants.set(name, values);
    return this.#declare(name, this.#device.mainBuffers, 'constants');
  }

  /** A matrix whose rows are read by index. */
  table(name: string): TensorPtr {
    this.#tables.add(name);
    const { mainBuffers, cpuBuffers } = this.#device;
    return this.#declare(name, canTakeRows(this.#device, this.#source(name)) ? mainBuffers : cpuBuffers);
  }

  /** A matrix that is multiplied. */
  matrix(name: string): TensorPtr {
    const source = this.#source(name);
    const buffers = this.#placeMatrix(source);
    const tensor = this.#declare(name, buffers);
    this.matrices.push({ tensor, source, buffers, isMapped: this.#isMapped(buffers) });
    return tensor;
  }

  /** A small matrix that is multiplied by single rows (`expertNetwork`), which repacked buffers do not support. */
  router(name: string): TensorPtr {
    const { mainBuffers, cpuBuffers } = this.#device;
    return this.#declare(name, canMultiply(this.#device, this.#source(name), mainBuffers) ? mainBuffers : cpuBuffers);
  }

  /** The matrices of all experts or all heads of a layer. */
  experts(name: string): TensorPtr {
    const source = this.#source(name);
    const buffers = this.#placeMatrix(source, canMultiplyExperts);
    const tensor = this.#declare(name, buffers);
    this.expertMatrices.push({ tensor, source, buffers, isMapped: this.#isMapped(buffers) });
    return tensor;
  }

  /** The tensors `blk.N.` of a layer, by the rest of their names. */
  ofLayer(index: number): LayerTensors {
    const name = (rest: string): string => `blk.${index}.${rest}`;
    return {
      vector: (rest) => this.vector(name(rest)),
      matrix: (rest) => this.matrix(name(rest)),
      router: (rest) => this.router(name(rest)),
      experts: (rest) => this.experts(name(rest)),
    };
  }

  async load(onProgress?: LoadProgress): Promise<void> {
    const targets: TensorTarget[] = [];
    for (const group of this.#groups.values()) {
      const bytes = [...group.tensors.values()].reduce((sum, { source }) => sum + source.byteLength, 0);
      this.byteLength += bytes;
      if (group.isMapped) {
        this.#map(group);
        continue;
      }
      const buffer = allocateTensors(this.#device, group.context, group.buffers, { purpose: 'the weights', bytes });
      group.allocated.push(buffer);
      this.#device.native.ggml_backend_buffer_set_usage(buffer, 1);
      if (group.buffers.isHost) this.#preferHugePages(buffer);
      for (const [name, { pointer, source }] of group.tensors) {
        const values = this.#constants.get(name);
        if (values === undefined) targets.push(this.#target(group, pointer, source));
        else this.#device.native.ggml_backend_tensor_set(pointer, values, 0, source.byteLength);
      }
    }
    await readTensors(this.#file, targets, onProgress);
    this.checkMapped();
    this.#checkNumbers();
  }

  /** Whether the tensors of these buffers are mapped. */
  #isMapped(buffers: BufferType): boolean {
    return this.#options.map === true && buffers.isHost && buffers !== this.#device.repackedBuffers;
  }

  #map({ tensors, allocated }: BufferGroup): void {
    const { native } = this.#device;
    for (const [index, part] of this.#file.parts.entries()) {
      const inPart = [...tensors.values()].filter(({ source }) => source.part === index);
      if (inPart.length === 0) continue;
      const file = openMapped(part);
      this.#mapped.push(file);
      const buffer = native.ggml_backend_cpu_buffer_from_ptr(file.address as RawPtr, file.byteLength);
      allocated.push(buffer);
      native.ggml_backend_buffer_set_usage(buffer, 1);
      for (const { pointer, source } of inPart) {
        const address = (file.address + source.fileOffset) as RawPtr;
        assert(native.ggml_backend_tensor_alloc(buffer, pointer, address) === 0, 'a tensor lies within its file');
      }
    }
  }

  /** @throws modelFileChanged: what was computed since the last call may be wrong */
  checkMapped(): void {
    const changed = this.#mapped.find((file) => file.isChanged);
    if (changed !== undefined)
      throw modelFileChanged({ path: changed.path, problem: 'another program wrote it, and its weights are mapped' });
  }

  /**
   * Norms, biases and other small tensors of F32 must be finite. A broken row of a table ends only requests with its token. The scales in large tensors are not read here, which would
   * take time: with a broken one, the logits are broken too.
   */
  #checkNumbers(): void {
    for (const { tensors } of this.#groups.values()) {
      for (const [tensor, { pointer, source }] of tensors) {
        if (source.type.name !== 'F32' || source.byteLength > checkedBytesMax || this.#tables.has(tensor)) continue;
        const values = new Float32Array(source.byteLength / 4);
        this.#device.native.ggml_backend_tensor_get(pointer, values, 0, source.byteLength);
        if (areFinite(values)) continue;
        const index = values.findIndex((value) => !Number.isFinite(value));
        throw brokenWeights({ path: this.#file.path, tensor, found: String(values[index]), index });
      }
    }
  }

  #preferHugePages(buffer: BufferPtr): void {
    const { native } = this.#device;
    const bytes = native.ggml_backend_buffer_get_size(buffer);
    preferHugePages(Number(native.ggml_backend_buffer_get_base(buffer)), bytes);
  }

  close(): void {
    for (const { allocated, context } of this.#groups.values()) {
      for (const buffer of allocated) this.#device.native.ggml_backend_buffer_free(buffer);
      this.#device.native.ggml_free(context);
    }
    this.#groups.clear();
    for (const file of this.#mapped.splice(0)) file.close();
  }

  #placeMatrix(source: GgufTensor, isSupported = canMultiply): BufferType {
    const { kind, mainBuffers, cpuBuffers, repackedBuffers } = this.#device;
    if (kind === 'gpu') return isSupported(this.#device, source, mainBuffers) ? mainBuffers : cpuBuffers;
    const { repack, keepPlain } = this.#options;
    if (!repack || repackedBuffers === undefined || keepPlain?.(source) === true) return cpuBuffers;
    return isSupported(this.#device, source, repackedBuffers) ? repackedBuffers : cpuBuffers;
  }

  #source(name: string): GgufTensor {
    const values = this.#constants.get(name);
    if (values !== undefined)
      return { name, type: F32, ne: [values.length, 1, 1, 1], byteLength: values.byteLength, part: 0, fileOffset: 0 };
    return assertDefined(this.#file.tensors.get(name), `the file has ${name}, which the configuration needs`);
  }

  #declare(name: string, buffers: BufferType, groupName = buffers.name): TensorPtr {
    const { native } = this.#device;
    let group = this.#groups.get(groupName);
    if (group === undefined) {
      const bytes = (this.#file.tensors.size + 2) * native.ggml_tensor_overhead();
      const context = native.ggml_init({ mem_size: bytes, mem_buffer: 0, no_alloc: true });
      const isMapped = groupName === buffers.name && this.#isMapped(buffers);
      group = { buffers, isMapped, context, tensors: new Map(), allocated: [] };
      this.#groups.set(groupName, group);
    }
    const known = group.tensors.get(name);
    if (known !== undefined) return known.pointer;
    const source = this.#source(name);
    const pointer = native.ggml_new_tensor_3d(group.context, source.type.id, source.ne[0], source.ne[1], source.ne[2]);
    native.ggml_set_name(pointer, name);
    group.tensors.set(name, { pointer, source });
    return pointer;
  }

  /** Plain host memory is read into directly; a repacked or GPU tensor gets all of its bytes from a staging copy. */
  #target({ buffers }: BufferGroup, pointer: TensorPtr, source: GgufTensor): TensorTarget {
    const { native, repackedBuffers } = this.#device;
    if (buffers.isHost && buffers !== repackedBuffers) {
      return { tensor: source, into: new Uint8Array(native.memoryAt(dataPointer(native, pointer), source.byteLength)) };
    }
    return {
      tensor: source,
      accept: (bytes) => native.ggml_backend_tensor_set(pointer, bytes, 0, source.byteLength),
    };
  }
}

function openMapped(part: GgufPart): MappedFile {
  let file: MappedFile;
  try {
    file = new MappedFile(part.path);
  } catch (error) {
    throw withModelFile(part.path, error);
  }
  if (isSameFile(stateOf(file.stats), part.state)) return file;
  file.close();
  throw modelFileChanged({ path: part.path, problem: 'its size or date has changed' });
}

function areFinite(values: Float32Array): boolean {
  let sum = 0;
  // A number minus itself is 0, unless it is NaN or infinite.
  for (let i = 0; i < values.length; i++) sum += values[i]! - values[i]!;
  return sum === 0;
}
