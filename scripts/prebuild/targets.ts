import type { CpuLevelName } from '../../src/native/cpu-level.ts';

/** The platforms for which kernels are built: Node's names, and what Zig calls them. */
export interface Target {
  /** `process.platform` and `process.arch`, as `platformName` joins them. */
  readonly name: string;
  readonly arch: 'x64' | 'arm64';
  readonly zigTarget: string;
  /** For kernels that need the system's C library; only Linux has such kernels. */
  readonly glibcTarget?: string;
  /** The CPUs for Zig. Absent: those of `cpuLevels`. */
  readonly zigCpu?: Partial<Record<CpuLevelName, string>>;
  readonly extension: 'so' | 'dylib' | 'dll';
}

/**
 * Linux's libraries have no C library of their own: the process has `memcpy` and the functions of libm. So one library
 * serves glibc and musl. Zig needs a target with headers, and musl's declare the same functions.
 */
export const targets: readonly Target[] = [
  {
    name: 'linux-x64',
    arch: 'x64',
    zigTarget: 'x86_64-linux-musl',
    glibcTarget: 'x86_64-linux-gnu.2.28',
    extension: 'so',
  },
  {
    name: 'linux-arm64',
    arch: 'arm64',
    zigTarget: 'aarch64-linux-musl',
    glibcTarget: 'aarch64-linux-gnu.2.28',
    extension: 'so',
  },
  {
    name: 'darwin-arm64',
    arch: 'arm64',
    zigTarget: 'aarch64-macos.12.0',
    // The first of them. For a lesser CPU, clang refuses its own functions for vectors, which are those of the M1 there.
    zigCpu: { neon: 'apple_m1', 'neon-dotprod': 'apple_m1', 'neon-i8mm': 'apple_m1+i8mm' },
    extension: 'dylib',
  },
  { name: 'darwin-x64', arch: 'x64', zigTarget: 'x86_64-macos.12.0', extension: 'dylib' },
  { name: 'win32-x64', arch: 'x64', zigTarget: 'x86_64-windows-gnu', extension: 'dll' },
];
