import { defineError } from '../../base/errors.ts';
import { allocateTensors, type ComputeDevice } from '../../ggml/device.ts';
import type { BufferPtr, ContextPtr, TensorPtr } from '../../ggml/ffi.ts';
import type { GgufFile } from '../../ggml/gguf.ts';
import { GraphBuilder } from '../../ggml/graph.ts';
import { readTensors } from '../../ggml/tensor-reader.ts';
import { F32, rowBytes } from '../../ggml/types.ts';
import type { PlacedMatrix } from '../weight-store.ts';
import type { RowMatmul } from './row-matmul.ts';
import { anyRows, atLeast, multipleOf, type RowRule } from './row-rule.ts';

export const exactUnavailable = defineError(
  'KVASIR_EXACT_UNAVAILABLE',
  'On this CPU ({cpu}) the result of a matmul with a {type} matrix depends on the other rows of the batch, so exact numerics are not possible. Use --numerics fast.',
  500,
);

/** In ascending order of cost. */
const candidates: readonly RowRule[] = [
  anyRows,
  atLeast(2),
  multipleOf(2),
  atLeast(4),
  multipleOf(4),
  atLeast(8),
  multipleOf(8),
  multipleOf(16),
];

const rowsMax = 64;
/** Batches that are tested: first row and number of rows. For every tile size up to 16, one of them has a remainder. */
const testedBatches: readonly (readonly [number, number])[] = [
  [0, 1],
  [17, 1],
  [63, 1],
  [5, 2],
  [40, 3],
  [0, 4],
  [9, 5],
  [30, 6],
  [50, 7],
  [3, 8],
  [20, 9],
  [1, 13],
  [33, 16],
  [8, 31],
  [0, 48],
];

export interface ExactKernels {
  readonly rule: RowRule;
  /** Multiplies single rows, which then need no padding. */
  readonly rowMatmul?: RowMatmul;
}

/**
 * Finds the cheapest padding with which every matrix of a model gives a row the same bits in any batch. The test runs
 * on this machine with the model's own matrices, because the result depends on the CPU, on ggml's build and on the
 * shapes. `rowMatmul` is used for single rows if its bits equal those of a row in a batch.
 * Throws `exactUnavailable` if no padding helps.
 */
export async function findExactRowRule(
  device: ComputeDevice,
  file: GgufFile,
  matrices: readonly PlacedMatrix[],
  rowMatmul?: RowMatmul,
): Promise<ExactKernels> {
  const probes: MatrixProbe[] = [];
  try {
    for (const matrix of distinctShapes(matrices)) probes.push(await MatrixProbe.open(device, file, matrix));
    const rule = candidates.find((candidate) => probes.every((probe) => probe.isExactUnder(candidate)));
    if (rule === undefined) throw exactUnavailable({ cpu: device.description, type: probes[0]?.typeName });
    if (rule(1) === 1 || rowMatmul === undefined) return { rule };
    if (!probes.every((probe) => probe.isExactAlone(rowMatmul))) return { rule };
    for (const matrix of matrices) {
      if (rowMatmul.fits(matrix)) rowMatmul.add(matrix.tensor, matrix.source.ne[0], matrix.source.ne[1]);
    }
    return { rule: (rows) => (rows === 1 ? 1 : rule(rows)), rowMatmul };
  } finally {
    for (const probe of probes) probe.close();
  }
}

/** One matrix of each type, shape and kind of buffers. */
export function distinctShapes(matrices: readonly PlacedMatrix[]): PlacedMatrix[] {
  const byShape = new Map<string, PlacedMatrix>();
  for (const matrix of matrices) {
    const { type, ne } = matrix.source;
    const key = `${type.name} ${ne[0]}x${ne[1]} ${matrix.buffers.name}`;
    if (!byShape.has(key)) byShape.set(key, matrix);
  }
  return [...byShape.values()];
}

/**
 * The number of a matrix's outputs that are tested. Kernels split outputs into tiles, and 256 is a multiple of every
 * tile's size. So an output head of 150,000 rows behaves like its first thousand.
 */
export const probedOutputs = (outputs: number): number => (outputs <= 1024 ? outputs : 768 + (outputs % 256));

/**
 * Part of a matrix times random rows, in batches of several sizes. Results are kept, because rules share most sizes.
 */
class MatrixProbe {
  readonly typeName: string;
  readonly #placed: PlacedMatrix;
  readonly #device: ComputeDevice;
  readonly #graph: GraphBuilder;
  readonly #context: ContextPtr;
  readonly #buffer: BufferPtr;
  readonly #matrix: TensorPtr;
  readonly #rows: Float32Array;
  readonly #inputLength: number;
  readonly #outputLength: number;
  readonly #verdicts = new Map<string, boolean>();
  #reference: Uint32Array = new Uint32Array(0);

  static async open(device: ComputeDevice, file: GgufFile, matrix: PlacedMatrix): Promise<MatrixProbe> {
    const probe = new MatrixProbe(device, matrix);
    const { type, ne } = matrix.source;
    const byteLength = rowBytes(type, ne[0]) * probe.#outputLength;
    const accept = (bytes: Uint8Array): void =>
      device.native.ggml_backend_tensor_set(probe.#matrix, bytes, 0, byteLength);
    try {
      await readTensors(file, [{ tensor: { ...matrix.source, byteLength }, accept }]);
      probe.#reference = probe.#multiply(0, rowsMax, rowsMax);
      return probe;
    } catch (error) {
      probe.close();
      throw error;
    }
  }

  private constructor(device: ComputeDevice, placed: PlacedMatrix) {
    const { source, buffers } = placed;
    this.#placed = placed;
    const { native } = device;
    this.#device = device;
    this.#graph = new GraphBuilder(device);
    this.#inputLength = source.ne[0];
    this.#outputLength = probedOutputs(source.ne[1]);
    this.typeName = source.type.name;
    this.#rows = randomRows(this.#inputLength * rowsMax);
    this.#context = native.ggml_init({ mem_size: 4096, mem_buffer: 0, no_alloc: true });
    this.#matrix = native.ggml_new_tensor_2d(this.#context, source.type.id, this.#inputLength, this.#outputLength);
    try {
      this.#buffer = allocateTensors(device, this.#context, buffers, {
        purpose: 'a probe of the kernels',
        bytes: source.byteLength,
      });
    } catch (error) {
      this.#graph.close();
      native.ggml_free(this.#context);
      throw error;
    }
    native.ggml_backend_buffer_set_usage(this.#buffer, 1);
  }

  isExactUnder(rule: RowRule): boolean {
    return testedBatches.every(([first, count]) => {
      const padded = rule(count);
      const key = `${first} ${count} ${padded}`;
      let verdict = this.#verdicts.get(key);
      if (verdict === undefined) {
        verdict = this.#isEqualToReference(first, this.#multiply(first, count, padded));
        this.#verdicts.set(key, verdict);
      }
      return verdict;
    });
  }

  /** Whether a single row keeps its bits without padding. */
  isExactAlone(rowMatmul: RowMatmul): boolean {
    const isOurs = rowMatmul.fits(this.#placed);
    if (isOurs) rowMatmul.add(this.#matrix, this.#inputLength, this.#outputLength);
    const rows = isOurs ? Array.from({ length: rowsMax }, (_, row) => row) : [0, 17, 63];
    return rows.every((row) =>
      this.#isEqualToReference(row, this.#multiply(row, 1, 1, isOurs ? rowMatmul : undefined)),
    );
  }

  #isEqualToReference(first: number, matmul: Uint32Array): boolean {
    const offset = first * this.#outputLength;
    for (let i = 0; i < matmul.length; i++) if (matmul[i] !== this.#reference[offset + i]) return false;
    return true;
  }

  close(): void {
    this.#graph.close();
    this.#device.native.ggml_backend_buffer_free(this.#buffer);
    this.#device.native.ggml_free(this.#context);
  }

  /** The bits of rows [first, first + count), multiplied in a batch of `padded` rows. */
  #multiply(first: number, count: number, padded: number, rowMatmul?: RowMatmul): Uint32Array {
    const graph = this.#graph;
    graph.begin(8);
    const x = graph.input(F32, this.#inputLength, padded);
    const matmul = rowMatmul?.multiply(graph, this.#matrix, x) ?? graph.mulMat(this.#matrix, x);
    graph.output(matmul);
    graph.allocate();
    const data = new Float32Array(this.#inputLength * padded);
    data.set(this.#rows.subarray(first * this.#inputLength, (first + count) * this.#inputLength));
    graph.write(x, data);
    graph.computeNow();
    return graph.dataOf(matmul, Uint32Array, count * this.#outputLength).slice();
  }
}

/** Values like activations, some of them large, from a linear congruential generator: the same in every process. */
export function randomRows(length: number): Float32Array {
  const values = new Float32Array(length);
  let state = 0x2545f491;
  for (let i = 0; i < length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const uniform = state / 2 ** 31 - 1;
    values[i] = state % 61 === 0 ? uniform * 20 : uniform;
  }
  return values;
}
