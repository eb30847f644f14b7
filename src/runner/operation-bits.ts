import { createHash } from 'node:crypto';
import type { ComputeDevice } from '../ggml/device.ts';
import type { TensorPtr } from '../ggml/ffi.ts';
import { GraphBuilder } from '../ggml/graph.ts';
import { F16, F32, type GgmlType, I32, I64, Q8_0 } from '../ggml/types.ts';
import { randomFloats } from './random-values.ts';

/** Rows of whole vectors, and rows with a rest. */
const lengths = [256, 100];
const rowCount = 24;
/** Experts that a row chooses, of `rowCount`. */
const chosenCount = 4;

/**
 * A digest of the bits that ggml's build for this CPU computes from fixed inputs, in each operation that a graph leaves to ggml if
 * Kvasir's kernels compute the matmuls, attention, RoPE, activations and recurrences. Builds with equal digests round and add in the same
 * way, so machines with such builds may share KV.
 *
 * Without `hasExperts`, the operations that choose experts are left out: which of equal scores is chosen depends on the C++ library with which
 * ggml was built, and differs between Linux and Windows.
 *
 * The inputs have all magnitudes that matter: denormal and infinite as F16. Copies that change no type are left out.
 */
export function operationBits(device: ComputeDevice, hasExperts = true): string {
  const graph = new GraphBuilder(device);
  const inputs: [tensor: TensorPtr, values: ArrayBufferView][] = [];
  const outputs: [name: string, tensor: TensorPtr][] = [];
  const input = (type: GgmlType, values: ArrayBufferView, ne0: number, ne1 = 1): TensorPtr => {
    const tensor = graph.input(type, ne0, ne1);
    inputs.push([tensor, values]);
    return tensor;
  };
  try {
    graph.begin(1024);
    for (const n of lengths) {
      for (const output of rowOutputs(graph, input, n)) outputs.push(output);
      if (hasExperts) for (const output of expertOutputs(graph, input, n)) outputs.push(output);
    }
    for (const [, tensor] of outputs) graph.output(tensor);
    graph.allocate();
    for (const [tensor, values] of inputs) graph.write(tensor, values);
    graph.computeNow();
    const hash = createHash('sha256');
    for (const [name, tensor] of outputs) hash.update(name).update(graph.dataOf(tensor, Uint8Array));
    return hash.digest('hex').slice(0, 32);
  } finally {
    graph.close();
  }
}

type Input = (type: GgmlType, values: ArrayBufferView, ne0: number, ne1?: number) => TensorPtr;

/** Operations on `rowCount` rows of `n` elements. */
function* rowOutputs(graph: GraphBuilder, input: Input, n: number): Generator<[name: string, result: TensorPtr]> {
  const wide = input(F32, wideFloats(n * rowCount, 1), n, rowCount);
  const near = input(F32, scaled(randomFloats(n * rowCount, 2), 12), n, rowCount);
  const weight = input(F32, randomFloats(n, 4), n);
  yield ['norm', graph.rmsNorm(wide, weight, 1e-6)];
  yield ['norm of small rows', graph.rmsNorm(near, weight, 1e-5)];
  yield ['L2 norm', graph.l2Norm(near, 1e-6)];
  yield ['sum', graph.add(wide, near)];
  yield ['product', graph.multiply(wide, near)];
  yield ['quotient', graph.divide(near, wide)];
  yield ['scale', graph.scale(wide, 0.1)];
  const sums = graph.sumRows(wide);
  yield ['sums of rows', sums];
  yield ['sums of rows, at least', graph.sumRowsAtLeast(near, 1e-3)];
  yield ['each divided by its sum', graph.divide(wide, sums)];
  const order = input(
    I64,
    BigInt64Array.from({ length: rowCount }, (_, i) => BigInt(rowCount - 1 - i)),
    rowCount,
  );
  const back = input(
    I32,
    Int32Array.from({ length: rowCount }, (_, i) => (i * 7) % rowCount),
    rowCount,
  );
  for (const type of n % Q8_0.blockSize === 0 ? [F16, Q8_0] : [F16]) {
    const stored = graph.setRows(graph.canvas(type, n, rowCount), type === F16 ? wide : near, order);
    yield [`to ${type.name}`, stored];
    yield [`from ${type.name}`, graph.getRows(stored, back)];
  }
}

/** Operations that choose experts, and their biases. */
function* expertOutputs(graph: GraphBuilder, input: Input, n: number): Generator<[name: string, result: TensorPtr]> {
  const scores = input(F32, scaled(randomFloats(n * rowCount, 2), 12), n, rowCount);
  const chosen = graph.largest(scores, chosenCount);
  yield ['largest', chosen];
  // Sorting algorithms differ in which of equal elements come first.
  const equal = Float32Array.from({ length: n * rowCount }, (_, i) => (i * 7) % 5);
  yield ['largest of equal elements', graph.largest(input(F32, equal, n, rowCount), chosenCount)];
  const experts = graph.reshape3d(
    input(F32, wideFloats(n * chosenCount * rowCount, 6), n, chosenCount * rowCount),
    n,
    chosenCount,
    rowCount,
  );
  const biases = input(F32, randomFloats(n * n, 7), n, n);
  yield ['sum with a chosen row', graph.addChosen(experts, biases, chosen)];
}

const scaled = (values: Float32Array, factor: number): Float32Array => values.map((value) => value * factor);

/** Magnitudes from 2^-28 to 2^18: as F16, the smallest become 0 and the largest infinite. */
const wideFloats = (length: number, seed: number): Float32Array =>
  randomFloats(length, seed).map((value, i) => value * 2 ** (((i * 13) % 47) - 28));
