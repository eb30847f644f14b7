import { backendFeatures } from '../ggml/backend-features.ts';
import type { ComputeDevice } from '../ggml/device.ts';
import type { NativeApi } from '../ggml/ffi.ts';
import { driverOf } from '../ggml/gpu-driver.ts';
import type { ModelConfig } from '../ggml/model-config.ts';
import type { RopeConfig } from '../ggml/rope-config.ts';
import { cpuFeatures } from '../native/cpu-features.ts';
import { operationBits } from './operation-bits.ts';
import { ropesOf } from './operations/head-rotation.ts';
import { ropeDigest } from './operations/rope-constants.ts';
import { temperatureDigest } from './temperature.ts';

export interface NumericsSettings extends ModelConstants {
  readonly isExact: boolean;
  /** Whether ggml may repack weights, for which it has other kernels. */
  readonly repack: boolean;
  /** `AttentionChoice.identity` and `TiledMatmul.identity`: Kvasir's kernels, with the digests of their sources. */
  readonly attention: string;
  readonly tiles: string;
  /** Of `RowOperations` and of `HeadRotation`; empty without. */
  readonly operations: string;
  readonly rotation: string;
  /** `MixerChoice.identity`, if the model has states. */
  readonly mixers?: string;
  /**
   * Whether only operations are left to ggml that `operationBits` computes (`hasOnlyOwnMatmuls`), and the kernels are
   * compiled for a CPU that fuses multiply-adds.
   */
  readonly isSameOnAllCpus: boolean;
  /** Whether ggml chooses experts. */
  readonly hasExperts: boolean;
}

/** Numbers of a model that powers and logarithms decide. */
interface ModelConstants {
  readonly ropes: readonly RopeConfig[];
  /** The factor of attention's scores. */
  readonly attentionScale: number;
  /** `temperatureDigest`, if the model has a temperature. */
  readonly temperature?: string;
}

export function modelConstants(config: ModelConfig): ModelConstants {
  const { temperature, contextLength, attentionScale } = config;
  return {
    ropes: ropesOf(config),
    attentionScale,
    ...(temperature === undefined ? {} : { temperature: temperatureDigest(temperature, contextLength) }),
  };
}

/**
 * All that decides the bits of KV, besides the model's file. Two engines with equal texts compute equal bits.
 *
 * Exact numerics: ggml's version, Kvasir's kernels, the constants of RoPE, and the bits of the operations that are left to ggml. These
 * call no function of the C library, so neither its version nor the system counts. If ggml also computes matmuls, sines or exponentials: the
 * instructions of this CPU, those for which ggml's kernels were built, and the C library. Threads, sizes of batches and the kernel for single
 * rows do not change bits, and sampling does not change KV. A test at each start compares the kernel for single rows
 * with ggml's. Fast numerics promise no bits, so all machines with one version of ggml share KV.
 *
 * On a GPU, also the backend, the GPU's model, its driver and its version. Operations that the GPU lacks are computed by ggml on the CPU.
 */
export async function numericsIdentity(device: ComputeDevice, settings: NumericsSettings): Promise<string> {
  const { native } = device;
  const ggml = `ggml ${native.ggml_version()} ${native.ggml_commit()}`;
  const gpu = device.kind === 'cpu' ? '' : `, ${device.backendName} ${device.modelName}, ${await driverOf(device)}`;
  if (!settings.isExact) return `fast, ${ggml}${gpu}`;
  const parts = [
    'exact',
    ggml,
    `${device.kind === 'cpu' ? 'CPU' : 'GPU'}${gpu}`,
    ...(settings.isSameOnAllCpus
      ? [`operations ${operationBits(device, settings.hasExperts)}`]
      : [await cpuFeatures(), backendFeatures(device), libraryOfMathematics(native)]),
    `RoPE ${ropeDigest(settings.ropes)}`,
    `scale ${Math.fround(settings.attentionScale)}`,
    ...(settings.temperature === undefined ? [] : [`temperature ${settings.temperature}`]),
    settings.repack ? 'repacked' : 'plain',
    settings.attention,
    settings.tiles,
    settings.operations,
    settings.rotation,
    ...(settings.mixers === undefined ? [] : [settings.mixers]),
  ];
  return parts.join(', ');
}

/** The C library that ggml calls, with its version if it is known. */
function libraryOfMathematics(native: NativeApi): string {
  if (process.platform !== 'linux') return process.platform;
  try {
    return `glibc ${native.functionIn('libc.so.6', 'gnu_get_libc_version', 'str')()}`;
  } catch {
    return 'another libc';
  }
}
