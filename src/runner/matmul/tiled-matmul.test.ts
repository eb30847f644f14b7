/** Matmuls with tiled matrices are compared with double precision, with ggml, and with themselves in other batches. */
import { afterAll, describe, expect, it } from 'vitest';
import { inLongForm } from '../../../test/support/long-form.ts';
import {
  emulated,
  type Form,
  floatsIn,
  forms,
  hasForm,
  missing,
  supportedForms,
  type TypeName,
  testedTypes,
} from '../../../test/support/matmul-forms.ts';
import { needs } from '../../../test/support/needs.ts';
import { compileOptionsOf } from '../../../test/support/quick-compiler.ts';
import { expectSameBits } from '../../../test/support/same-bits.ts';
import { bitsOf, type Matrix, testMatmuls } from '../../../test/support/tiled-matrices.ts';
import { openDevice } from '../../ggml/device.ts';
import { GraphBuilder } from '../../ggml/graph.ts';
import { F32, ggmlTypeNamed, rowBytes } from '../../ggml/types.ts';
import { randomFloats } from '../random-values.ts';
import { Matmuls } from './matmuls.ts';
import { openTiledMatmul, type TiledMatmul } from './tiled-matmul.ts';

const device = openDevice({ device: 'cpu', threads: 1, exact: false });
afterAll(() => device.close());
const { openKernels, randomMatrix, matrixOf, compute, multiply } = testMatmuls(device);

/** The default form has the types on this CPU, and the other forms with a type for each kind of activations. */
const isTested = (type: TypeName, { cpuFlags }: Form): boolean =>
  cpuFlags === undefined || inLongForm(true, ['F16', 'Q8_0', 'Q4_K'].includes(type));

const formsOfTypes = testedTypes.flatMap((type) =>
  forms.filter((form) => hasForm(type, form) && isTested(type, form)).map((form) => ({ type, form, name: form.name })),
);

/** The cost of a test is that of the sums in double precision. The default form has as many outputs with Q8_0. */
const many = inLongForm(1008, 208);
const shapesOf = (type: TypeName): readonly (readonly [inputs: number, outputs: number])[] => {
  const whole = [3072, many] as const;
  if (type === 'F16' || type === 'BF16') return [[16, 16], [80, 48], whole];
  if (ggmlTypeNamed(type)!.blockSize === 256) return [[256, 16], [768, 48], whole];
  return [
    [32, 16],
    [96, 48],
    ...(type === 'Q8_0'
      ? ([
          [1024, 80],
          [3072, 1008],
        ] as const)
      : [whole]),
  ];
};

for (const { name, type, form } of formsOfTypes)
  describe(`matmuls with ${type}, compiled for ${name}`, needs(form.isSupported, missing(form)), () => {
    it.each(shapesOf(type))(
      '%i inputs, %i outputs: equal double precision and ggml within the error of quantization',
      async (inputs, outputs) => {
        const matrix = randomMatrix(type, inputs, outputs);
        const rows = randomFloats(inputs * 37, 9);
        const theirs = multiply(undefined, matrix, rows);
        const tiles = await openKernels(form, [type]);
        await tiles.take(matrix.placed);
        const ours = multiply(tiles, matrix, rows);
        // Quantizing the activations causes most of the error, ours and ggml's.
        const typical = Math.sqrt(inputs) / 3;
        let worst = 0;
        for (let row = 0; row < 37; row++) {
          for (let output = 0; output < outputs; output += 7) {
            let sum = 0;
            for (let i = 0; i < inputs; i++) sum += rows[row * inputs + i]! * matrix.values[output * inputs + i]!;
            worst = Math.max(worst, Math.abs(sum - ours[row * outputs + output]!));
          }
        }
        expect(worst / typical).toBeLessThan(0.03);
        // For K types the quantized activations equal ggml's, and sums differ in their last bits.
        const tolerance = ggmlTypeNamed(type)!.blockSize === 256 ? 1e-5 : 0.01;
        const apart = ours.reduce((most, value, i) => Math.max(most, Math.abs(value - theirs[i]!)), 0);
        expect(apart / typical).toBeLessThan(tolerance);
        matrix.close();
      },
    );

    it(`${type}: have the same bits if the matrix stays in the layout of the file`, async () => {
      const matrix = randomMatrix(type, 512, 64);
      const rows = randomFloats(512 * 37, 9);
      const results = async (isMapped: boolean): Promise<Float32Array[]> => {
        const tiles = await openKernels(form, [type]);
        await tiles.take({ ...matrix.placed, isMapped });
        const wanted = Int32Array.from([63, 0, 17]);
        const { tensor } = matrix.placed;
        const taken = compute(wanted, 1, (graph, x) => new Matmuls(graph, { tiles }).takeRows(tensor, x, 3));
        return [multiply(tiles, matrix, rows), multiply(tiles, matrix, rows.slice(0, 512)), taken];
      };
      const mapped = await results(true);
      const tiled = await results(false);
      for (const [i, values] of mapped.entries()) expectSameBits(values, tiled[i]!);
      matrix.close();
    });

    // Matmuls with F16 and BF16 have no sums of integers that could overflow.
    const integers = [type].filter((name) => !name.endsWith('F16'));
    it.each(integers)('%s: do not overflow for the largest sums that weights and rows can have', async () => {
      const [inputs, outputs] = [512, 32];
      const rows = new Float32Array(inputs * 4).fill(1);
      rows.fill(-1, inputs, 2 * inputs);
      for (let i = 0; i < inputs; i++) rows[2 * inputs + i] = i % 2 === 0 ? 1 : -1;
      for (let i = 0; i < inputs; i++) rows[3 * inputs + i] = i % 4 < 2 ? 1 : -1;
      // Weights of -128 and 127, nibbles of 15 and 0, six bits of 63 and 0, and the largest scales.
      for (const [even, odd] of [
        [0x80, 0x80],
        [0x7f, 0x7f],
        [0xff, 0xff],
        [0x00, 0xff],
        [0x80, 0x7f],
        [0x00, 0x00],
      ] as const) {
        const { typeSize } = ggmlTypeNamed(type)!;
        const packed = new Uint8Array(rowBytes(ggmlTypeNamed(type)!, inputs) * outputs);
        for (let i = 0; i < packed.length; i++) packed[i] = i % 2 === 0 ? even : odd;
        // A scale of 2^-7 for each block, and for minima.
        for (let at = 0; at < packed.length; at += typeSize) {
          if (type === 'MXFP4') packed[at] = 127 - 7;
          for (const scale of floatsIn[type]) packed.set([0x00, 0x20], at + scale);
        }
        const matrix = matrixOf(type, inputs, outputs, packed);
        const tiles = await openKernels(form, [type]);
        await tiles.take(matrix.placed);
        const matmuls = multiply(tiles, matrix, rows);
        for (let row = 0; row < 4; row++) {
          for (const output of [0, 13, outputs - 1]) {
            const weights = matrix.values.subarray(output * inputs, (output + 1) * inputs);
            const expected = weights.reduce((sum, weight, i) => sum + weight * rows[row * inputs + i]!, 0);
            const size = weights.reduce((sum, weight) => sum + Math.abs(weight), 0);
            expect(Math.abs(matmuls[row * outputs + output]! - expected)).toBeLessThanOrEqual(0.001 * size);
          }
        }
        matrix.close();
      }
    });

    it('give a row the same bits in any batch', async () => {
      const [inputs, outputs] = [512, 64];
      const matrix = randomMatrix(type, inputs, outputs);
      const tiles = await openKernels(form, [type]);
      await tiles.take(matrix.placed);
      // More rows than the second-level cache holds.
      const total = 900;
      const rows = randomFloats(inputs * total, 4);
      const together = multiply(tiles, matrix, rows);
      for (const count of [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 48, 100, total - 1]) {
        for (const first of [0, total - count]) {
          const part = multiply(tiles, matrix, rows.slice(first * inputs, (first + count) * inputs));
          expectSameBits(part, together.subarray(first * outputs, (first + count) * outputs));
        }
      }
      matrix.close();
    });

    it('give a row with NaN or infinity no finite result, and do not change the other rows', async () => {
      const [inputs, outputs] = [512, 32];
      const matrix = randomMatrix(type, inputs, outputs);
      const tiles = await openKernels(form, [type]);
      await tiles.take(matrix.placed);
      const rows = randomFloats(inputs * 6, 5);
      const before = bitsOf(multiply(tiles, matrix, rows));
      rows[inputs + 100] = Number.NaN;
      rows[3 * inputs + 7] = Number.POSITIVE_INFINITY;
      rows[4 * inputs + 511] = Number.NEGATIVE_INFINITY;
      const after = multiply(tiles, matrix, rows);
      for (const row of [1, 3, 4]) {
        expect(after.subarray(row * outputs, (row + 1) * outputs).some(Number.isFinite)).toBe(false);
        const alone = multiply(tiles, matrix, rows.slice(row * inputs, (row + 1) * inputs));
        expect(alone.some(Number.isFinite)).toBe(false);
      }
      for (const row of [0, 2, 5]) {
        expect(bitsOf(after).slice(row * outputs, (row + 1) * outputs)).toEqual(
          before.slice(row * outputs, (row + 1) * outputs),
        );
      }
      matrix.close();
    });

    it('quantize rows of zeros, of extremes, and of tiny and huge values as ggml does', async () => {
      const [inputs, outputs] = [512, 32];
      const matrix = randomMatrix(type, inputs, outputs);
      const rows = randomFloats(inputs * 8, 6);
      rows.fill(0, 0, 256);
      rows.set([1, -1], inputs);
      rows.set([-1, 1], 2 * inputs);
      rows.fill(-1, 3 * inputs, 4 * inputs);
      rows.fill(1, 4 * inputs, 5 * inputs);
      for (let i = 0; i < inputs; i++) rows[5 * inputs + i]! *= 1e-20;
      for (let i = 0; i < inputs; i += 97) rows[6 * inputs + i]! *= 1000;
      const theirs = multiply(undefined, matrix, rows);
      const tiles = await openKernels(form, [type]);
      await tiles.take(matrix.placed);
      const ours = multiply(tiles, matrix, rows);
      for (let row = 0; row < 8; row++) {
        const [a, b] = [ours, theirs].map((all) => all.subarray(row * outputs, (row + 1) * outputs)) as [
          Float32Array,
          Float32Array,
        ];
        const size = Math.max(...b.map(Math.abs));
        for (const [i, value] of a.entries()) expect(Math.abs(value - b[i]!)).toBeLessThanOrEqual(0.02 * size + 1e-15);
      }
      matrix.close();
    });

    it('takeRows returns the same rows of the matrix as ggml', async () => {
      const [inputs, outputs] = [512, 96];
      const matrix = randomMatrix(type, inputs, outputs);
      const wanted = Int32Array.from([0, 95, 16, 15, 17, 40, 40, 3]);
      const take = (tiles: TiledMatmul | undefined): Uint32Array =>
        bitsOf(
          compute(wanted, 1, (graph, x) =>
            new Matmuls(graph, { tiles }).takeRows(matrix.placed.tensor, x, wanted.length),
          ),
        );
      const theirs = take(undefined);
      const tiles = await openKernels(form, [type]);
      await tiles.take(matrix.placed);
      expect(take(tiles)).toEqual(theirs);
      matrix.close();
    });
  });

const formsOfAllTypes = forms.filter((form) => form.name !== emulated);
for (const form of formsOfAllTypes)
  describe(
    `matmuls with MXFP4 and any scale, compiled for ${form.name}`,
    needs(form.isSupported, missing(form)),
    () => {
      const inputs = 32 * 16;
      /** All values with every exponent: block b of output o has the exponent 16 * o + b. */
      const everyScale = (): Matrix => {
        const packed = new Uint8Array(17 * 16 * 16);
        for (let block = 0; block < 256; block++) {
          packed[17 * block] = block;
          for (let i = 0; i < 16; i++) packed[17 * block + 1 + i] = (i << 4) | ((5 * i + block) & 15);
        }
        return matrixOf('MXFP4', inputs, 16, packed);
      };

      it('have the weights that ggml has', async () => {
        const matrix = everyScale();
        const tiles = await openKernels(form, ['MXFP4']);
        await tiles.take(matrix.placed);
        const all = Int32Array.from({ length: 16 }, (_, i) => i);
        const ours = compute(all, 1, (graph, x) => new Matmuls(graph, { tiles }).takeRows(matrix.placed.tensor, x, 16));
        expectSameBits(ours, matrix.values);
        matrix.close();
      });

      it('multiply each block by its scale', async () => {
        const matrix = everyScale();
        const tiles = await openKernels(form, ['MXFP4']);
        await tiles.take(matrix.placed);
        for (let block = 0; block < 16; block++) {
          const row = new Float32Array(inputs);
          row.fill(1, 32 * block + 3, 32 * block + 20);
          const ours = multiply(tiles, matrix, row);
          for (let output = 0; output < 16; output++) {
            const at = inputs * output + 32 * block;
            const weights = matrix.values.subarray(at + 3, at + 20);
            const sum = weights.reduce((total, weight) => total + weight, 0);
            const size = weights.reduce((total, weight) => total + Math.abs(weight), 0);
            // A scale of ones is 1/127, rounded to F16.
            if (Number.isFinite(size * 2)) expect(Math.abs(ours[output]! - sum)).toBeLessThanOrEqual(size * 2 ** -11);
          }
        }
        matrix.close();
      });
    },
  );

for (const form of formsOfAllTypes)
  describe(`matmuls with tiled matrices, compiled for ${form.name}`, needs(form.isSupported, missing(form)), () => {
    // Every type that is named here is a kernel to compile.
    const types = testedTypes.filter((type) => isTested(type, form));

    it('share quantized activations between matrices with the same quantization only', async () => {
      const matrices = types.flatMap((type) => [randomMatrix(type, 512, 32), randomMatrix(type, 512, 48)]);
      const tiles = await openKernels(form, types);
      for (const { placed } of matrices) await tiles.take(placed);
      const rows = randomFloats(512 * 5, 8);
      const apart = matrices.map((matrix) => bitsOf(multiply(tiles, matrix, rows)));
      const graph = new GraphBuilder(device);
      graph.begin(64);
      const x = graph.input(F32, 512, 5);
      const matmuls = new Matmuls(graph, { tiles });
      const results = matrices.map(({ placed }) => matmuls.multiply(placed.tensor, x, 'several'));
      for (const result of results) graph.output(result);
      graph.allocate();
      graph.write(x, rows);
      graph.computeNow();
      for (const [i, result] of results.entries()) {
        expect(graph.dataOf(result, Uint32Array)).toEqual(apart[i]);
      }
      graph.close();
      for (const matrix of matrices) matrix.close();
    });

    it('have an identity with the digest of the source, which is the same for all forms', async () => {
      const { identity, forms: compiledFor } = await openKernels(form, types);
      expect(identity).toMatch(new RegExp(`^${types.map((type) => `${type} \\([0-9a-f]{64}\\)`).join(' ')}$`));
      if (form.cpuFlags !== undefined) expect(compiledFor).toContain(form.name);
      expect(identity).toBe((await openKernels(supportedForms[0]!, types)).identity);
    });

    it('fit only supported types and shapes', async () => {
      const tiles = await openKernels(form, types);
      const fits = (name: string, inputs: number, outputs: number): boolean =>
        tiles.fits({ type: ggmlTypeNamed(name)!, ne: [inputs, outputs, 1, 1] } as never);
      expect(fits('Q8_0', 64, 32)).toBe(true);
      expect(fits('Q4_K', 512, 32)).toBe(true);
      expect(fits('F16', 48, 32)).toBe(true);
      expect(fits('F16', 40, 32)).toBe(false);
      expect(fits('Q8_0', 48, 32)).toBe(false);
      expect(fits('Q4_K', 384, 32)).toBe(false);
      expect(fits('Q8_0', 64, 20)).toBe(false);
      expect(fits('F16', 48, 24)).toBe(false);
      for (const type of types) expect(fits(type, 768, 32)).toBe(true);
      expect(fits('Q4_K', 1 << 16, 32)).toBe(false);
      expect(fits('F32', 64, 32)).toBe(false);
    });

    it('are opened only for the given types', async () => {
      expect((await openTiledMatmul(device, ['F32', 'Q4_K'], compileOptionsOf(form.cpuFlags)))!.types).toEqual([
        'Q4_K',
      ]);
      expect(await openTiledMatmul(device, ['F32'])).toBeUndefined();
      expect(await openTiledMatmul(device, ['Q8_0'], { compiler: 'no-such-compiler' })).toBeUndefined();
    });
  });
