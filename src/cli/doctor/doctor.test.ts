/** `kvasir doctor` shows the kernels of this machine, says why others do not run, and what to change. */
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest';
import { hasCompiler } from '../../../test/support/has-compiler.ts';
import { hasAmx, hasAvx512Vnni } from '../../../test/support/matmul-forms.ts';
import { needs } from '../../../test/support/needs.ts';
import { quickCompiler } from '../../../test/support/quick-compiler.ts';
import { runHere } from '../../../test/support/run-here.ts';
import { writeTinyModel } from '../../../test/support/tiny-model.ts';
import { type AmxOutcome, cpuHasAmx } from '../../runner/matmul/tile-forms.ts';
import { adviceFor } from './advice.ts';
import { type AmxReport, amxReportOf } from './amx.ts';
import type { DoctorReport } from './command.ts';
import { type KernelReport, reportKernels } from './kernels.ts';
import { type MachineReport, quotaIn, reportMachine } from './machine.ts';
import { measureMemorySpeed } from './memory-speed.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-doctor-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const before = { ...process.env };
beforeEach(() => {
  process.env = { ...before, XDG_CACHE_HOME: join(folder, 'cache') };
});
afterEach(() => {
  process.env = before;
});

const demo = 'models/kvasir-demo.gguf';
const model = ['--model', demo];
const ofDemo = [
  'attention (heads of 64, 2 per KV head)',
  'matmuls in Q8_0',
  'activations and softmax',
  'RoPE',
  'sampling',
  'checksums of stored KV',
  ...(process.platform === 'linux' ? ['barrier of compute threads'] : []),
];

describe('kvasir doctor', () => {
  it('without a compiler names the missing kernels, the reasons and the remedy', async () => {
    process.env.CC = '/nonexistent/cc';
    const { code, stdout, stderr } = await runHere(['doctor', '--json', ...model]);
    expect([code, stderr]).toEqual([0, '']);
    const report = JSON.parse(stdout) as DoctorReport;
    expect(report.kernels.map(({ name }) => name)).toEqual(ofDemo);
    for (const { state, reason } of report.kernels) {
      expect(state).toBe('missing');
      expect(reason).toBe('there is no C compiler `/nonexistent/cc`; CC names a compiler');
    }
    expect(report.advice[0]).toMatch(/^Install a C compiler/);
    expect(report.memoryBytesPerSecond).toBeGreaterThan(0);
    expect(Array.isArray(report.gpu.devices)).toBe(true);
    const amx = { state: hasAmx ? 'no form' : 'absent', forms: [] };
    expect(report.amx).toEqual(report.cpu.features === undefined || process.arch !== 'x64' ? undefined : amx);
    expect(report.platform).toBe(`${process.platform}-${process.arch}`);
  });

  it(
    'shows compiled and cached kernels',
    needs(hasCompiler && process.arch === 'x64', 'no C compiler for x64'),
    async () => {
      process.env.CC = quickCompiler(join(folder, 'quick-cc'));
      const lines = (await runHere(['doctor', ...model])).stdout.split('\n');
      for (const title of ['CPU ', 'instructions ', 'threads ', 'memory speed ', 'cache folder '])
        expect(lines.filter((line) => line.startsWith(title))).toHaveLength(1);
      const amx = hasAmx ? /^AMX +used: / : /^AMX +the CPU has none: prompts are multiplied with AVX[-\w ]+$/;
      expect(lines.filter((line) => amx.test(line))).toHaveLength(1);
      expect(lines.filter((line) => /^attention .* compiled +CC names a compiler$/.test(line))).toHaveLength(1);
      expect(lines.some((line) => line.startsWith('* '))).toBe(true);
      // Without the speed of memory, which takes the most time.
      const kernels = await reportKernels(demo);
      expect(kernels.find(({ name }) => name === ofDemo[0])).toMatchObject({ state: 'cached' });
    },
  );

  it(
    'says whether kernels use AMX, and why not',
    needs(hasAvx512Vnni, 'no C compiler, or a CPU without AVX-512 VNNI'),
    async () => {
      const reports: { readonly kernels: readonly KernelReport[]; readonly amx: AmxReport | undefined }[] = [];
      for (const form of [1, 2]) {
        // Only the kernel for Q8_0 is compiled.
        const compiler = join(folder, `emulating-cc-${form}`);
        const emulating = quickCompiler(join(folder, `quick-cc-${form}`), `-DAMX_EMULATED=${form}`);
        const lines = `case "$*" in --version|*q8-tiles*) exec ${emulating} "$@";; esac\nexit 1\n`;
        writeFileSync(compiler, `#!/bin/sh\n${lines}`, { mode: 0o755 });
        process.env.CC = compiler;
        const kernels = await reportKernels(demo);
        reports.push({ kernels, amx: amxReportOf(await cpuHasAmx(), kernels) });
      }
      expect(reports.map(({ amx }) => amx)).toEqual([
        { state: 'used', forms: ['AMX (emulated)'] },
        { state: 'other bits', forms: ['AVX-512 VNNI'] },
      ]);
      expect(reports[1]!.kernels.find(({ name }) => name === 'matmuls in Q8_0')).toMatchObject({ amx: 'other bits' });
    },
  );

  it('reports a compiler that fails, with its message', async () => {
    const compiler = join(folder, 'broken-cc');
    writeFileSync(
      compiler,
      '#!/bin/sh\ntest "$1" = --version && exit 0\necho "x.c:1: error: out of order" >&2\nexit 1\n',
    );
    chmodSync(compiler, 0o755);
    process.env.CC = compiler;
    const kernels = await reportKernels(demo);
    const advice = adviceFor(await reportMachine(), kernels);
    expect(kernels[0]?.reason).toBe('x.c:1: error: out of order; CC names a compiler');
    expect(advice[0]).toMatch(/^Some kernels are missing .* Repair the C compiler, name another one in CC/);
  });

  it('names the matrices that have no kernel, and what that costs', async () => {
    process.env.CC = '/nonexistent/cc';
    const path = join(folder, 'mixed.gguf');
    // 20 outputs of V: no multiple of 16.
    const shape = { layers: 2, heads: 2, headsKv: 1, headDim: 20, embedding: 64, feedForward: 64 } as const;
    const typeOfLayer = (layer: number) => (layer === 0 ? 'F32' : undefined);
    await writeTinyModel(path, { architecture: 'llama', type: 'BF16', ...shape, typeOfLayer });
    const kernels = await reportKernels(path);
    const none = kernels.filter(({ state }) => state === 'none');
    expect(none.map(({ name }) => name)).toEqual([
      expect.stringMatching(/^matmuls in F32 \(7 matrices, [\d.]+ [kK]i?B\)$/),
      expect.stringMatching(/^matmuls in BF16 \(\d matrices, [\d.]+ [kK]i?B\)$/),
    ]);
    expect(none.map(({ reason }) => /no kernel for ([\w ]+): /.exec(reason!)?.[1])).toEqual([
      'F32 weights',
      'these shapes',
    ]);
    expect(adviceFor(await reportMachine(), none)[0]).toMatch(
      /^Quantize the model to another type, .*: ggml computes matmuls in F32 \(7 .* and matmuls in BF16 \(/,
    );
  });

  it('refuses unknown flags and models that do not exist', async () => {
    expect((await runHere(['doctor', '--fast'])).code).toBe(2);
    expect((await runHere(['doctor', '--model', join(folder, 'none.gguf')])).code).toBe(1);
  });
});

describe('the advice', () => {
  const machine: MachineReport = {
    platform: 'linux-x64',
    node: 'v20',
    cpu: { model: 'x' },
    threads: { default: 8, hasTwoPerCore: false },
    memory: { totalBytes: 1, freeBytes: 1 },
    cache: { folder: '/c', isWritable: true },
  };
  const prebuilt: KernelReport = { name: 'sampling', state: 'prebuilt', level: 'avx2' };

  it('is empty if nothing can be better', () => {
    const lacking: KernelReport = { name: 'x', state: 'missing', reason: 'this CPU lacks AVX2' };
    expect(adviceFor(machine, [prebuilt, lacking])).toEqual([]);
  });

  it('names TMPDIR if the compiler has no temporary folder', () => {
    const reason = 'a temporary folder cannot be made: ENOENT: no such file or directory';
    expect(adviceFor(machine, [{ name: 'sampling', state: 'missing', reason }])).toEqual([
      expect.stringContaining('Set TMPDIR to a folder that can be written.'),
    ]);
  });

  it('is about the cache folder only if kernels are compiled', () => {
    const readOnly = { ...machine, cache: { folder: '/c', isWritable: false } };
    expect(adviceFor(readOnly, [prebuilt])).toEqual([]);
    expect(adviceFor(readOnly, [{ name: 'sampling', state: 'cached' }])).toEqual([
      expect.stringMatching(/^Set XDG_CACHE_HOME/),
    ]);
  });

  it('is about AMX only if the CPU has it and it is not used', () => {
    const withAmx = (amx: AmxOutcome): KernelReport => ({ ...prebuilt, amx });
    for (const amx of ['used', 'no form'] as const) expect(adviceFor(machine, [withAmx(amx)])).toEqual([]);
    expect(adviceFor(machine, [withAmx('not permitted')])).toEqual([expect.stringMatching(/^Permit AMX/)]);
    expect(adviceFor(machine, [withAmx('other bits')])).toEqual([expect.stringMatching(/^Report this output: AMX/)]);
  });

  it('names a number of threads for a container with a quota, and for cores with two threads', () => {
    const limited = { ...machine, threads: { ...machine.threads, quota: 2.5, hasTwoPerCore: true } };
    expect(adviceFor(limited, [prebuilt])).toEqual([expect.stringMatching(/^Start with --threads 2:/)]);
    const two = { ...machine, threads: { ...machine.threads, hasTwoPerCore: true } };
    expect(adviceFor(two, [prebuilt])).toEqual([expect.stringMatching(/^Compare --threads 4 with/)]);
  });

  it('is about huge pages only if the system never gives them', () => {
    const memory = { totalBytes: 1, freeBytes: 1 };
    expect(adviceFor({ ...machine, memory: { ...memory, hugePages: 'madvise' } }, [prebuilt])).toEqual([]);
    expect(adviceFor({ ...machine, memory: { ...memory, hugePages: 'never' } }, [prebuilt])).toHaveLength(1);
  });
});

it('quotaIn reads the limit of a container', () => {
  expect(quotaIn('150000 100000\n')).toBe(1.5);
  expect(quotaIn('max 100000\n')).toBeUndefined();
  expect(quotaIn('')).toBeUndefined();
});

it('the speed of memory is measured with several threads', async () => {
  expect(await measureMemorySpeed(2)).toBeGreaterThan(1e6);
});
