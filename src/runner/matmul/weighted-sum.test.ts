import { afterAll, describe, expect, it } from 'vitest';
import { hasCompiler } from '../../../test/support/has-compiler.ts';
import { needs } from '../../../test/support/needs.ts';
import { expectSameBits } from '../../../test/support/same-bits.ts';
import { openDevice } from '../../ggml/device.ts';
import { GraphBuilder } from '../../ggml/graph.ts';
import { F32 } from '../../ggml/types.ts';
import { randomFloats } from '../random-values.ts';
import { openWeightedSum, type WeightedSum, weightedSumOfGgml } from './weighted-sum.ts';

const devices = [1, 3].map((threads) => openDevice({ device: 'cpu', threads, exact: true }));
afterAll(() => {
  for (const device of devices) device.close();
});

interface Shape {
  readonly n: number;
  readonly count: number;
  readonly tokens: number;
}

function compute(device: (typeof devices)[number], sum: WeightedSum, { n, count, tokens }: Shape): Float32Array {
  const graph = new GraphBuilder(device);
  graph.begin(64);
  const rows = graph.input(F32, n, count * tokens);
  const weights = graph.input(F32, count, tokens);
  const result = sum(graph, graph.reshape3d(rows, n, count, tokens), weights);
  graph.output(result);
  graph.allocate();
  graph.write(rows, randomFloats(n * count * tokens, 1));
  graph.write(weights, randomFloats(count * tokens, 2));
  graph.computeNow();
  const values = graph.dataOf(result, Float32Array).slice();
  graph.close();
  return values;
}

const shapes: Shape[] = [
  { n: 1024, count: 6, tokens: 1 },
  { n: 1024, count: 6, tokens: 17 },
  { n: 40, count: 3, tokens: 5 },
  { n: 7, count: 2, tokens: 4 },
  { n: 64, count: 1, tokens: 3 },
];

describe('the sum of the results of experts by our kernel', needs(hasCompiler, 'no C compiler'), () => {
  it.each(shapes)("has the bits of ggml's operations: $n elements, $count experts, $tokens tokens", async (shape) => {
    for (const device of devices) {
      const kernel = (await openWeightedSum(device))!;
      const ours = compute(device, kernel, shape);
      expect(ours).toHaveLength(shape.n * shape.tokens);
      expectSameBits(ours, compute(device, weightedSumOfGgml, shape));
    }
  });
});
