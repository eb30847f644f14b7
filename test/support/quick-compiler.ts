import { writeFileSync } from 'node:fs';
import type { CompileOptions } from '../../src/native/compiler.ts';
import { isLongForm } from './long-form.ts';

/**
 * Writes a C compiler that optimizes less, and returns its path. Kernels compile in a third of the time and compute the same bits, because
 * no flag allows the compiler to reorder floating-point operations. `before`: arguments before those of the call.
 */
export function quickCompiler(path: string, before = ''): string {
  writeFileSync(path, `#!/bin/sh\nexec cc ${before} "$@" -O1\n`, { mode: 0o755 });
  return path;
}

/**
 * Such a compiler at a fixed path, so that the cache keeps its libraries, for shapes and forms of kernels that no other test needs. The
 * long form compiles all kernels as users do.
 */
export const quickInShortForm: CompileOptions = isLongForm ? {} : { compiler: 'sh test/support/quick-cc.sh' };

/** The form for this CPU is compiled as users do: most tests need it. */
export const compileOptionsOf = (cpuFlags: string | undefined): CompileOptions =>
  cpuFlags === undefined ? {} : { ...quickInShortForm, cpuFlags };
