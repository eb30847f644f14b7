/**
 * Compiles programs of `test/forms` for several CPUs and runs them. Each program includes a kernel and prints the bits of its results.
 * Programs for ARM run in QEMU.
 */
import { execFile, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import type { NativeSource } from '../../src/native/compiler.ts';
import { tensorFields } from '../../src/native/tensor-fields.ts';
import { hasCompiler } from './has-compiler.ts';
import { keptCommand } from './quick-compiler.ts';

/** A CPU for which a kernel is compiled. */
export interface KernelForm {
  readonly name: string;
  readonly compiler: string;
  readonly cpuFlags: readonly string[];
  /** The command that runs a program, without its path. */
  readonly runner: readonly string[];
}

/** The header with elementary functions, as a kernel. */
export const elementarySource: NativeSource = {
  file: 'native/elementary.h',
  headers: ['native/vector.h'],
  definitions: tensorFields.definitions,
};

const run = promisify(execFile);

const starts = (command: string): boolean => spawnSync(command, ['--version']).status === 0;

/** The forms of kernels with fused multiply-adds. */
export const formNames = ['AVX2', 'AVX-512', 'NEON', 'NEON with i8mm'] as const;
const featuresOfArm: Readonly<Record<string, string>> = { NEON: 'dotprod', 'NEON with i8mm': 'dotprod+i8mm' };

/** The form, or the reason why this machine cannot compile or run it. */
export function kernelForm(name: (typeof formNames)[number]): KernelForm | string {
  const arm = featuresOfArm[name];
  if (arm !== undefined) {
    const [compiler, emulator] = ['aarch64-linux-gnu-gcc', 'qemu-aarch64'];
    if (!starts(compiler)) return `no cross compiler for ARM (${compiler})`;
    if (!starts(emulator)) return `no emulator for ARM (${emulator})`;
    return { name, compiler, cpuFlags: ['-static', `-march=armv8.2-a+${arm}`], runner: [emulator] };
  }
  const [feature, march] = name === 'AVX2' ? ['avx2', 'haswell'] : ['avx512vl', 'skylake-avx512'];
  const cpu = process.platform === 'linux' ? readFileSync('/proc/cpuinfo', 'utf8') : '';
  if (!hasCompiler) return 'no C compiler';
  if (!cpu.includes(` ${feature} `)) return `this CPU lacks ${name}`;
  return { name, compiler: 'cc', cpuFlags: [`-march=${march}`], runner: [] };
}

/** What the program prints: a line for each result, with the bits of each number. `source`: the kernel that the program includes. */
export async function outputOfForm(
  { name, compiler, cpuFlags, runner }: KernelForm,
  program: string,
  source: NativeSource,
  folder: string,
): Promise<readonly string[]> {
  const kernel = basename(source.file);
  const output = join(folder, `${program} ${kernel} ${name}`);
  const folders = new Set([source.file, ...source.headers].map((file) => `-Isrc/${dirname(file)}`));
  const definitions = Object.entries(source.definitions).map(([key, value]) => `-D${key}=${value}`);
  const flags = [
    '-O1',
    '-ffp-contract=off',
    '-std=gnu11',
    ...cpuFlags,
    ...folders,
    ...definitions,
    `-DKERNEL="${kernel}"`,
  ];
  const [keep, ...keepBefore] = keptCommand(compiler);
  await run(keep, [...keepBefore, ...flags, `test/forms/${program}-form.c`, '-o', output]);
  const [command = output, ...before] = runner;
  const { stdout } = await run(command, command === output ? [] : [...before, output], { maxBuffer: 1 << 28 });
  return stdout.trim().split('\n');
}
