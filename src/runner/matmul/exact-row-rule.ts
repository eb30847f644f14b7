import { defineError } from '../../base/errors.ts';
import { allocateTensors, type ComputeDevice } from '../../ggml/device.ts';
import type { BufferPtr, ContextPtr, TensorPtr } from '../../ggml/ffi.ts';
import type { GgufFile } from '../../ggml/gguf.ts';
import { GraphBuilder } from '../../ggml/graph.ts';
import { copyOf } from '../../ggml/graph-copy.ts';
import { readTensors } from '../../ggml/tensor-reader.ts';
import { F32, rowBytes } from '../../ggml/types.ts';
import type { PlacedMatrix } from '../weight-store.ts';
import type { RowMatmul } from './row-matmul.ts';
import { anyRows, atLeast, multipleOf, type RowRule } from './row-rule.ts';

export const exactUnavailable = defineError(
  'KVASIR_EXACT_UNAVAILABLE',
  'On this device ({device}) the result of {operation} depends on the other rows of the batch, so exact numerics are not possible. Use --numerics fast.',
  500,
);

/** An operation for `exactUnavailable`. */
export const matmulWith = (types: Iterable<string>): string =>
  `a matmul with matrices of type ${[...new Set(types)].join(', ')}`;

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

const rowsMaxOnCpu = 64;
/** Batches that are tested: first row and number of rows. For every tile size up to 16, one of them has a remainder. */
const smallBatches: readonly (readonly [number, number])[] = [
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
/** On a GPU, where larger batches have larger tiles. */
const largeBatches: typeof smallBatches = [
  [0, 64],
  [3, 65],
  [7, 129],
  [100, 200],
  [0, 300],
];

export interface MatmulProbe {
  readonly device: ComputeDevice;
  readonly file: GgufFile;
  /** The largest batch of a step. On a CPU, batches of more than 64 rows have no kernels of their own. */
  readonly rowsMax: number;
}

export interface ExactKernels {
  readonly rule: RowRule;
  /** Multiplies single rows, which then need no padding. */
  readonly rowMatmul?: RowMatmul;
  /** Matrices of which each row of the batch is multiplied as a matrix of one column. */
  readonly byRow?: ReadonlySet<TensorPtr>;
}

/**
 * Finds the cheapest padding with which every matrix of a model gives a row the same bits in any batch. The test runs
 * on this machine with the model's own matrices, because the result depends on the CPU or the GPU, on ggml's build and on the
 * shapes. `rowMatmul` is used for single rows if its bits equal those of a row in a batch. If no padding helps all types of a model on a
 * GPU, the rows of those that need one are multiplied one by one.
 * Throws `exactUnavailable` if that does not help either.
 */
export async function findExactRowRule(
  { device, file, rowsMax }: MatmulProbe,
  matrices: readonly PlacedMatrix[],
  rowMatmul?: RowMatmul,
): Promise<ExactKernels> {
  const probes: MatrixProbe[] = [];
  const graph = new GraphBuilder(device);
  try {
    for (const matrix of distinctShapes(matrices))
      probes.push(await MatrixProbe.open({ device, graph, file, rowsMax }, matrix));
    const rule = candidates.find((candidate) => probes.every((probe) => probe.isExactUnder(candidate)));
    if (rule === undefined) return multipliedByRow(device, matrices, probes);
    if (rule(1) === 1 || rowMatmul === undefined) return { rule };
    if (!probes.every((probe) => probe.isExactAlone(rowMatmul))) return { rule };
    for (const matrix of matrices) {
      if (rowMatmul.fits(matrix)) rowMatmul.add(matrix.tensor, matrix.source.ne[0], matrix.source.ne[1]);
    }
    return { rule: (rows) => (rows === 1 ? 1 : rule(rows)), rowMatmul };
  } finally {
    graph.close();
    for (const probe of probes) probe.close();
  }
}

function multipliedByRow(
  device: ComputeDevice,
  matrices: readonly PlacedMatrix[],
  probes: readonly MatrixProbe[],
): ExactKernels {
  const dependent = probes.filter((probe) => !probe.isExactUnder(anyRows));
  const refused = dependent.filter((probe) => device.kind === 'cpu' || !probe.isExactByRow());
  if (refused.length > 0) {
    const operation = matmulWith(refused.map(({ typeName }) => typeName));
    throw exactUnavailable({ device: device.description, operation });
  }
  const shapes = new Set(dependent.map(({ shape }) => shape));
  const byRow = matrices.filter((matrix) => shapes.has(shapeOf(matrix))).map(({ tensor }) => tensor);
  return { rule: anyRows, byRow: new Set(byRow) };
}

export const shapeOf = ({ source: { type, ne }, buffers }: PlacedMatrix): string =>
  `${type.name} ${ne[0]}x${ne[1]} ${buffers.name}`;

/** One matrix of each type, shape and kind of buffers. */
export function distinctShapes(matrices: readonly PlacedMatrix[]): PlacedMatrix[] {
  const byShape = new Map<string, PlacedMatrix>();
  for (const matrix of matrices) if (!byShape.has(shapeOf(matrix))) byShape.set(shapeOf(matrix), matrix);
  return [...byShape.values()];
}

/**
 * The number of a matrix's outputs that are tested. Kernels split outputs into tiles, and 256 is a multiple of every
 * tile's size. So an output head of 150,000 rows behaves like its first thousand.
 */
export const probedOutputs = (outputs: number): number => (outputs <= 1024 ? outputs : 768 + (outputs % 256));

interface ProbeContext extends MatmulProbe {
  readonly graph: GraphBuilder;
}

/**
 * Part of a matrix times random rows, in batches of several sizes. Results are kept, because rules share most sizes.
 */
class MatrixProbe {
  readonly typeName: string;
  readonly shape: string;
  readonly #placed: PlacedMatrix;
  readonly #device: ComputeDevice;
  readonly #graph: GraphBuilder;
  readonly #context: ContextPtr;
  readonly #buffer: BufferPtr;
  readonly #matrix: TensorPtr;
  readonly #rows: Float32Array;
  readonly #rowsMax: number;
  readonly #batches: typeof smallBatches;
  readonly #inputLength: number;
  readonly #outputLength: number;
  readonly #verdicts = new Map<string, boolean>();
  #reference: Uint32Array = new Uint32Array(0);

  static async open(context: ProbeContext, matrix: PlacedMatrix): Promise<MatrixProbe> {
    const { device, file } = context;
    const probe = new MatrixProbe(context, matrix);
    const { type, ne } = matrix.source;
    const byteLength = rowBytes(type, ne[0]) * probe.#outputLength;
    const accept = (bytes: Uint8Array): void =>
      device.native.ggml_backend_tensor_set(probe.#matrix, bytes, 0, byteLength);
    try {
      await readTensors(file, [{ tensor: { ...matrix.source, byteLength }, accept }]);
      probe.#reference = probe.#multiply(0, probe.#rowsMax, probe.#rowsMax);
      return probe;
    } catch (error) {
      probe.close();
      throw error;
    }
  }

  private constructor({ device, graph, rowsMax }: ProbeContext, placed: PlacedMatrix) {
    const { source, buffers } = placed;
    this.#placed = placed;
    const { native } = device;
    this.#device = device;
    this.#graph = graph;
    this.#inputLength = source.ne[0];
    this.#outputLength = probedOutputs(source.ne[1]);
    this.typeName = source.type.name;
    this.shape = shapeOf(placed);
    this.#rowsMax = device.kind === 'cpu' ? rowsMaxOnCpu : rowsMax;
    const batches = device.kind === 'cpu' ? smallBatches : [...smallBatches, ...largeBatches];
    this.#batches = batches.filter(([first, count]) => first + count <= this.#rowsMax);
    this.#rows = randomRows(this.#inputLength * this.#rowsMax);
    this.#context = native.ggml_init({ mem_size: 4096, mem_buffer: 0, no_alloc: true });
    this.#matrix = native.ggml_new_tensor_2d(this.#context, source.type.id, this.#inputLength, this.#outputLength);
    try {
      this.#buffer = allocateTensors(device, this.#context, buffers, {
        purpose: 'a probe of the kernels',
        bytes: source.byteLength,
      });
    } catch (error) {
      native.ggml_free(this.#context);
      throw error;
    }
    native.ggml_backend_buffer_set_usage(this.#buffer, 1);
  }

  isExactUnder(rule: RowRule): boolean {
    return this.#batches.every(([first, count]) => {
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
    const rows = isOurs ? Array.from({ length: this.#rowsMax }, (_, row) => row) : [0, 17, 63];
    const product = (graph: GraphBuilder, x: TensorPtr): TensorPtr =>
      isOurs ? rowMatmul.multiply(graph, this.#matrix, x) : graph.mulMat(this.#matrix, x);
    return rows.every((row) => this.#isEqualToReference(row, this.#multiply(row, 1, 1, product)));
  }

  /** Whether a row keeps its bits if each row is a matrix of one column. */
  isExactByRow(): boolean {
    const product = (graph: GraphBuilder, x: TensorPtr): TensorPtr => graph.multiplySingleRows(this.#matrix, x);
    const together = this.#multiply(0, this.#rowsMax, this.#rowsMax, product);
    return this.#batches.every(([first, count]) =>
      areEqualFrom(together, first * this.#outputLength, this.#multiply(first, count, count, product)),
    );
  }

  #isEqualToReference(first: number, matmul: Uint32Array): boolean {
    return areEqualFrom(this.#reference, first * this.#outputLength, matmul);
  }

  close(): void {
    this.#device.native.ggml_backend_buffer_free(this.#buffer);
    this.#device.native.ggml_free(this.#context);
  }

  /** The bits of rows [first, first + count), multiplied in a batch of `padded` rows. */
  #multiply(
    first: number,
    count: number,
    padded: number,
    multiply = (graph: GraphBuilder, x: TensorPtr): TensorPtr => graph.mulMat(this.#matrix, x),
  ): Uint32Array {
    const graph = this.#graph;
    graph.begin(8);
    const x = graph.input(F32, this.#inputLength, padded);
    const product = multiply(graph, x);
    graph.output(product);
    graph.allocate();
    const data = new Float32Array(this.#inputLength * padded);
    data.set(this.#rows.subarray(first * this.#inputLength, (first + count) * this.#inputLength));
    graph.write(x, data);
    graph.computeNow();
    return copyOf(graph, product, Uint32Array, count * this.#outputLength);
  }
}

function areEqualFrom(reference: Uint32Array, offset: number, bits: Uint32Array): boolean {
  for (let i = 0; i < bits.length; i++) if (bits[i] !== reference[offset + i]) return false;
  return true;
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
