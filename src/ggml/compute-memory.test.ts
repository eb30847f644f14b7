import { expect, test } from 'vitest';
import { ComputeMemory } from './compute-memory.ts';
import { openDevice } from './device.ts';
import { GraphBuilder } from './graph.ts';
import { F32 } from './types.ts';

/** A graph that doubles `count` values. */
function doubling(graph: GraphBuilder, count: number) {
  graph.begin(8);
  const x = graph.input(F32, count);
  const doubled = graph.scale(x, 2);
  graph.output(doubled);
  graph.allocate();
  return { x, doubled };
}

test('data of graphs that share memory are parts of one view, until a larger graph needs other memory', () => {
  const device = openDevice({ device: 'cpu', threads: 1, exact: true });
  const memory = new ComputeMemory(device);
  const [first, second, large] = [1, 2, 3].map(() => new GraphBuilder(device, undefined, memory)) as [
    GraphBuilder,
    GraphBuilder,
    GraphBuilder,
  ];
  try {
    const compute = (graph: GraphBuilder, count: number): Float32Array => {
      const { x, doubled } = doubling(graph, count);
      graph.write(
        x,
        Float32Array.from({ length: count }, (_, i) => i),
      );
      graph.computeNow();
      const found = graph.dataOf(doubled, Float32Array);
      expect(found).toEqual(Float32Array.from({ length: count }, (_, i) => 2 * i));
      expect(graph.dataOf(doubled, Float32Array, 3)).toEqual(Float32Array.of(0, 2, 4));
      return found;
    };
    const before = compute(first, 1000);
    expect(compute(second, 500).buffer).toBe(before.buffer);
    const after = compute(large, 100_000);
    expect(after.buffer).not.toBe(before.buffer);
    expect(compute(second, 500).buffer).toBe(after.buffer);
  } finally {
    for (const graph of [first, second, large]) graph.close();
    memory.close();
    device.close();
  }
});

test('a buffer that is larger than a view has a few', () => {
  const device = openDevice({ device: 'cpu', threads: 1, exact: true });
  const memory = new ComputeMemory(device, 4096);
  const graph = new GraphBuilder(device, undefined, memory);
  const sizes = [1, 400, 512, 513, 1000, 1024, 1025, 3000, 7, 300];
  try {
    graph.begin(64);
    const tensors = sizes.map((count) => {
      const x = graph.input(F32, count);
      graph.output(graph.scale(x, 2));
      return x;
    });
    graph.allocate();
    for (let round = 0; round < 3; round++) {
      for (const [i, x] of tensors.entries()) graph.write(x, new Float32Array(sizes[i]!).fill(i));
      for (const [i, x] of tensors.entries())
        expect(graph.dataOf(x, Float32Array)).toEqual(new Float32Array(sizes[i]!).fill(i));
    }
    const views = new Set(tensors.map((x) => graph.dataOf(x, Float32Array).buffer));
    expect(views.size).toBeGreaterThan(1);
    expect(views.size).toBeLessThan(sizes.length);
  } finally {
    graph.close();
    memory.close();
    device.close();
  }
});
