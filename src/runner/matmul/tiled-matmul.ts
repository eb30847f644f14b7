import { allSettled } from '../../base/all-settled.ts';
import { assert, assertDefined } from '../../base/assert.ts';
import type { ComputeDevice } from '../../ggml/device.ts';
import type { RawPtr, TensorPtr } from '../../ggml/ffi.ts';
import type { GgufTensor } from '../../ggml/gguf.ts';
import { dataPointer } from '../../ggml/tensor-struct.ts';
import { rowBytes } from '../../ggml/types.ts';
import type { CompileOptions } from '../../native/compiler.ts';
import type { PlacedMatrix } from '../weight-store.ts';
import type { ModelWeights } from '../weights.ts';
import { hasTileKernel, inputsMax, openTileKernels, type TileKernel } from './tile-kernels.ts';
import { TiledExperts } from './tiled-experts.ts';
import { TiledMatrix } from './tiled-matrix.ts';
import { TileRoom } from './tiled-weights.ts';

/** With forms of the kernels. */
const architectures: readonly string[] = ['x64', 'arm64'];

/** libuv has four threads. */
const lanesMax = 4;

/**
 * Matmuls by Kvasir's kernels (`q8-tiles.c` and others), with the same bits for any number of rows. With AVX-512 VNNI,
 * they are two to seven times as fast as ggml's for prompts and batches. For a single row, they are at least 1.5 times
 * as fast. With AVX2, they are a little more than twice as fast. `take` lays a matrix out as tiles in place, and ggml
 * can no longer read it. Matrices of a mapped file stay as they are: a tile is laid out each time that it is multiplied, with the same bits.
 */
export class TiledMatmul {
  readonly #device: ComputeDevice;
  readonly #kernels: ReadonlyMap<string, TileKernel>;
  readonly #taken = new Map<TensorPtr, TiledMatrix>();
  readonly #takenExperts = new Map<TensorPtr, TiledExperts>();
  /** By the kernel, for matrices of mapped files. */
  readonly #rooms = new Map<TileKernel, TileRoom>();

  constructor(device: ComputeDevice, kernels: ReadonlyMap<string, TileKernel>) {
    this.#device = device;
    this.#kernels = kernels;
  }

  /** The types of matrices that have a kernel. */
  get types(): readonly string[] {
    return [...this.#kernels.keys()];
  }

  /** All that decides bits: the types, and the source of each type's kernel. All forms of a kernel have the same bits. */
  get identity(): string {
    return [...this.#kernels].map(([type, { sourceDigest }]) => `${type} (${sourceDigest})`).join(' ');
  }

  /** The instructions for which the kernels are compiled. */
  get forms(): readonly string[] {
    return [...new Set([...this.#kernels.values()].map(({ form }) => form))];
  }

  /** Whether a kernel supports this type and shape; the matrix must be in plain host buffers. */
  fits(matrix: GgufTensor): boolean {
    return this.#kernels.has(matrix.type.name) && hasTileKernel(matrix);
  }

  /** Takes all matrices that fit, several at a time, on other threads. Nothing may free the matrices until it is settled. */
  async takeAll(weights: Pick<ModelWeights, 'matrices' | 'expertMatrices'>): Promise<void> {
    const { matrices, expertMatrices } = weights;
    const jobs = [
      ...matrices.map((matrix) => ({ matrix, take: () => this.take(matrix) })),
      ...expertMatrices.map((matrix) => ({ matrix, take: () => this.takeExperts(matrix) })),
    ].filter(({ matrix }) => this.fits(matrix.source));
    // The largest first, so that no thread has the last one alone.
    jobs.sort((a, b) => b.matrix.source.byteLength - a.matrix.source.byteLength);
    let next = 0;
    const lane = async (): Promise<void> => {
      while (next < jobs.length) await jobs[next++]!.take();
    };
    await allSettled(Array.from({ length: Math.min(this.#device.threads, lanesMax) }, lane));
  }

  /** Lays a matrix out as tiles, in place. */
  async take(matrix: PlacedMatrix): Promise<void> {
    if (this.#taken.has(matrix.tensor)) return;
    const { kernel, shape, place } = this.#placeOf(matrix);
    // Before it is laid out, so that another call does not lay it out again.
    this.#taken.set(matrix.tensor, new TiledMatrix(this.#device.native, kernel, shape, place));
    await this.#layOut(kernel, matrix);
  }

  /** The same for the matrices of experts. */
  async takeExperts(matrices: PlacedMatrix): Promise<void> {
    if (this.#takenExperts.has(matrices.tensor)) return;
    const { kernel, shape, place } = this.#placeOf(matrices);
    this.#takenExperts.set(matrices.tensor, new TiledExperts(this.#device.native, kernel, shape, place));
    await this.#layOut(kernel, matrices);
  }

  /** A matrix that was taken. */
  matrix(tensor: TensorPtr): TiledMatrix | undefined {
    return this.#taken.get(tensor);
  }

  /** Matrices of experts that were taken. */
  experts(tensor: TensorPtr): TiledExperts | undefined {
    return this.#takenExperts.get(tensor);
  }

  #placeOf({ tensor, source, buffers, isMapped }: PlacedMatrix) {
    assert(this.fits(source), 'a matrix of a type and a shape that has a kernel');
    assert(buffers.isHost && buffers !== this.#device.repackedBuffers, 'a matrix in the layout of the file');
    const kernel = assertDefined(this.#kernels.get(source.type.name), 'a kernel for a matrix that fits');
    const [inputs, outputs, experts] = source.ne;
    const address = dataPointer(this.#device.native, tensor);
    const place = isMapped === true ? { address, room: this.#roomOf(kernel, source) } : { address };
    return { kernel, shape: { inputs, outputs, experts }, place };
  }

  /** Memory is used up to the largest tile that is laid out there. */
  #roomOf(kernel: TileKernel, { type }: GgufTensor): TileRoom {
    let room = this.#rooms.get(kernel);
    if (room === undefined) {
      const { native, threads } = this.#device;
      room = new TileRoom(native, rowBytes(type, inputsMax) * kernel.tileOutputs, threads);
      this.#rooms.set(kernel, room);
    }
    return room;
  }

  async #layOut(kernel: TileKernel, { tensor, source, isMapped }: PlacedMatrix): Promise<void> {
    if (isMapped === true) return;
    const { native } = this.#device;
    const [inputs, outputs, experts] = source.ne;
    const tiles = (outputs / kernel.tileOutputs) * experts;
    const scratch = new ArrayBuffer(rowBytes(source.type, inputs) * kernel.tileOutputs);
    await kernel.tile(dataPointer(native, tensor) as RawPtr, native.addressOf(scratch) as RawPtr, inputs, 0, tiles);
    assert(scratch.byteLength > 0, 'the thread had its memory until it returned');
  }
}

/**
 * Kernels for the given types. Undefined if no type has a kernel, on a CPU without the instructions, on a GPU, and
 * without a compiler.
 */
export async function openTiledMatmul(
  device: ComputeDevice,
  types: Iterable<string>,
  options: CompileOptions = {},
): Promise<TiledMatmul | undefined> {
  if (!architectures.includes(process.arch) || device.kind !== 'cpu') return undefined;
  const kernels = await openTileKernels(device, types, options);
  return kernels.size === 0 ? undefined : new TiledMatmul(device, kernels);
}
