/** Processes that stand for machines with other CPUs: each has a named build of ggml's CPU kernels, and Kvasir's kernels for it. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { type ArmNode, armCompiler } from './arm64-machine.ts';
import { buildOnce } from './build-once.ts';
import { quickInShortForm } from './quick-compiler.ts';

const run = promisify(execFile);

/** What one build computed. */
export interface BuildResult {
  /** `operationBits` */
  readonly operations: string;
  /** By model: tokens and logprobs of the answers, as JSON. */
  readonly answers: Readonly<Record<string, string>>;
  /** By model: tokens that were loaded from the store. */
  readonly loaded: Readonly<Record<string, number>>;
}

/** A machine that a process stands for. */
export interface Machine {
  readonly build: string;
  /** Instructions for which Kvasir's kernels are compiled; undefined: those of this CPU. */
  readonly cpuFlags?: string;
  /** A folder of prebuilt kernels for it. It has no compiler then. */
  readonly prebuilt?: string;
  /** Of a machine with an ARM CPU. */
  readonly arm?: ArmNode;
}

const quickCompiler = quickInShortForm.compiler === undefined ? {} : { CC: quickInShortForm.compiler };
const preload = pathToFileURL('test/support/ggml-build.js').href;
const program = readFileSync('test/support/engine-of-build.js', 'utf8');

/** With it, a process of Node that runs a built file stands for the machine. */
export function environmentOf({ build, cpuFlags, prebuilt, arm }: Machine): Record<string, string> {
  const compiler = arm === undefined ? quickCompiler : { CC: armCompiler };
  return {
    ...arm?.environment,
    NODE_OPTIONS: `${process.env.NODE_OPTIONS ?? ''} --import ${preload}`,
    KVASIR_TEST_GGML_BUILD: build,
    KVASIR_DIST: arm?.dist ?? resolve(join('dist', 'src')),
    ...(cpuFlags === undefined ? {} : { KVASIR_CPU_FLAGS: cpuFlags, ...compiler }),
    ...(prebuilt === undefined ? {} : { KVASIR_PREBUILT: prebuilt, CC: '', PATH: '/nonexistent' }),
  };
}

/** `models`: paths. Their KV is loaded from the folder `store` and stored there. */
export async function resultOf(machine: Machine, models: readonly string[], store: string): Promise<BuildResult> {
  await buildOnce(process.cwd());
  const [command, ...before] = machine.arm?.command ?? [process.execPath];
  const { stdout } = await run(command, [...before, '--input-type=module', '--eval', program, store, ...models], {
    env: { ...process.env, ...environmentOf(machine) },
    maxBuffer: 1 << 26,
  });
  return JSON.parse(stdout) as BuildResult;
}

/** Instructions that a build needs for the operations that are left to ggml, as /proc/cpuinfo names them. */
const avx2 = ['avx2', 'fma', 'f16c', 'bmi2'];
const avx512 = [...avx2, 'avx512f', 'avx512cd', 'avx512vl', 'avx512dq', 'avx512bw'];
const icelake = [...avx512, 'avx512vbmi', 'avx512_vnni'];
const needs: Readonly<Record<string, readonly string[]>> = {
  // Without FMA.
  sandybridge: ['avx'],
  haswell: avx2,
  // AVX-VNNI is for matmuls only, as are FP16 and AMX of Sapphire Rapids.
  alderlake: avx2,
  skylakex: avx512,
  cannonlake: [...avx512, 'avx512vbmi'],
  cascadelake: [...avx512, 'avx512_vnni'],
  icelake,
  cooperlake: [...avx512, 'avx512_vnni', 'avx512_bf16'],
  zen4: [...icelake, 'avx512_bf16'],
  sapphirerapids: [...icelake, 'avx512_bf16'],
};

/** What this machine lacks to compute with a build; undefined: nothing. */
export function lacking(build: string): string | undefined {
  if (process.platform !== 'linux' || process.arch !== 'x64') return 'no Linux on x64';
  const cpu = readFileSync('/proc/cpuinfo', 'utf8');
  const missing = needs[build]!.filter((feature) => !cpu.includes(` ${feature} `));
  return missing.length === 0 ? undefined : `this CPU lacks ${missing.join(', ')}`;
}
