/** Machines with different CPUs share KV, so a kernel computes the same bits with vectors of any length. */
import { afterAll, describe, expect, it } from 'vitest';
import { assert } from '../src/base/assert.ts';
import { F16, Q8_0 } from '../src/ggml/types.ts';
import type { NativeSource } from '../src/native/compiler.ts';
import { type AttentionShape, attentionSource } from '../src/runner/attention/attention-kernel.ts';
import { tileKernelSource } from '../src/runner/matmul/tile-kernels.ts';
import { deltaNetOf, scanOf } from '../src/runner/mixer/mixer-kernels.ts';
import { rotateHeadsSource } from '../src/runner/operations/head-rotation.ts';
import { rowOperationsSource } from '../src/runner/operations/row-operations.ts';
import { elementarySource, formNames, type KernelForm, kernelForm, outputOfForm } from './support/kernel-forms.ts';
import { isLongForm } from './support/long-form.ts';
import { allTypes } from './support/matmul-forms.ts';
import { needs } from './support/needs.ts';
import { temporaryFolder } from './support/tiny-model.ts';

const base = kernelForm('AVX2');
const folder = temporaryFolder();
afterAll(() => folder.remove());

const attention = (headDim: number, group: number, rest: Partial<AttentionShape> = {}) => ({
  name: `attention with ${group} heads of ${headDim} and KV of type ${(rest.kvType ?? F16).name}`,
  program: 'attention',
  source: attentionSource({ headDim, group, blockSize: 16, kvType: F16, ...rest }),
  isShort: headDim === 64,
});

const matmul = (type: string, isShort: boolean) => ({
  name: `matmuls with ${type}`,
  program: 'matmul',
  source: tileKernelSource(type),
  isShort,
});

/** The gates of a recurrence. */
const gates = (source: NativeSource, isScan: boolean) => ({
  name: `gates of ${source.file}`,
  program: 'gates',
  source: { ...source, definitions: { ...source.definitions, IS_SCAN: Number(isScan) } },
  isShort: false,
});

const kernels = [
  { name: 'elementary functions', program: 'elementary', source: elementarySource, isShort: true },
  gates(scanOf(64, 64), true),
  gates(deltaNetOf(64), false),
  attention(64, 2),
  attention(128, 7),
  attention(128, 8, { kvType: Q8_0 }),
  attention(80, 3),
  attention(96, 6, { valueInKey: 64 }),
  ...allTypes.map((type) => matmul(type, type === 'Q8_0')),
  {
    name: 'activations, softmax and small matmuls',
    program: 'row-operations',
    source: rowOperationsSource,
    isShort: false,
  },
  { name: 'norms of heads and RoPE', program: 'rotate-heads', source: rotateHeadsSource, isShort: false },
].filter(({ isShort }) => isShort || isLongForm);

/** Without the line that names the form. */
const bitsIn = (lines: readonly string[]): readonly string[] => lines.filter((line) => !line.startsWith('form '));

describe.each(kernels)('$name', ({ program, source }) => {
  const outputs = new Map<string, Promise<readonly string[]>>();
  const outputOf = (form: KernelForm): Promise<readonly string[]> => {
    const found = outputs.get(form.name) ?? outputOfForm(form, program, source, folder.path);
    outputs.set(form.name, found);
    return found;
  };

  const isQuantized = program === 'matmul' && !source.file.includes('f16-');
  for (const name of formNames.filter((name) => name !== 'AVX2' && (name !== 'NEON with i8mm' || isQuantized))) {
    const form = kernelForm(name);
    const reason = [base, form].find((either) => typeof either === 'string') ?? '';
    it(`has the same bits with AVX2 and with ${name}`, needs(reason === '', `${reason}`), async () => {
      assert(typeof base !== 'string' && typeof form !== 'string', 'both forms can be compiled');
      const [found, wanted] = (await Promise.all([outputOf(form), outputOf(base)])).map(bitsIn);
      assert(found !== undefined && wanted !== undefined, 'both forms have an output');
      if (name === 'NEON with i8mm') expect((await outputOf(form))[0]).toBe('form NEON i8mm');
      expect(found.length).toBe(wanted.length);
      for (const [index, line] of wanted.entries()) {
        expect(line.length).toBeGreaterThan(20);
        // A comparison of the whole lines would print them.
        expect(found[index] === line, `${line.split(' ')[0]} has the same bits`).toBe(true);
      }
    });
  }
});
