import { backendFeatures } from '../ggml/backend-features.ts';
import type { ComputeDevice } from '../ggml/device.ts';
import type { NativeApi } from '../ggml/ffi.ts';
import { cpuFeatures } from '../native/cpu-features.ts';

export interface NumericsSettings {
  readonly isExact: boolean;
  /** Whether ggml may rearrange weights, which has kernels of its own. */
  readonly repack: boolean;
  /** `AttentionChoice.identity` and `TileProducts.identity`: which of our kernels compute, and from what they were compiled. */
  readonly attention: string;
  readonly tiles: string;
}

/**
 * All that decides the bits of KV beside the model's file, in words. Two engines with equal words compute equal bits.
 *
 * Exact numerics: ggml's version, the instructions of this CPU, for which of them ggml's kernels were built, the C library
 * (sines and powers of rope come from it), and our kernels. Not part of it: threads, sizes of batches, and what decides speed alone:
 * the kernel for single rows has the bits of ggml's by a test at each start, and sampling is behind KV.
 * Fast numerics promise no bits: all machines with one version of ggml share.
 */
export async function numericsIdentity(device: ComputeDevice, settings: NumericsSettings): Promise<string> {
  const { native } = device;
  const ggml = `ggml ${native.ggml_version()} ${native.ggml_commit()}`;
  if (!settings.isExact) return `fast, ${ggml}`;
  const parts = [
    'exact',
    ggml,
    device.kind === 'cpu' ? 'CPU' : device.description,
    await cpuFeatures(),
    backendFeatures(device),
    libraryOfMathematics(native),
    settings.repack ? 'repacked' : 'plain',
    settings.attention,
    settings.tiles,
  ];
  return parts.join(', ');
}

/** The C library that ggml calls, as exactly as its version is known. */
function libraryOfMathematics(native: NativeApi): string {
  if (process.platform !== 'linux') return process.platform;
  try {
    return `glibc ${native.functionIn('libc.so.6', 'gnu_get_libc_version', 'str')()}`;
  } catch {
    return 'another libc';
  }
}
