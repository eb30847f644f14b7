/**
 * ggml kernels whose arithmetic is the same on every machine.
 *
 * ggml picks the build of its CPU kernels that fits the CPU, and each build sums in another order. The logits of libllama on two builds
 * differ by up to 0.12 standard deviations of a row. On CPUs with AMX, libllama also multiplies in buffers that we do not use. With the
 * same build for both sides, our graph on ggml's kernels and libllama differ by at most 0.0001. So a strict comparison loads one
 * named build, and both sides compute with it.
 */
import { existsSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { loadBackends } from '../../src/ggml/device.ts';
import { loadNative } from '../../src/ggml/ffi.ts';

/** Builds to load; ggml takes the best build that the CPU can run. The last build of a platform runs on all of its CPUs. */
const builds: Readonly<Record<string, readonly string[]>> = {
  'linux-x64': ['haswell', 'x64'],
  'linux-arm64': ['armv8.0_1'],
};

/**
 * Loads the named build in this process, for libllama and for our runner. Call this before any device is opened.
 * `KVASIR_TEST_GGML_BUILD` names another build. On platforms that are not in the table, ggml chooses the build. Both
 * sides still share one build, and on no known CPU there does libllama use other kernels than we do.
 */
export function pinKernels(): void {
  const native = loadNative();
  const installed = dirname(native.libraries.base);
  const requested = process.env.KVASIR_TEST_GGML_BUILD;
  const named = requested === undefined ? (builds[`${process.platform}-${process.arch}`] ?? []) : [requested];
  const files = named.map((name) => join(installed, `libggml-cpu-${name}.so`)).filter((file) => existsSync(file));
  if (files.length === 0) {
    if (requested !== undefined) throw new Error(`this platform's package has no ggml build ${requested}`);
    loadBackends(native);
    return;
  }
  const folder = mkdtempSync(join(tmpdir(), 'kvasir-kernels-'));
  for (const file of files) symlinkSync(file, join(folder, basename(file)));
  loadBackends(native, [folder]);
  rmSync(folder, { recursive: true });
}
