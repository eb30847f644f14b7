import { basename } from 'node:path';
import { byName } from '../../base/by-name.ts';
import { formatBytes } from '../../base/bytes.ts';
import { demoModelPath } from '../../base/package-files.ts';
import { loadNative, type NativeApi } from '../../ggml/ffi.ts';
import { type GgufFile, readGguf } from '../../ggml/gguf.ts';
import { headShapes } from '../../ggml/layer-shapes.ts';
import { readModelConfig } from '../../ggml/model-config.ts';
import { F16, rowBytes } from '../../ggml/types.ts';
import { barrierSource } from '../../native/barrier.ts';
import { CompileFailure, type NativeSource, openNative } from '../../native/compiler.ts';
import type { CpuLevelName } from '../../native/cpu-level.ts';
import { crc32Source } from '../../native/crc32.ts';
import { findPrebuilt } from '../../native/prebuilt.ts';
import { attentionSource } from '../../runner/attention/attention-kernel.ts';
import { type AmxOutcome, cpuHasAmx, formOf, useAmx } from '../../runner/matmul/tile-forms.ts';
import { hasTileKernel, tileSources } from '../../runner/matmul/tile-kernels.ts';
import { weightedSumSource } from '../../runner/matmul/weighted-sum.ts';
import { convolutionOf, deltaNetOf, scanOf } from '../../runner/mixer/mixer-kernels.ts';
import { mixerShapes } from '../../runner/mixer/mixer-shapes.ts';
import { rotateHeadsSource } from '../../runner/operations/head-rotation.ts';
import { rowOperationsSource } from '../../runner/operations/row-operations.ts';
import { otherMatrices } from '../../runner/own-matmuls.ts';
import { logitsSource } from '../../runner/sampling/logits-passes.ts';

/** A kernel of a model on this machine. */
export interface KernelReport {
  readonly name: string;
  /**
   * `prebuilt`: from the package; `cached`: compiled here before; `compiled`: compiled by this command; `missing`: ggml computes; `none`: ggml
   * computes, because Kvasir has no kernel for these matrices.
   */
  readonly state: 'prebuilt' | 'cached' | 'compiled' | 'missing' | 'none';
  /** Of a prebuilt kernel: for which CPUs it is. */
  readonly level?: CpuLevelName;
  /** Of a matmul's kernel: the instructions that multiply prompts. */
  readonly form?: string;
  /** Of a matmul's kernel: whether it uses AMX. */
  readonly amx?: AmxOutcome;
  /** Why it is missing, or why it is not the package's. */
  readonly reason?: string;
}

interface Kernel {
  readonly name: string;
  readonly source: NativeSource;
}

/** A function of each library, which shows that the library can be loaded. All others are kernels of matmuls. */
const functions: Readonly<Record<string, string>> = byName({
  'paged-attention.c': 'kvasir_attend_pointer',
  'logits.c': 'kvasir_best_of_shares_pointer',
  'weighted-sum.c': 'kvasir_weighted_sum_pointer',
  'barrier.c': 'kvasir_watch',
  'crc32.c': 'kvasir_crc32',
  'convolution.c': 'kvasir_convolve_pointer',
  'row-operations.c': 'kvasir_silu_pointer',
  'rotate-heads.c': 'kvasir_rotate_heads_pointer',
  'scan.c': 'kvasir_scan_pointer',
  'delta-net.c': 'kvasir_delta_net_pointer',
});

/** Loads the kernels of a model, and compiles those that are neither in the package nor in the cache. Default: the bundled model. */
export async function reportKernels(model: string | undefined): Promise<KernelReport[]> {
  const file = await readGguf(model ?? demoModelPath());
  return [...(await Promise.all(kernelsOf(file, model !== undefined).map(report))), ...withoutKernel(file)];
}

/** A row for each type of the matrices for which there is no kernel. */
function withoutKernel(file: GgufFile): KernelReport[] {
  const all = otherMatrices(file.tensors.values(), hasTileKernel);
  return [...new Set(all.map(({ type }) => type))].map((type) => {
    const matrices = all.filter((matrix) => matrix.type === type);
    const bytes = matrices.reduce((sum, { ne }) => sum + rowBytes(type, ne[0]) * ne[1] * ne[2], 0);
    const size = `${matrices.length} ${matrices.length === 1 ? 'matrix' : 'matrices'}, ${formatBytes(bytes)}`;
    const isOfShape = tileSources().some(([name]) => name === type.name);
    const what = isOfShape ? 'these shapes' : `${type.name} weights`;
    return {
      name: `matmuls in ${type.name} (${size})`,
      state: 'none',
      reason: `Kvasir has no kernel for ${what}: ggml multiplies, prompts at a half to a seventh of the speed, and CPUs of other kinds cannot use this KV`,
    };
  });
}

function kernelsOf(file: GgufFile, isOneModel: boolean): Kernel[] {
  const config = readModelConfig(file);
  const types = new Set([...file.tensors.values()].map(({ type }) => type.name));
  const { headCount, latent, experts } = config;
  const shapes = headShapes(config).map(({ headDim, headCountKv }) => ({
    ...{ headDim, group: headCount / headCountKv },
    ...{ kvType: F16, valueInKey: latent?.rank },
  }));
  const { convolution, scan, deltaNet } = mixerShapes(config);
  const tiles = tileSources().filter(([type]) => !isOneModel || types.has(type));
  return [
    ...shapes.map((shape) => ({
      name: `attention (heads of ${shape.headDim}, ${shape.group} per KV head)`,
      source: attentionSource(shape),
    })),
    ...tiles.map(([type, source]) => ({ name: `matmuls in ${type}`, source })),
    ...(experts === undefined ? [] : [{ name: 'sums of experts', source: weightedSumSource }]),
    ...(convolution === undefined ? [] : [{ name: 'convolutions', source: convolutionOf(convolution.taps) }]),
    ...(scan === undefined ? [] : [{ name: 'scans', source: scanOf(scan.headDim, scan.stateSize) }]),
    ...(deltaNet === undefined ? [] : [{ name: 'delta nets', source: deltaNetOf(deltaNet.headDim) }]),
    { name: 'activations and softmax', source: rowOperationsSource },
    ...(latent === undefined && config.rope.mode !== 'none' ? [{ name: 'RoPE', source: rotateHeadsSource }] : []),
    { name: 'sampling', source: logitsSource },
    { name: 'checksums of stored KV', source: crc32Source },
    ...(process.platform === 'linux' ? [{ name: 'barrier of compute threads', source: barrierSource }] : []),
  ];
}

async function report({ name, source }: Kernel): Promise<KernelReport> {
  try {
    const hasAmx = await cpuHasAmx();
    const { level, wasCached, matmul } = await openNative(source, {}, (compiled) => {
      const native = loadNative();
      const name = functions[basename(source.file)];
      if (name === undefined) return { ...compiled, matmul: matmulIn(native, compiled.path, hasAmx) };
      native.functionIn(compiled.path, name, 'i64');
      return { ...compiled, matmul: {} };
    });
    if (level !== undefined) return { name, state: 'prebuilt', level, ...matmul };
    return { name, state: wasCached ? 'cached' : 'compiled', ...matmul, reason: await whyNotPrebuilt(source) };
  } catch (error) {
    if (!(error instanceof CompileFailure)) throw error;
    const lacking = /this CPU lacks [\w ,-]+/.exec(error.message)?.[0];
    return { name, state: 'missing', reason: lacking ?? `${error.message}; ${await whyNotPrebuilt(source)}` };
  }
}

/** AMX is chosen first, because it decides the form. */
function matmulIn(native: NativeApi, path: string, hasAmx: boolean): Pick<KernelReport, 'form' | 'amx'> {
  const amx = useAmx(native, path, hasAmx);
  return { amx, form: formOf(native, path) };
}

async function whyNotPrebuilt(source: NativeSource): Promise<string> {
  if (process.env.CC) return 'CC names a compiler';
  if (process.env.KVASIR_CPU_FLAGS) return 'KVASIR_CPU_FLAGS names the instructions';
  const search = await findPrebuilt(source);
  return search.found === undefined ? search.reason : `${search.found.path} cannot be loaded`;
}
