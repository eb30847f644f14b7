/** Mixers are compared with ggml's operations, with double precision, and with themselves in other segments. */
import { afterAll, describe, expect, it } from 'vitest';
import { constantTensor } from '../../../test/support/constant-tensors.ts';
import { inLongForm } from '../../../test/support/long-form.ts';
import { newMixerPool } from '../../../test/support/mixer-pool.ts';
import { convolveInDoubles, deltaNetInDoubles, scanInDoubles } from '../../../test/support/mixers-in-doubles.ts';
import { needs } from '../../../test/support/needs.ts';
import { compileOptionsOf } from '../../../test/support/quick-compiler.ts';
import { expectSameBits } from '../../../test/support/same-bits.ts';
import type { BlockId } from '../../core/ids.ts';
import { type ComputeDevice, openDevice } from '../../ggml/device.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import { GraphBuilder } from '../../ggml/graph.ts';
import { F32 } from '../../ggml/types.ts';
import { cpuFeatures } from '../../native/cpu-features.ts';
import { randomFloats } from '../random-values.ts';
import type { StateSegment } from '../states/segments.ts';
import { GgmlMixers } from './ggml-mixers.ts';
import { type MixerShapes, type Mixers, type StatePlace, stateElements } from './mixers.ts';
import { NativeMixers } from './native-mixers.ts';
import { openMixers } from './open-mixers.ts';

const device = openDevice({ device: 'cpu', threads: 1, exact: false });
const threeThreads = openDevice({ device: 'cpu', threads: 3, exact: false });
afterAll(() => {
  device.close();
  threeThreads.close();
});

/** One kind of mixer, whose inputs are the columns of one row per token. */
interface Subject {
  readonly name: string;
  readonly shapes: MixerShapes;
  readonly elements: number;
  readonly inputWidth: number;
  readonly outputWidth: number;
  add(mixers: Mixers, graph: GraphBuilder, input: TensorPtr, place: StatePlace): TensorPtr;
  /** Of one row; changes the state. */
  inDoubles(state: Float64Array, row: Float32Array): Float64Array;
}

function convolution(taps: number, channels: number, silu: boolean): Subject {
  const kernel = randomFloats(taps * channels, 1);
  const bias = silu ? randomFloats(channels, 2) : undefined;
  const weights = {
    kernel: constantTensor(device, kernel, taps, channels),
    bias: bias && constantTensor(device, bias, channels),
    activation: silu ? ('silu' as const) : ('none' as const),
  };
  const shapes = { convolution: { taps, channels } };
  return {
    name: `convolution of ${taps} taps${silu ? ' with bias and SiLU' : ''}`,
    shapes,
    elements: stateElements(shapes),
    // The channels are some of the columns.
    inputWidth: channels + 32,
    outputWidth: channels,
    add: (mixers, graph, input, place) => {
      const rowBytes = graph.strideOf(input, 1);
      const x = graph.view2d(input, channels, graph.rowCountOf(input), rowBytes, 4 * 16);
      return mixers.shortConvolution(graph, x, weights, place);
    },
    inDoubles: (state, row) =>
      convolveInDoubles(state, row.subarray(16, 16 + channels), { kernel, ...(bias && { bias }), silu }),
  };
}

/** F32 `[ne0, ne1, rows]`: the columns of the input from `first` on. */
function columns(graph: GraphBuilder, input: TensorPtr, first: number, [ne0, ne1]: readonly [number, number]) {
  return graph.view3d(input, [ne0, ne1, graph.rowCountOf(input)], [4 * ne0, graph.strideOf(input, 1)], 4 * first);
}

function scan(stateSize: number): Subject {
  const [heads, headDim, groups] = [4, 32, 2];
  const width = heads * headDim;
  const shapes = { scan: { heads, headDim, stateSize } };
  const a = randomFloats(heads, 3).map((x) => -1 - Math.abs(x));
  const [d, dtBias] = [randomFloats(heads, 4), randomFloats(heads, 5)];
  const weights = {
    a: constantTensor(device, a, 1, heads),
    d: constantTensor(device, d, 1, heads),
    dtBias: constantTensor(device, dtBias, heads),
  };
  const at = { x: 0, b: width, c: width + groups * stateSize, dt: width + 2 * groups * stateSize };
  return {
    name: `scan with states of ${stateSize}`,
    shapes,
    elements: stateElements(shapes),
    inputWidth: at.dt + heads,
    outputWidth: width,
    add: (mixers, graph, input, place) => {
      const inputs = {
        x: columns(graph, input, at.x, [headDim, heads]),
        b: columns(graph, input, at.b, [stateSize, groups]),
        c: columns(graph, input, at.c, [stateSize, groups]),
        dt: graph.view2d(input, heads, graph.rowCountOf(input), graph.strideOf(input, 1), 4 * at.dt),
      };
      return mixers.scan(graph, inputs, weights, place);
    },
    inDoubles: (state, row) => {
      const [x, b, c, dt] = [
        row.subarray(0, at.b),
        row.subarray(at.b, at.c),
        row.subarray(at.c, at.dt),
        row.subarray(at.dt),
      ];
      return scanInDoubles(state, { x, b, c, dt }, { a, d, dtBias, groups });
    },
  };
}

function deltaNet(headDim: number, hasAdjacentHeads = false): Subject {
  const [heads, keys] = [4, 2];
  const width = heads * headDim;
  const shapes = { deltaNet: { heads, headDim, hasAdjacentHeads } };
  const a = randomFloats(heads, 6).map((x) => -1 - Math.abs(x));
  const bias = randomFloats(heads, 7);
  const weights = { a: constantTensor(device, a, heads), bias: constantTensor(device, bias, heads) };
  const at = { q: 0, k: keys * headDim, v: 2 * keys * headDim, alpha: 2 * keys * headDim + width };
  const beta = at.alpha + heads;
  return {
    name: `delta net with ${hasAdjacentHeads ? 'adjacent ' : ''}heads of ${headDim}`,
    shapes,
    elements: stateElements(shapes),
    inputWidth: beta + heads,
    outputWidth: width,
    add: (mixers, graph, input, place) => {
      const ofHeads = (first: number): TensorPtr =>
        graph.view2d(input, heads, graph.rowCountOf(input), graph.strideOf(input, 1), 4 * first);
      const inputs = {
        q: columns(graph, input, at.q, [headDim, keys]),
        // Keys of length 1 or less, as in models, so that states stay small.
        k: graph.scale(graph.contiguous(columns(graph, input, at.k, [headDim, keys])), 1 / Math.sqrt(headDim)),
        v: columns(graph, input, at.v, [headDim, heads]),
        alpha: ofHeads(at.alpha),
        beta: ofHeads(beta),
      };
      return mixers.deltaNet(graph, inputs, weights, place);
    },
    inDoubles: (state, row) =>
      deltaNetInDoubles(
        state,
        {
          q: row.subarray(0, at.k),
          k: row.subarray(at.k, at.v).map((x) => x / Math.sqrt(headDim)),
          v: row.subarray(at.v, at.alpha),
          alpha: row.subarray(at.alpha, beta),
          beta: row.subarray(beta),
        },
        { a, bias },
        hasAdjacentHeads,
      ),
  };
}

const subjects = [
  convolution(4, 96, true),
  convolution(3, 48, false),
  scan(64),
  scan(128),
  deltaNet(64),
  deltaNet(64, true),
  deltaNet(128),
];

/** Adjacent rows of one sequence in a block that is read and written, or read and written blocks. */
const segment = (firstRow: number, rowCount: number, read: number | undefined, write: number): StateSegment => ({
  firstRow,
  rowCount,
  read: read as BlockId | undefined,
  write: write as BlockId,
});

interface Run {
  readonly output: Float32Array;
  /** The states of all blocks afterwards. */
  readonly states: Float32Array[];
}

interface RunOptions {
  readonly on?: ComputeDevice;
  /** Default: a new pool with random states. */
  readonly initial?: readonly Float32Array[];
}

/** Computes one step with these rows in one graph. */
function run(
  subject: Subject,
  mixers: Mixers,
  rows: Float32Array,
  segments: readonly StateSegment[],
  { on = device, initial = randomStates(subject) }: RunOptions = {},
): Run {
  const { inputWidth, elements } = subject;
  const pool = newMixerPool(on, elements, initial.length);
  const graph = new GraphBuilder(on);
  try {
    for (const [block, values] of initial.entries()) pool.blocks[block]!.set(values);
    graph.begin(64 + segments.length * mixers.nodesPerSegment);
    const input = graph.input(F32, inputWidth, rows.length / inputWidth);
    const result = subject.add(mixers, graph, input, { states: pool.states(segments), firstElement: 0 });
    graph.output(result);
    graph.allocate();
    graph.write(input, rows);
    graph.computeNow();
    const output = graph.dataOf(result, Float32Array).slice();
    return { output, states: pool.blocks.map((block) => block.slice()) };
  } finally {
    graph.close();
    pool.close();
  }
}

const blockCount = 8;
const randomStates = ({ elements }: Subject): Float32Array[] =>
  Array.from({ length: blockCount }, (_, block) => randomFloats(elements, 100 + block));

const rowsOf = ({ inputWidth }: Subject, count: number): Float32Array => randomFloats(count * inputWidth, 9);

interface Form {
  readonly name: string;
  readonly cpuFlags?: string;
  readonly isSupported: boolean;
}

const features = (await cpuFeatures()).split(' ');
const open = async (shapes: MixerShapes, cpuFlags?: string): Promise<Mixers> =>
  (await openMixers(device, shapes, compileOptionsOf(cpuFlags))).mixers;
const hasKernels = (await open(subjects[0]!.shapes)) instanceof NativeMixers;
const hasAvx2 = hasKernels && process.arch === 'x64' && ['avx2', 'fma'].every((name) => features.includes(name));
const forms: Form[] = [
  { name: 'this CPU', isSupported: hasKernels },
  { name: 'AVX2', cpuFlags: '-mavx2 -mfma -mf16c', isSupported: hasAvx2 },
  { name: 'plain C', cpuFlags: '-march=x86-64', isSupported: hasKernels && process.arch === 'x64' },
  { name: 'ggml', isSupported: true },
];
const openForm = async ({ name, cpuFlags }: Form, { shapes }: Subject): Promise<Mixers> =>
  name === 'ggml' ? new GgmlMixers(shapes) : await open(shapes, cpuFlags);

describe.each(subjects)('$name', (subject) => {
  const { inputWidth, outputWidth } = subject;

  // ggml has the order of sums of these kernels in its builds for CPUs with AVX-512.
  const hasOrderOfGgml = hasAvx2 && features.includes('avx512vl');
  describe('compared with ggml', needs(hasOrderOfGgml, 'no C compiler, or a CPU without AVX-512'), () => {
    // Exponentials and logarithms of gates have errors of half a unit in the last place here, and a little more in C libraries.
    const largestOf = (values: Float32Array): number =>
      values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    const expectNear = (found: Float32Array, wanted: Float32Array): void => {
      if (subject.shapes.scan === undefined && subject.shapes.deltaNet === undefined) expectSameBits(found, wanted);
      const [largest, difference] = [largestOf(wanted), largestOf(wanted.map((value, i) => value - found[i]!))];
      expect(difference / largest).toBeLessThan(3e-7);
    };

    it.each([1, 2, 7, 64, 75])('%i rows and their state are nearly equal, and equal without gates', async (count) => {
      const rows = rowsOf(subject, count);
      const mixers = await open(subject.shapes);
      for (const read of [undefined, 3]) {
        const segments = [segment(0, count, read, 3)];
        const native = run(subject, mixers, rows, segments);
        const ggml = run(subject, new GgmlMixers(subject.shapes), rows, segments);
        expectNear(native.output, ggml.output);
        expectNear(native.states[3]!, ggml.states[3]!);
      }
    });
  });

  for (const form of forms)
    describe(form.name, needs(form.isSupported, 'no C compiler, or the CPU lacks the instructions'), () => {
      it('equals an evaluation in double precision', async () => {
        const rows = rowsOf(subject, 40);
        const initial = randomStates(subject);
        const { output, states } = run(subject, await openForm(form, subject), rows, [segment(0, 40, 2, 4)], {
          initial,
        });
        const state = Float64Array.from(initial[2]!);
        let [largest, difference] = [0, 0];
        for (let row = 0; row < 40; row++) {
          const wanted = subject.inDoubles(state, rows.subarray(row * inputWidth, (row + 1) * inputWidth));
          for (const [i, value] of wanted.entries()) {
            largest = Math.max(largest, Math.abs(value));
            difference = Math.max(difference, Math.abs(value - output[row * outputWidth + i]!));
          }
        }
        expect(difference).toBeLessThan(2e-6 * largest);
        const scale = Math.max(...state.map(Math.abs));
        const differences = state.map((value, i) => Math.abs(value - states[4]![i]!));
        expect(Math.max(...differences)).toBeLessThan(2e-6 * scale);
      });

      it('a sequence has the same bits in any segments', async () => {
        const count = 149;
        const rows = rowsOf(subject, count);
        const mixers = await openForm(form, subject);
        const whole = run(subject, mixers, rows, [segment(0, count, 1, 2)]);
        for (const size of [1, 2, 7, 16, 64, 75]) {
          const segments: StateSegment[] = [];
          for (let first = 0; first < count; first += size) {
            segments.push(segment(first, Math.min(size, count - first), first === 0 ? 1 : 2, 2));
          }
          const cut = run(subject, mixers, rows, segments);
          expectSameBits(cut.output, whole.output);
          expectSameBits(cut.states[2]!, whole.states[2]!);
        }
      });

      it('a sequence has the same bits in steps of any length', async () => {
        const count = 20;
        const rows = rowsOf(subject, count);
        const mixers = await openForm(form, subject);
        const whole = run(subject, mixers, rows, [segment(0, count, undefined, 2)]);
        let initial = randomStates(subject);
        for (const [first, end] of [
          [0, 1],
          [1, 2],
          [2, 9],
          [9, 20],
        ] as const) {
          const part = rows.subarray(first * inputWidth, end * inputWidth);
          const segments = [segment(0, end - first, first === 0 ? undefined : 2, 2)];
          const { output, states } = run(subject, mixers, part, segments, { initial });
          expectSameBits(output, whole.output.slice(first * outputWidth, end * outputWidth));
          initial = states;
        }
        expectSameBits(initial[2]!, whole.states[2]!);
      });

      // ggml's threads wait for each other in loops, so its operations on several threads are in the long form.
      const devices: [string, ComputeDevice][] = [
        ['one thread', device],
        ['three threads', threeThreads],
      ];
      it.each(form.name === 'ggml' ? inLongForm(devices, devices.slice(0, 1)) : devices)(
        'sequences of several lengths have the bits that they have alone, with %s',
        async (_, on) => {
          const mixers = await openForm(form, subject);
          // Decodes, a prompt from position 0, a copy of a checkpoint, and a reader of what the copy has written.
          const segments = [
            segment(0, 1, 1, 1),
            segment(1, 13, undefined, 2),
            segment(14, 1, 3, 3),
            segment(15, 5, 4, 5),
            segment(20, 2, 5, 6),
          ];
          const rows = rowsOf(subject, 22);
          const initial = randomStates(subject);
          const together = run(subject, mixers, rows, segments, { on, initial });
          let blocks = initial;
          for (const { firstRow, rowCount, read, write } of segments) {
            const own = rows.subarray(firstRow * inputWidth, (firstRow + rowCount) * inputWidth);
            const alone = run(subject, mixers, own, [segment(0, rowCount, read, write)], { initial: blocks });
            expectSameBits(
              together.output.slice(firstRow * outputWidth, (firstRow + rowCount) * outputWidth),
              alone.output,
            );
            blocks = alone.states;
          }
          for (const [block, state] of blocks.entries()) expectSameBits(together.states[block]!, state);
          // The checkpoint stays as it was.
          expectSameBits(together.states[4]!, initial[4]!);
        },
      );
    });

  it('AVX2 has the bits of this CPU', needs(hasAvx2, 'no C compiler, or a CPU without AVX2'), async () => {
    const rows = rowsOf(subject, 21);
    const segments = [segment(0, 20, 1, 1), segment(20, 1, undefined, 2)];
    const native = run(subject, await open(subject.shapes), rows, segments);
    const avx2 = run(subject, await open(subject.shapes, '-march=haswell'), rows, segments);
    expectSameBits(avx2.output, native.output);
    for (const [block, state] of native.states.entries()) expectSameBits(avx2.states[block]!, state);
  });

  it('rows of padding are 0', needs(hasKernels, 'no C compiler'), async () => {
    const { output } = run(subject, await open(subject.shapes), rowsOf(subject, 5), [segment(0, 3, 1, 1)]);
    expect(output.subarray(0, 3 * outputWidth).some((value) => value !== 0)).toBe(true);
    expectSameBits(output.slice(3 * outputWidth), new Float32Array(2 * outputWidth));
  });

  it('a token with NaN changes no other sequence', needs(hasKernels, 'no C compiler'), async () => {
    const rows = rowsOf(subject, 6);
    const segments = [segment(0, 2, 1, 1), segment(2, 4, 2, 2)];
    const mixers = await open(subject.shapes);
    const good = run(subject, mixers, rows, segments);
    rows.fill(Number.NaN, 0, inputWidth);
    const { output, states } = run(subject, mixers, rows, segments);
    expect(output.subarray(0, outputWidth).every(Number.isNaN)).toBe(true);
    expectSameBits(output.slice(2 * outputWidth), good.output.slice(2 * outputWidth));
    expectSameBits(states[2]!, good.states[2]!);
  });
});

describe('shapes without a kernel', () => {
  const unsupported: MixerShapes[] = [
    { convolution: { taps: 4, channels: 40 } },
    { scan: { heads: 4, headDim: 24, stateSize: 128 } },
    { scan: { heads: 4, headDim: 32, stateSize: 96 } },
    { deltaNet: { heads: 4, headDim: 96 } },
  ];

  it.each(unsupported)('are computed by ggml: %j', async (shapes) => {
    const { mixers, identity } = await openMixers(device, shapes);
    expect(mixers).toBeInstanceOf(GgmlMixers);
    expect(identity).toBe('ggml');
  });
});
