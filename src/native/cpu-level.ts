/**
 * Levels of instructions for which kernels are built before they are shipped. Features have the names of
 * `/proc/cpuinfo`. A kernel has another form at some levels, with other bits, so a CPU has exactly one level: that of
 * the form that a compiler on the machine would choose.
 */
export interface CpuLevel {
  readonly arch: 'x64' | 'arm64';
  /** The CPU has all of them, and no feature of `without`. */
  readonly features: readonly string[];
  readonly without: readonly string[];
  /** The value of Zig's `-mcpu`. */
  readonly zigCpu: string;
  /** Levels whose libraries a CPU of this level takes if this level has none, best first. */
  readonly below: readonly CpuLevelName[];
}

export type CpuLevelName =
  | 'avx2'
  | 'avx-vnni'
  | 'avx512'
  | 'avx512-vnni'
  | 'avx512-vpclmulqdq'
  | 'neon'
  | 'neon-dotprod'
  | 'neon-i8mm'
  | 'x86-64';

const avx2 = ['avx2', 'fma', 'f16c', 'abm', 'bmi1', 'bmi2', 'movbe', 'pclmulqdq'];
const avx512 = [...avx2, 'avx512f', 'avx512bw', 'avx512cd', 'avx512dq', 'avx512vl'];

export const cpuLevels: Readonly<Record<CpuLevelName, CpuLevel>> = {
  'avx512-vpclmulqdq': {
    arch: 'x64',
    features: [...avx512, 'avx512_vnni', 'vpclmulqdq'],
    without: [],
    zigCpu: 'x86_64_v4+avx512vnni+pclmul+vpclmulqdq',
    below: ['avx512-vnni', 'avx512', 'avx2'],
  },
  'avx512-vnni': {
    arch: 'x64',
    features: [...avx512, 'avx512_vnni'],
    without: ['vpclmulqdq'],
    zigCpu: 'x86_64_v4+avx512vnni+pclmul',
    below: ['avx512', 'avx2'],
  },
  avx512: {
    arch: 'x64',
    features: avx512,
    without: ['avx512_vnni'],
    zigCpu: 'x86_64_v4+pclmul',
    below: ['avx2'],
  },
  'avx-vnni': {
    arch: 'x64',
    features: [...avx2, 'avx_vnni'],
    without: ['avx512f'],
    zigCpu: 'x86_64_v3+avxvnni+pclmul',
    below: ['avx2'],
  },
  avx2: { arch: 'x64', features: avx2, without: ['avx_vnni', 'avx512f'], zigCpu: 'x86_64_v3+pclmul', below: [] },
  // No kernel is for it but the one that finds the level.
  'x86-64': { arch: 'x64', features: [], without: ['avx2', 'avx512f'], zigCpu: 'x86_64', below: [] },
  'neon-i8mm': {
    arch: 'arm64',
    features: ['asimd', 'asimddp', 'i8mm'],
    without: [],
    zigCpu: 'generic+dotprod+i8mm',
    below: ['neon-dotprod', 'neon'],
  },
  'neon-dotprod': {
    arch: 'arm64',
    features: ['asimd', 'asimddp'],
    without: ['i8mm'],
    zigCpu: 'generic+dotprod',
    below: ['neon'],
  },
  neon: { arch: 'arm64', features: ['asimd'], without: ['asimddp'], zigCpu: 'generic', below: [] },
};

/** The level of a CPU with these features; undefined if kernels must be compiled for the CPU. */
export function cpuLevelOf(arch: string, features: ReadonlySet<string>): CpuLevelName | undefined {
  const fits = ({ arch: of, features: needed, without }: CpuLevel): boolean =>
    of === arch && needed.every((name) => features.has(name)) && !without.some((name) => features.has(name));
  return (Object.keys(cpuLevels) as CpuLevelName[]).find((name) => fits(cpuLevels[name]));
}
