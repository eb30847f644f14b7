/**
 * Kernels of the package are built by clang (Zig), and gcc compiles kernels on most machines. Both must compute the same bits, because
 * machines with either share KV.
 */
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import type { ModelOptions } from '../bench/make-model/model-maker.ts';
import { F16, Q8_0 } from '../src/ggml/types.ts';
import { cpuLevels } from '../src/native/cpu-level.ts';
import { attentionSource } from '../src/runner/attention/attention-kernel.ts';
import { computeHere } from './support/compute-here.ts';
import { Drive, promptOf } from './support/drive.ts';
import { hasCompiler } from './support/has-compiler.ts';
import { type KernelForm, kernelForm, outputOfForm } from './support/kernel-forms.ts';
import { isLongForm } from './support/long-form.ts';
import { needs } from './support/needs.ts';
import { isHybrid, smallStates, temporaryFolder, tinyHybrid, writeTinyModel } from './support/tiny-model.ts';
import { noZig, zig } from './support/zig.ts';

computeHere();
const folder = temporaryFolder();
afterAll(() => folder.remove());
const before = { ...process.env };
afterEach(() => {
  process.env = before;
});

/** Zig's clang as a command: it optimizes as for the package. */
function clangFor(name: string, target: string): string {
  const path = folder.file(name);
  const cache = folder.file('zig-cache');
  const places = `ZIG_GLOBAL_CACHE_DIR=${cache} ZIG_LOCAL_CACHE_DIR=${cache}`;
  const command = (zig ?? ['zig']).join(' ');
  writeFileSync(path, `#!/bin/sh\n${places} exec ${command} cc ${target} "$@" -O3\n`, { mode: 0o755 });
  return path;
}

/** As `clangFor`, for whole programs: gcc links them, because Zig would compile a C library first. */
function clangAndLinker(name: string, target: string, linker: string): string {
  const clang = clangFor(`${name}-clang`, target);
  const path = folder.file(name);
  const lines = [
    '#!/bin/sh',
    'for argument; do [ "$before" = -o ] && output=$argument; before=$argument; done',
    `'${clang}' "$@" -c -o "$output.o" && exec ${linker} "$output.o" -o "$output"`,
  ];
  writeFileSync(path, `${lines.join('\n')}\n`, { mode: 0o755 });
  return path;
}

const starts = (command: string): boolean => spawnSync(command, ['--version']).status === 0;

/** All kernels with both compilers take minutes of CPU time. */
const isEveryKernel = process.env.KVASIR_TEST_EVERY_KERNEL === '1';

const isOnX64 = process.platform === 'linux' && process.arch === 'x64';

describe('gcc and clang', {
  ...needs(zig !== undefined, noZig),
  ...needs(hasCompiler && isOnX64, 'no Linux on x64 with a C compiler'),
}, () => {
  const models: readonly ModelOptions[] = [
    { architecture: 'llama', type: 'Q8_0' },
    { architecture: 'llama', type: 'Q4_K_M' },
    { architecture: 'lfm2', type: 'F16' },
    ...(isEveryKernel
      ? ([
          ...(['BF16', 'Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'IQ4_NL', 'IQ4_XS', 'Q2_K', 'Q3_K', 'Q5_K'] as const).map(
            (type) => ({ architecture: 'llama', type }) as const,
          ),
          { architecture: 'gpt-oss', type: 'MXFP4' },
          { architecture: 'gemma3', type: 'Q8_0' },
          { architecture: 'deepseek2', type: 'Q4_K' },
          { architecture: 'granitehybrid', type: 'Q8_0' },
          { architecture: 'qwen35moe', type: 'Q8_0' },
        ] as const)
      : []),
  ];

  /** A tiny model needs a small state. */
  const hybridOptions = ({ architecture }: ModelOptions): Partial<ModelOptions> =>
    architecture === 'lfm2' ? tinyHybrid : isHybrid(architecture) ? { layers: 3, ...smallStates } : {};

  /** The bits of logits and KV of a prompt and some tokens. */
  async function traceOf(path: string, compiler: string) {
    process.env = { ...before, CC: compiler, XDG_CACHE_HOME: folder.file('cache') };
    const events: string[] = [];
    const onEvent = (message: string): void => void events.push(message);
    const drive = await Drive.open(path, { onEvent });
    try {
      const requests = [0, 1].map((i) => ({ id: `${i}`, prompt: promptOf(60 - 7 * i, i), params: { maxTokens: 8 } }));
      const traces = await drive.run(requests);
      expect(events).toEqual([]);
      return [...traces.values()].map(({ tokens, logits, blocks }) => ({ tokens, logits, blocks: [...blocks] }));
    } finally {
      await drive.close();
    }
  }

  it.each(models)('compute the same logits and the same KV: $architecture in $type', async (model) => {
    const path = folder.file(`${model.architecture}-${model.type}.gguf`);
    await writeTinyModel(path, { ...model, ...hybridOptions(model) });
    const byGcc = await traceOf(path, 'cc');
    expect(byGcc[0]!.logits.length).toBeGreaterThan(4);
    expect(await traceOf(path, clangFor('clang', ''))).toEqual(byGcc);
  });
});

describe('attention of a prebuilt kernel', needs(zig !== undefined, noZig), () => {
  const base = kernelForm('AVX2');
  const linkerForArm = 'aarch64-linux-gnu-gcc';
  const shapes = [
    { headDim: 64, group: 2, kvType: F16 },
    ...(isLongForm ? [{ headDim: 128, group: 7, kvType: Q8_0 }] : []),
  ];
  const forms: readonly (KernelForm & { readonly lacks?: string })[] = [
    {
      name: 'AVX2',
      compiler: clangAndLinker('for-avx2', `-target x86_64-linux-gnu.2.28 -mcpu=${cpuLevels.avx2.zigCpu}`, 'cc'),
      cpuFlags: [],
      runner: [],
    },
    {
      name: 'NEON, in QEMU',
      compiler: clangAndLinker(
        'for-neon',
        `-target aarch64-linux-gnu.2.28 -mcpu=${cpuLevels.neon.zigCpu}`,
        `${linkerForArm} -static`,
      ),
      cpuFlags: [],
      runner: ['qemu-aarch64'],
      ...(starts('qemu-aarch64') && starts(linkerForArm)
        ? {}
        : { lacks: `no emulator and linker for ARM (qemu-aarch64, ${linkerForArm})` }),
    },
  ];

  for (const { lacks, ...form } of forms) {
    const reason = typeof base === 'string' ? base : lacks;
    it(`has the bits of gcc's: ${form.name}`, needs(reason === undefined, `${reason}`), async () => {
      for (const shape of shapes) {
        const source = attentionSource(shape);
        const wanted = await outputOfForm(base as KernelForm, 'attention', source, folder.path);
        const found = await outputOfForm({ ...form, name: `${form.name} clang` }, 'attention', source, folder.path);
        expect(wanted.length).toBeGreaterThan(1);
        expect(found.length).toBe(wanted.length);
        expect(found.every((line, index) => line === wanted[index])).toBe(true);
      }
    });
  }
});
