import { assertDefined } from '../../base/assert.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import { F32, I32 } from '../../ggml/types.ts';
import type { StateSegment } from '../states/segments.ts';
import type {
  ConvolutionWeights,
  DeltaNetInputs,
  DeltaNetWeights,
  MixerShapes,
  Mixers,
  ScanInputs,
  ScanWeights,
  StatePlace,
} from './mixers.ts';

const floats = (count: number): number => count * F32.typeSize;

/**
 * Mixers by ggml's operations, for GPUs and for machines without a compiler. The operations compute sequences of equal
 * length only, so each segment has its own. They have the bits of the native kernels where ggml's CPU backend has the
 * same vectors, and give a row the same bits in any segments.
 */
export class GgmlMixers implements Mixers {
  readonly nodesPerSegment = 64;
  readonly #shapes: MixerShapes;

  constructor(shapes: MixerShapes) {
    this.#shapes = shapes;
  }

  shortConvolution(
    graph: GraphBuilder,
    x: TensorPtr,
    { kernel, bias, activation }: ConvolutionWeights,
    place: StatePlace,
  ): TensorPtr {
    const { taps, channels } = assertDefined(this.#shapes.convolution, 'a model with convolutions');
    const canvas = graph.canvas(F32, channels, graph.rowCountOf(x));
    for (const segment of segmentsOf(place)) {
      const { firstRow, rowCount } = segment;
      const rowBytes = graph.strideOf(x, 1);
      const rows = graph.view2d(x, channels, rowCount, rowBytes, firstRow * rowBytes);
      const before = stateBefore(graph, place, segment, [channels, taps - 1]);
      // [taps - 1 + rows, channels]
      const all = graph.concat(graph.transpose(before), graph.transpose(rows), 'columns');
      let y = graph.convolution(all, kernel);
      if (bias !== undefined) y = graph.add(y, bias);
      if (activation === 'silu') y = graph.activate('silu', y);
      graph.placeInto(y, canvas, floats(firstRow * channels));
      const last = graph.view2d(all, taps - 1, channels, floats(taps - 1 + rowCount), floats(rowCount));
      storeState(graph, place, segment, graph.transpose(last), [channels, taps - 1]);
    }
    return canvas;
  }

  scan(graph: GraphBuilder, inputs: ScanInputs, { a, d, dtBias }: ScanWeights, place: StatePlace): TensorPtr {
    const { heads, headDim, stateSize } = assertDefined(this.#shapes.scan, 'a model with scans');
    const width = heads * headDim;
    const canvas = graph.canvas(F32, width, graph.rowCountOf(inputs.dt));
    for (const segment of segmentsOf(place)) {
      const { firstRow, rowCount } = segment;
      const before = stateBefore(graph, place, segment, [stateSize * headDim, heads]);
      const x = rowsOf3d(graph, inputs.x, [headDim, heads], segment);
      const groups = graph.rowCountOf(inputs.b);
      const dtBytes = graph.strideOf(inputs.dt, 1);
      const dt = graph.contiguous(graph.view2d(inputs.dt, heads, rowCount, dtBytes, firstRow * dtBytes));
      const zero = graph.filledLike(graph.view2d(inputs.dt, 1, 1, dtBytes, 0), 0);
      const result = graph.scan(graph.reshape3d(before, stateSize, headDim, heads), {
        x,
        dt: graph.add(dt, dtBias),
        a: graph.reshape2d(a, 1, heads),
        b: rowsOf3d(graph, inputs.b, [stateSize, groups], segment),
        c: rowsOf3d(graph, inputs.c, [stateSize, groups], segment),
        // The index of the state, whose bits are those of 0.
        ids: graph.reinterpret(zero, I32, [1, 1, 1], [4, 4]),
      });
      const y = graph.view3d(result, [headDim, heads, rowCount], [floats(headDim), floats(width)], 0);
      graph.placeInto(graph.add(y, graph.multiply(x, graph.reshape2d(d, 1, heads))), canvas, floats(firstRow * width));
      const after = graph.view2d(result, stateSize * width, 1, floats(stateSize * width), floats(width * rowCount));
      storeState(graph, place, segment, after, [stateSize * width, 1]);
    }
    return canvas;
  }

  deltaNet(graph: GraphBuilder, inputs: DeltaNetInputs, { a, bias }: DeltaNetWeights, place: StatePlace): TensorPtr {
    const { heads, headDim, hasAdjacentHeads } = assertDefined(this.#shapes.deltaNet, 'a model with delta nets');
    const width = heads * headDim;
    const rows = graph.rowCountOf(inputs.alpha);
    const canvas = graph.canvas(F32, width, rows);
    const adjacent = hasAdjacentHeads === true ? heads / graph.rowCountOf(inputs.q) : 1;
    const [q, k] = [repeatHeads(graph, inputs.q, rows, adjacent), repeatHeads(graph, inputs.k, rows, adjacent)];
    for (const segment of segmentsOf(place)) {
      const { firstRow, rowCount } = segment;
      const keys = graph.rowCountOf(q);
      const before = stateBefore(graph, place, segment, [headDim * headDim, heads]);
      const ofRows = (x: TensorPtr): TensorPtr => {
        const bytes = graph.strideOf(x, 1);
        return graph.contiguous(graph.view2d(x, heads, rowCount, bytes, firstRow * bytes));
      };
      const gate = graph.multiply(graph.softplus(graph.add(ofRows(inputs.alpha), bias)), a);
      const result = graph.deltaNet(graph.reshape3d(before, headDim, headDim, heads), {
        q: rowsOf3d(graph, q, [headDim, keys], segment),
        k: rowsOf3d(graph, k, [headDim, keys], segment),
        v: rowsOf3d(graph, inputs.v, [headDim, heads], segment),
        gate: graph.reshape3d(gate, 1, heads, rowCount),
        beta: graph.reshape3d(graph.activate('sigmoid', ofRows(inputs.beta)), 1, heads, rowCount),
      });
      const y = graph.contiguous(graph.view2d(result, width, rowCount, floats(width), 0));
      graph.placeInto(y, canvas, floats(firstRow * width));
      const after = graph.view2d(result, headDim * width, 1, floats(headDim * width), floats(width * rowCount));
      storeState(graph, place, segment, after, [headDim * width, 1]);
    }
    return canvas;
  }
}

function segmentsOf({ states }: StatePlace): readonly StateSegment[] {
  states.fixSegments();
  return states.segments;
}

type Shape = readonly [ne0: number, ne1: number];

function stateBefore(
  graph: GraphBuilder,
  { states, firstElement }: StatePlace,
  { read, write }: StateSegment,
  shape: Shape,
): TensorPtr {
  const view = states.view(graph, read ?? write, shape, firstElement);
  // The copy is made before a later operation overwrites the state.
  return read === undefined ? graph.filledLike(view, 0) : graph.contiguous(view);
}

/** Operations run in the order in which they are added, so the next segment reads what is written here. */
// biome-ignore lint/complexity/useMaxParams: called for each kind of mixer
function storeState(
  graph: GraphBuilder,
  { states, firstElement }: StatePlace,
  { write }: StateSegment,
  state: TensorPtr,
  shape: Shape,
): void {
  graph.expand(graph.copyInto(state, states.view(graph, write, shape, firstElement)));
}

/** The rows of a segment, of F32 `[ne0, ne1, rows]`. */
function rowsOf3d(graph: GraphBuilder, x: TensorPtr, [ne0, ne1]: Shape, { firstRow, rowCount }: StateSegment) {
  const rowBytes = graph.strideOf(x, 2);
  return graph.view3d(x, [ne0, ne1, rowCount], [graph.strideOf(x, 1), rowBytes], firstRow * rowBytes);
}

/** F32 `[n, heads, rows]` -> `[n, heads * times, rows]`: each head so many times, one after the other. */
function repeatHeads(graph: GraphBuilder, x: TensorPtr, rows: number, times: number): TensorPtr {
  if (times === 1) return x;
  const [n, heads] = [graph.columnCountOf(x), graph.rowCountOf(x)];
  const once = graph.reshape2d(graph.contiguous(x), n, heads * rows);
  let repeated = once;
  for (let count = 1; count < times; count++) repeated = graph.concat(repeated, once, 'columns');
  return graph.reshape3d(repeated, n, heads * times, rows);
}
