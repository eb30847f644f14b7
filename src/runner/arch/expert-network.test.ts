/** A mixture of experts is compared with double precision, and with itself in other batches. */
import { afterAll, describe, expect, it } from 'vitest';
import { expectSameBits } from '../../../test/support/same-bits.ts';
import { allocateTensors, openDevice } from '../../ggml/device.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import { GraphBuilder } from '../../ggml/graph.ts';
import { F32 } from '../../ggml/types.ts';
import { Matmuls } from '../matmul/matmuls.ts';
import { randomFloats } from '../random-values.ts';
import { type ExpertVariant, type ExpertWeights, expertNetwork } from './expert-network.ts';

const device = openDevice({ device: 'cpu', threads: 1, exact: false });
const { native } = device;
const width = 24;
const experts = { count: 20, used: 3, feedForwardLength: 16 };
const sigmoidExperts = { ...experts, gating: 'sigmoid', dividesBySum: true, weightScale: 2.5 } as const;
const { count, used, feedForwardLength: hidden } = experts;
const tokensMax = 40;

const context = native.ggml_init({ mem_size: 8192, mem_buffer: 0, no_alloc: true });
const tensors = {
  router: native.ggml_new_tensor_2d(context, F32.id, width, count),
  gate: native.ggml_new_tensor_3d(context, F32.id, width, hidden, count),
  up: native.ggml_new_tensor_3d(context, F32.id, width, hidden, count),
  down: native.ggml_new_tensor_3d(context, F32.id, hidden, width, count),
};
const biasTensors = {
  router: native.ggml_new_tensor_1d(context, F32.id, count),
  gate: native.ggml_new_tensor_2d(context, F32.id, hidden, count),
  up: native.ggml_new_tensor_2d(context, F32.id, hidden, count),
  down: native.ggml_new_tensor_2d(context, F32.id, width, count),
};
const choiceBias = native.ggml_new_tensor_1d(context, F32.id, count);
const buffer = allocateTensors(device, context, device.cpuBuffers, { purpose: 'a test', bytes: 0 });
afterAll(() => {
  native.ggml_backend_buffer_free(buffer);
  native.ggml_free(context);
  device.close();
});

const matrix = (tensor: TensorPtr, elements: number, seed: number): Float32Array => {
  const values = randomFloats(elements, seed);
  native.ggml_backend_tensor_set(tensor, values, 0, values.byteLength);
  return values;
};
const gate = matrix(tensors.gate, width * hidden * count, 2);
const up = matrix(tensors.up, width * hidden * count, 3);
const down = matrix(tensors.down, width * hidden * count, 4);
const biases = {
  router: matrix(biasTensors.router, count, 6),
  gate: matrix(biasTensors.gate, hidden * count, 7),
  up: matrix(biasTensors.up, hidden * count, 8),
  down: matrix(biasTensors.down, width * count, 9),
  choice: matrix(choiceBias, count, 10),
};
const h = randomFloats(width * tokensMax, 5);

interface Kind {
  readonly name: string;
  readonly hasBiases: boolean;
  readonly variant: ExpertVariant;
  readonly isSigmoid?: boolean;
}
const kinds: readonly Kind[] = [
  { name: 'SwiGLU networks', hasBiases: false, variant: {} },
  {
    name: 'clamped SwiGLU networks with biases',
    hasBiases: true,
    variant: { weights: 'softmax of the chosen', network: 'clamped SwiGLU' },
  },
  { name: 'SwiGLU networks, chosen by a sigmoid and a bias', hasBiases: false, variant: {}, isSigmoid: true },
];

/** The results of tokens [first, first + tokens), each `width` numbers. */
function compute({ hasBiases, variant, isSigmoid }: Kind, first: number, tokens: number, input = h): Float32Array {
  const graph = new GraphBuilder(device);
  graph.begin(64);
  const x = graph.input(F32, width, tokens);
  const parts = { graph, matmuls: new Matmuls(graph, {}), experts: isSigmoid ? sigmoidExperts : experts, variant };
  const layer: ExpertWeights = {
    ...tensors,
    biases: hasBiases ? biasTensors : undefined,
    choiceBias: isSigmoid ? choiceBias : undefined,
    shared: undefined,
    latent: undefined,
    sharedGate: undefined,
    scale: undefined,
  };
  const result = expertNetwork(parts, layer, x);
  graph.output(result);
  graph.allocate();
  graph.write(x, input.subarray(first * width, (first + tokens) * width));
  graph.computeNow();
  const values = graph.dataOf(result, Float32Array).slice();
  graph.close();
  return values;
}

const dot = (weights: Float32Array, row: number, x: ArrayLike<number>): number => {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += weights[row * x.length + i]! * x[i]!;
  return sum;
};

const clamp = (x: number): number => Math.min(Math.max(x, -7), 7);
/** How many values the limit of clamped SwiGLU has changed. */
let clamped = 0;

function expertInDoubles({ hasBiases }: Kind, expert: number, x: ArrayLike<number>): number[] {
  const activations = Array.from({ length: hidden }, (_, i) => {
    const row = expert * hidden + i;
    const [g, u] = [dot(gate, row, x), dot(up, row, x)];
    if (!hasBiases) return (g / (1 + Math.exp(-g))) * u;
    const [biasedGate, biasedUp] = [g + biases.gate[row]!, u + biases.up[row]!];
    const limited = Math.min(biasedGate, 7);
    if (limited !== biasedGate || clamp(biasedUp) !== biasedUp) clamped++;
    return (limited / (1 + Math.exp(-1.702 * limited))) * (clamp(biasedUp) + 1);
  });
  return Array.from({ length: width }, (_, i) => {
    const row = expert * width + i;
    return dot(down, row, activations) + (hasBiases ? biases.down[row]! : 0);
  });
}

/** The shares of the probabilities of the chosen experts are the softmax of their scores. */
function tokenInDoubles(kind: Kind, router: Float32Array, x: ArrayLike<number>): number[] {
  const scores = Array.from({ length: count }, (_, expert) => {
    const score = Math.exp(dot(router, expert, x) + (kind.hasBiases ? biases.router[expert]! : 0));
    return kind.isSigmoid ? score / (1 + score) : score;
  });
  const choiceOf = (expert: number): number => scores[expert]! + (kind.isSigmoid ? biases.choice[expert]! : 0);
  const chosen = scores
    .map((score, expert) => ({ score, expert }))
    .toSorted((a, b) => choiceOf(b.expert) - choiceOf(a.expert));
  const best = chosen.slice(0, used);
  const total = best.reduce((sum, { score }) => sum + score, 0);
  const sum = new Array<number>(width).fill(0);
  for (const { score, expert } of best) {
    const weight = (score / total) * (kind.isSigmoid ? 2.5 : 1);
    for (const [i, value] of expertInDoubles(kind, expert, x).entries()) sum[i]! += weight * value;
  }
  return sum;
}

describe.each(kinds)('a mixture of $name', (kind) => {
  it('is the weighted sum of the most probable experts', () => {
    const router = matrix(tensors.router, width * count, 1);
    // Some inputs are large enough for the limit.
    const input = h.map((value, i) => (i < 4 * width ? 4 * value : value));
    const found = compute(kind, 0, tokensMax, input);
    clamped = 0;
    for (let token = 0; token < tokensMax; token++) {
      const expected = tokenInDoubles(kind, router, input.subarray(token * width, (token + 1) * width));
      for (const [i, value] of expected.entries()) expect(found[token * width + i]).toBeCloseTo(value, 3);
    }
    expect(clamped > 10).toBe(kind.hasBiases);
  });

  it('gives a token the same bits in any batch', () => {
    matrix(tensors.router, width * count, 1);
    const together = compute(kind, 0, tokensMax);
    const batches = [
      [0, 1],
      [39, 1],
      [7, 2],
      [11, 3],
      [20, 17],
    ] as const;
    for (const [first, tokens] of batches) {
      expectSameBits(compute(kind, first, tokens), together.subarray(first * width, (first + tokens) * width));
    }
  });

  it('gives a token the same bits in any batch if all experts are equally probable', () => {
    const zeros = new Float32Array(width * count);
    native.ggml_backend_tensor_set(tensors.router, zeros, 0, zeros.byteLength);
    native.ggml_backend_tensor_set(biasTensors.router, zeros, 0, 4 * count);
    const together = compute(kind, 0, tokensMax);
    for (let token = 0; token < tokensMax; token++) {
      expectSameBits(compute(kind, token, 1), together.subarray(token * width, (token + 1) * width));
    }
    matrix(biasTensors.router, count, 6);
  });

  it('gives a token with NaN or infinity no number, and does not change other tokens', () => {
    matrix(tensors.router, width * count, 1);
    const before = compute(kind, 0, 6);
    const broken = h.slice();
    broken[width + 3] = Number.NaN;
    broken[4 * width] = Number.POSITIVE_INFINITY;
    const after = compute(kind, 0, 6, broken);
    for (let token = 0; token < 6; token++) {
      const values = after.subarray(token * width, (token + 1) * width);
      if (token === 1 || token === 4) expect(values.some(Number.isFinite)).toBe(false);
      else expectSameBits(values, before.subarray(token * width, (token + 1) * width));
    }
  });
});
