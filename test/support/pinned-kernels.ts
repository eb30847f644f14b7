/**
 * ggml kernels whose arithmetic is the same on every machine.
 *
 * ggml picks the build of its CPU kernels that fits the CPU, and each build sums in another order. libllama on two builds
 * gives logits that differ by up to 0.12 standard deviations of a row, and on CPUs with AMX libllama also multiplies in
 * buffers that we do not use. With one and the same build for both sides, our graph on ggml's kernels and libllama differ by
 * at most 0.0001. So a strict comparison loads one named build, and both sides compute with it.
 */
import { existsSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { loadBackends } from '../../src/ggml/device.ts';
import { loadNative } from '../../src/ggml/ffi.ts';

/** Builds to load; ggml takes the best of them that the CPU can run. The last one of a platform runs on every CPU of it. */
const builds: Readonly<Record<string, readonly string[]>> = {
  'linux-x64': ['haswell', 'x64'],
  'linux-arm64': ['armv8.0_1'],
};

/**
 * Loads the named build in this process, for libllama and for our runner. Call this before any device is opened.
 * `KVASIR_TEST_GGML_BUILD` names another build. On platforms that are not in the table, ggml's own choice stays: both
 * sides still share one build, and no CPU there is known to give libllama other kernels than ours.
 */
export function pinKernels(): void {
  const native = loadNative();
  const installed = dirname(native.libraries.base);
  const asked = process.env.KVASIR_TEST_GGML_BUILD;
  const named = asked === undefined ? (builds[`${process.platform}-${process.arch}`] ?? []) : [asked];
  const files = named.map((name) => join(installed, `libggml-cpu-${name}.so`)).filter((file) => existsSync(file));
  if (files.length === 0) {
    if (asked !== undefined) throw new Error(`this platform's package has no ggml build ${asked}`);
    loadBackends(native);
    return;
  }
  const folder = mkdtempSync(join(tmpdir(), 'kvasir-kernels-'));
  for (const file of files) symlinkSync(file, join(folder, basename(file)));
  loadBackends(native, [folder]);
  rmSync(folder, { recursive: true });
}
