import { writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import type { CompileOptions } from '../../src/native/compiler.ts';
import { isLongForm } from './long-form.ts';

const keptCompiler = resolve('test/support/kept-cc.sh');

/**
 * Writes a C compiler that optimizes less and copies what it has compiled before, and returns its path. For tests of caches, processes and
 * reports that do not test the compiler. Kernels compute the same bits, because no flag allows the compiler to reorder floating-point
 * operations. `before`: arguments before those of the call.
 */
export function quickCompiler(path: string, before = ''): string {
  writeFileSync(path, `#!/bin/sh\nexec sh '${keptCompiler}' cc ${before} "$@"\n`, { mode: 0o755 });
  return path;
}

/** The command and its first arguments of `compiler` as `quickCompiler`, for programs of tests. */
export const keptCommand = (compiler: string): readonly [string, ...string[]] => ['sh', keptCompiler, compiler];

/**
 * Such a compiler at a fixed path, so that the cache keeps its libraries, for shapes and forms of kernels that no other test needs. The
 * long form compiles all kernels as users do.
 */
export const quickInShortForm: CompileOptions = isLongForm ? {} : { compiler: 'sh test/support/kept-cc.sh cc' };

/** The form for this CPU is compiled as users do: most tests need it. */
export const compileOptionsOf = (cpuFlags: string | undefined): CompileOptions =>
  cpuFlags === undefined ? {} : { ...quickInShortForm, cpuFlags };
