/** Matmuls with tiled experts are compared with our matmuls with each expert's matrix alone, and with ggml. */
import { afterAll, describe, expect, it } from 'vitest';
import { inLongForm } from '../../../test/support/long-form.ts';
import { allTypes, type TypeName } from '../../../test/support/matmul-forms.ts';
import { needs } from '../../../test/support/needs.ts';
import { compileOptionsOf } from '../../../test/support/quick-compiler.ts';
import { expectSameBits } from '../../../test/support/same-bits.ts';
import { randomWeights as quantizedWeights } from '../../../test/support/tiled-matrices.ts';
import { allocateTensors, type ComputeDevice, openDevice } from '../../ggml/device.ts';
import { GraphBuilder } from '../../ggml/graph.ts';
import { F32, ggmlTypeNamed, I32, rowBytes } from '../../ggml/types.ts';
import { cpuFeatures } from '../../native/cpu-features.ts';
import { randomFloats } from '../random-values.ts';
import type { PlacedMatrix } from '../weight-store.ts';
import { Matmuls } from './matmuls.ts';
import { openTiledMatmul, type TiledMatmul } from './tiled-matmul.ts';

const one = openDevice({ device: 'cpu', threads: 1, exact: false });
const three = openDevice({ device: 'cpu', threads: 3, exact: false });
const { native } = one;
afterAll(() => {
  one.close();
  three.close();
});

const features = (await cpuFeatures()).split(' ');
const hasKernels = (await openTiledMatmul(one, ['F16'])) !== undefined;
const hasAvx2 = hasKernels && ['avx2', 'fma', 'f16c'].every((feature) => features.includes(feature));
const hasAvx512Vnni = hasKernels && ['avx512bw', 'avx512vl', 'avx512_vnni'].every((name) => features.includes(name));
const missing = 'no C compiler, or a CPU for which there are no kernels';
const avx2 = '-mavx2 -mfma -mf16c';

const inputs = 512;
const outputs = 48;
const experts = 7;
const chosenCount = 3;

interface Weights {
  /** Of all experts. */
  readonly all: PlacedMatrix;
  /** The same weights, one matrix for each expert. */
  readonly single: readonly PlacedMatrix[];
  close(): void;
}

function weightsOf(typeName: TypeName): Weights {
  const type = ggmlTypeNamed(typeName)!;
  const buffers = one.cpuBuffers;
  const context = native.ggml_init({ mem_size: 16384, mem_buffer: 0, no_alloc: true });
  const all = native.ggml_new_tensor_3d(context, type.id, inputs, outputs, experts);
  const single = Array.from({ length: experts }, () => native.ggml_new_tensor_2d(context, type.id, inputs, outputs));
  const buffer = allocateTensors(one, context, buffers, { purpose: 'a test', bytes: 0 });
  const bytes = rowBytes(type, inputs) * outputs;
  const packed = quantizedWeights(one, typeName, inputs, outputs * experts);
  native.ggml_backend_tensor_set(all, packed, 0, packed.length);
  for (const [e, tensor] of single.entries()) {
    native.ggml_backend_tensor_set(tensor, packed.slice(e * bytes, (e + 1) * bytes), 0, bytes);
  }
  return {
    all: { tensor: all, source: { type, ne: [inputs, outputs, experts, 1] } as never, buffers },
    single: single.map((tensor) => ({ tensor, source: { type, ne: [inputs, outputs, 1, 1] } as never, buffers })),
    close: () => {
      native.ggml_backend_buffer_free(buffer);
      native.ggml_free(context);
    },
  };
}

interface Choice {
  readonly tokens: number;
  /** Rows of x that a token has: 1, or one for each chosen expert. */
  readonly rowsOfToken: number;
  readonly x: Float32Array;
  /** `[tokens][chosenCount]` */
  readonly chosen: Int32Array;
}

/** Tokens with random distinct experts; expert 5 is never chosen, and expert 2 always. */
function randomChoice(tokens: number, rowsOfToken: number): Choice {
  const others = [0, 1, 3, 4, 6];
  const chosen = Array.from({ length: tokens }, (_, token) => {
    const first = (token * 7 + (token >> 2)) % others.length;
    return [others[first]!, 2, others[(first + 1 + (token % 4)) % others.length]!];
  });
  const x = randomFloats(inputs * rowsOfToken * tokens, 9);
  return { tokens, rowsOfToken, x, chosen: Int32Array.from(chosen.flat()) };
}

const partOf = ({ rowsOfToken, x, chosen }: Choice, first: number, tokens: number): Choice => ({
  tokens,
  rowsOfToken,
  x: x.slice(first * rowsOfToken * inputs, (first + tokens) * rowsOfToken * inputs),
  chosen: chosen.slice(first * chosenCount, (first + tokens) * chosenCount),
});

/** `[tokens][chosenCount][outputs]`. The chosen experts are a view with gaps, as ggml's top-k gives them. */
function multiply(device: ComputeDevice, tiles: TiledMatmul | undefined, matrices: PlacedMatrix, choice: Choice) {
  const { tokens, rowsOfToken, x, chosen } = choice;
  const gap = 2;
  const graph = new GraphBuilder(device);
  graph.begin(16);
  const rows = graph.input(F32, inputs, rowsOfToken * tokens);
  const ids = graph.input(I32, chosenCount + gap, tokens);
  const view = graph.view2d(ids, chosenCount, tokens, (chosenCount + gap) * 4, 0);
  const ofToken = graph.reshape3d(rows, inputs, rowsOfToken, tokens);
  const product = new Matmuls(graph, { tiles }).multiplyExperts(matrices.tensor, ofToken, view);
  graph.output(product);
  graph.allocate();
  graph.write(rows, x);
  const padded = new Int32Array((chosenCount + gap) * tokens).fill(-1);
  for (let token = 0; token < tokens; token++) {
    padded.set(chosen.subarray(token * chosenCount, (token + 1) * chosenCount), token * (chosenCount + gap));
  }
  graph.write(ids, padded);
  graph.computeNow();
  const values = graph.dataOf(product, Float32Array).slice();
  graph.close();
  return values;
}

/**
 * The same by matmuls with the matrices of single experts. The long form multiplies each row alone. `tiled-matmul.test.ts` shows that a row
 * has the same bits in a batch.
 */
function multiplyAlone(tiles: TiledMatmul, weights: Weights, choice: Choice): Float32Array {
  const { tokens, rowsOfToken, x, chosen } = choice;
  const values = new Float32Array(outputs * chosenCount * tokens);
  const pairs = Array.from(chosen, (expert, pair) => ({ expert, pair }));
  for (const expert of new Set(chosen)) {
    const ofExpert = pairs.filter((pair) => pair.expert === expert).map(({ pair }) => pair);
    const batch = inLongForm(1, ofExpert.length);
    for (let first = 0; first < ofExpert.length; first += batch) {
      const together = ofExpert.slice(first, first + batch);
      const rows = together.map((pair) => Math.floor((pair * rowsOfToken) / chosenCount));
      const graph = new GraphBuilder(one);
      graph.begin(8);
      const input = graph.input(F32, inputs, rows.length);
      const product = new Matmuls(graph, { tiles }).multiply(weights.single[expert]!.tensor, input);
      graph.output(product);
      graph.allocate();
      graph.write(input, Float32Array.from(rows.flatMap((row) => [...x.subarray(row * inputs, (row + 1) * inputs)])));
      graph.computeNow();
      const found = graph.dataOf(product, Float32Array);
      for (const [i, pair] of together.entries())
        values.set(found.subarray(i * outputs, (i + 1) * outputs), pair * outputs);
      graph.close();
    }
  }
  return values;
}

async function openTiles(weights: Weights, type: TypeName, cpuFlags?: string): Promise<TiledMatmul> {
  const tiles = (await openTiledMatmul(one, [type], compileOptionsOf(cpuFlags)))!;
  await tiles.takeExperts(weights.all);
  for (const matrix of weights.single) await tiles.take(matrix);
  return tiles;
}

const emulated = 'AMX (emulated)';
const forms = [
  ['this CPU', hasKernels, undefined],
  ['AVX2', hasAvx2, avx2],
  [emulated, hasAvx512Vnni, '-march=native -DAMX_EMULATED=1'],
] as const;
const ofActivations: readonly TypeName[] = ['F16', 'Q8_0', 'Q4_1', 'Q4_K'];

for (const [name, isSupported, cpuFlags] of forms)
  describe(`matmuls with experts, compiled for ${name}`, needs(isSupported, missing), () => {
    // A kernel per kind of activations: other kernels have the same operations for experts.
    const testedTypes =
      name === emulated ? ofActivations.slice(1) : inLongForm<readonly TypeName[]>(allTypes, ofActivations);

    it.each(testedTypes)('with %s: have the same bits if they stay in the layout of the file', async (type) => {
      const weights = weightsOf(type);
      const choices = [randomChoice(1, 1), randomChoice(1, chosenCount), randomChoice(19, chosenCount)];
      const results = async (isMapped: boolean): Promise<Float32Array[]> => {
        const tiles = (await openTiledMatmul(one, [type], compileOptionsOf(cpuFlags)))!;
        await tiles.takeExperts({ ...weights.all, isMapped });
        return choices.map((choice) => multiply(one, tiles, weights.all, choice));
      };
      const mapped = await results(true);
      const tiled = await results(false);
      for (const [i, values] of mapped.entries()) expectSameBits(values, tiled[i]!);
      weights.close();
    });

    it.each(testedTypes)(
      'with %s: have the bits of matmuls with the matrix alone, and are close to ggml’s',
      async (type) => {
        const weights = weightsOf(type);
        for (const rowsOfToken of [1, chosenCount]) {
          const choice = randomChoice(61, rowsOfToken);
          const theirs = rowsOfToken === 1 ? multiply(one, undefined, weights.all, choice) : undefined;
          const fresh = weightsOf(type);
          const tiles = await openTiles(fresh, type, cpuFlags);
          const ours = multiply(one, tiles, fresh.all, choice);
          expectSameBits(ours, multiplyAlone(tiles, fresh, choice));
          const typical = Math.sqrt(inputs) / 3;
          const apart = theirs?.reduce((most, value, i) => Math.max(most, Math.abs(value - ours[i]!)), 0) ?? 0;
          expect(apart / typical).toBeLessThan(0.01);
          fresh.close();
        }
        weights.close();
      },
    );

    it.each(testedTypes)(
      'with %s: give a token the same bits in any batch, with one thread and with three',
      async (type) => {
        const weights = weightsOf(type);
        const tiles = await openTiles(weights, type, cpuFlags);
        for (const rowsOfToken of [1, chosenCount]) {
          // One expert has more rows than the second-level cache holds.
          const choice = randomChoice(600, rowsOfToken);
          const together = multiply(one, tiles, weights.all, choice);
          expectSameBits(multiply(three, tiles, weights.all, choice), together);
          for (const [first, tokens] of [
            [0, 1],
            [599, 1],
            [17, 2],
            [100, 7],
            [3, 64],
            [200, 400],
          ] as const) {
            const expected = together.subarray(first * chosenCount * outputs, (first + tokens) * chosenCount * outputs);
            // Threads of ggml spin while they wait.
            for (const device of tokens === 64 || tokens === 1 ? [one, three] : [one]) {
              expectSameBits(multiply(device, tiles, weights.all, partOf(choice, first, tokens)), expected);
            }
          }
        }
        weights.close();
      },
    );

    it('do not change other rows if a row has a NaN', async () => {
      const weights = weightsOf('Q8_0');
      const tiles = await openTiles(weights, 'Q8_0', cpuFlags);
      const choice = randomChoice(9, 1);
      const before = multiply(one, tiles, weights.all, choice);
      choice.x[4 * inputs + 7] = Number.NaN;
      const after = multiply(one, tiles, weights.all, choice);
      const ofToken = (values: Float32Array, from: number, to: number) =>
        values.subarray(from * chosenCount * outputs, to * chosenCount * outputs);
      expect(ofToken(after, 4, 5).every(Number.isNaN)).toBe(true);
      expectSameBits(ofToken(after, 0, 4), ofToken(before, 0, 4));
      expectSameBits(ofToken(after, 5, 9), ofToken(before, 5, 9));
      weights.close();
    });

    it('have the same bits if they share the order of pairs and quantized activations', async () => {
      const [first, second] = [weightsOf('Q8_0'), weightsOf('Q4_0')];
      const tiles = (await openTiledMatmul(one, ['Q8_0', 'Q4_0'], compileOptionsOf(cpuFlags)))!;
      await tiles.takeExperts(first.all);
      await tiles.takeExperts(second.all);
      const choice = randomChoice(5, 1);
      const apart = [first, second].map(({ all }) => multiply(one, tiles, all, choice));
      const graph = new GraphBuilder(one);
      graph.begin(16);
      const rows = graph.input(F32, inputs, choice.tokens);
      const ids = graph.input(I32, chosenCount, choice.tokens);
      const matmuls = new Matmuls(graph, { tiles });
      const x = graph.reshape3d(rows, inputs, 1, choice.tokens);
      const products = [first, second].map(({ all }) => matmuls.multiplyExperts(all.tensor, x, ids));
      for (const product of products) graph.output(product);
      graph.allocate();
      graph.write(rows, choice.x);
      graph.write(ids, choice.chosen);
      graph.computeNow();
      for (const [i, product] of products.entries()) expectSameBits(graph.dataOf(product, Float32Array), apart[i]!);
      graph.close();
      first.close();
      second.close();
    });
  });
