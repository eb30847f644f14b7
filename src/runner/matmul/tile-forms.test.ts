/** All forms of the kernels give the same bits. */
import { afterAll, describe, expect, it } from 'vitest';
import {
  floatsIn,
  hasAmx,
  hasAvx512Vnni,
  hasForm,
  supportedForms,
  type TypeName,
  testedTypes,
} from '../../../test/support/matmul-forms.ts';
import { needs } from '../../../test/support/needs.ts';
import { compileOptionsOf } from '../../../test/support/quick-compiler.ts';
import { expectSameBits } from '../../../test/support/same-bits.ts';
import { type Matrix, testMatmuls } from '../../../test/support/tiled-matrices.ts';
import { openDevice } from '../../ggml/device.ts';
import { ggmlTypeNamed, rowBytes } from '../../ggml/types.ts';
import { randomFloats } from '../random-values.ts';
import { openTiledMatmul } from './tiled-matmul.ts';

const device = openDevice({ device: 'cpu', threads: 1, exact: false });
afterAll(() => device.close());
const { openKernels, randomMatrix, matrixOf, multiply } = testMatmuls(device);

describe(
  'all forms',
  needs(supportedForms.length > 1, 'fewer than two forms of the kernels, so there is nothing to compare'),
  () => {
    // More blocks, and more groups of rows, than AMX multiplies at once.
    const [inputs, outputs] = [1280, 64];

    /** Bytes of ggml's layout at random: the largest scales, so sums of integers pass 2^24. */
    function extremeMatrix(typeName: TypeName): Matrix {
      const type = ggmlTypeNamed(typeName)!;
      const packed = new Uint8Array(rowBytes(type, inputs) * outputs);
      for (const [i, value] of randomFloats(packed.length, 12).entries()) packed[i] = Math.abs(value * 1e6);
      for (let at = 0; at < packed.length; at += type.typeSize) {
        if (typeName === 'MXFP4') packed[at] = 120;
        for (const scale of floatsIn[typeName]) packed[at + scale + 1] = 0x20;
      }
      return matrixOf(typeName, inputs, outputs, packed);
    }

    /** Random rows, rows of the largest values of either sign, and a row of zeros. */
    const rows = randomFloats(inputs * 85, 10);
    rows.fill(1, 3 * inputs, 4 * inputs);
    rows.fill(-1, 4 * inputs, 5 * inputs);
    for (let i = 5 * inputs; i < 6 * inputs; i++) rows[i] = Math.sign(rows[i]!);
    rows.fill(0, 6 * inputs, 7 * inputs);

    const matrices = [
      ['quantized values', (type: TypeName) => randomMatrix(type, inputs, outputs)],
      ['extreme values', extremeMatrix],
    ] as const;
    it.each(testedTypes.flatMap((type) => matrices.map(([what, matrix]) => ({ type, what, matrix }))))(
      'give matmuls with $type, $what, the same bits',
      async ({ type, matrix: make }) => {
        const [first, ...others] = await Promise.all(
          supportedForms
            .filter((form) => hasForm(type, form))
            .map(async (form) => {
              const matrix = make(type);
              const tiles = await openKernels(form, [type]);
              await tiles.take(matrix.placed);
              const products = [1, 2, 5, 8, 16, 37, 85].map((count) =>
                multiply(tiles, matrix, rows.slice(0, inputs * count)),
              );
              matrix.close();
              return products;
            }),
        );
        for (const other of others) {
          for (const [i, products] of other.entries()) expectSameBits(products, first![i]!);
        }
      },
    );
  },
);

describe('AMX', needs(hasAvx512Vnni, 'no C compiler, or a CPU without AVX-512 VNNI'), () => {
  const types = ['Q8_0', 'Q6_K'];
  const openFor = async (cpuFlags: string | undefined) => {
    const events: string[] = [];
    const event = (message: string): void => void events.push(message);
    return { tiles: (await openTiledMatmul(device, types, { ...compileOptionsOf(cpuFlags), event }))!, events };
  };

  it('is not used, with an event, if it computes other bits', async () => {
    const { tiles, events } = await openFor('-march=native -DAMX_EMULATED=2');
    expect(tiles.forms).toEqual(['AVX-512 VNNI']);
    expect(new Set(events)).toEqual(
      new Set(
        types.map(
          (type) =>
            `AMX is not used for ${type} matrices: in a test at the start it computed other bits than the other kernels. Prompts are slower, and the text is the same.`,
        ),
      ),
    );
  });

  it('is used on a CPU that has it, and not on a CPU without it', async () => {
    const { tiles, events } = await openFor(undefined);
    expect(tiles.types).toEqual(types);
    expect(tiles.forms).toEqual([hasAmx ? 'AMX' : 'AVX-512 VNNI']);
    expect(events).toEqual([]);
  });
});
