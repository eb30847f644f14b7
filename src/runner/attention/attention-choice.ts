import { defineError } from '../../base/errors.ts';
import type { ComputeDevice } from '../../ggml/device.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import { F16 } from '../../ggml/types.ts';
import { CompileFailure, type CompileOptions, doWithout } from '../../native/compiler.ts';
import type { KvMemory, KvType } from '../kv-memory.ts';
import type { Attention, AttentionLayer } from './attention.ts';
import { GatherAttention } from './attention-gather.ts';
import { type AttentionKernel, type AttentionShape, loadAttentionKernel } from './attention-kernel.ts';
import { NativeAttention } from './attention-native.ts';
import { selfTest } from './self-test.ts';

/** `auto`: the native kernel if it can be loaded, else ggml over gathered blocks. */
export type AttentionOption = 'auto' | 'native' | 'gather';

export const nativeAttentionUnavailable = defineError(
  'KVASIR_NATIVE_ATTENTION_UNAVAILABLE',
  '--attention native needs the native attention kernel, which cannot be used: {reason}. Install a C compiler (cc, or name one in CC), or use --attention auto.',
  500,
);

export const kvTypeUnsupported = defineError(
  'KVASIR_KV_TYPE_UNSUPPORTED',
  "KV of type {type} needs a head size that is a multiple of {multiple}, but this model's head size is {headDim}. Use --kv-cache-dtype f16.",
  400,
);

/** Made before the pool exists, because the choice decides the bits of KV. */
export interface AttentionChoice {
  readonly kind: 'native' | 'gather';
  /** All that decides the bits of KV: the kind, and the digest of the kernel's source. */
  readonly identity: string;
  /** For people: the kind, and why it was chosen. */
  readonly description: string;
  create(memory: KvMemory, layers: readonly AttentionLayer[]): Attention;
}

export interface AttentionOptions extends CompileOptions {
  readonly option: AttentionOption;
  readonly blockSize: number;
  /** Of K and V in the pool; default F16. */
  readonly kvType?: KvType;
}

/**
 * Compiles, loads and tests the native kernel, unless `option` is `gather`. Throws `nativeAttentionUnavailable` for
 * `native`.
 */
export async function chooseAttention(
  device: ComputeDevice,
  config: ModelConfig,
  { option, blockSize, kvType = F16, ...compile }: AttentionOptions,
): Promise<AttentionChoice> {
  const { headDim, latent } = config;
  const valueLength = latent?.rank ?? headDim;
  if (headDim % kvType.blockSize !== 0 || valueLength % kvType.blockSize !== 0) {
    throw kvTypeUnsupported({ type: kvType.name.toLowerCase(), headDim, multiple: kvType.blockSize });
  }
  if (option === 'gather') return gather(device, config, '--attention gather');
  if (config.isEncoder === true && config.slidingWindow !== undefined)
    return gather(device, config, 'the windows of this model are before and after a token');
  try {
    const kernel = await loadTested(device, config, { blockSize, kvType }, compile);
    return {
      kind: 'native',
      identity: `native ${kernel.sourceDigest}`,
      description: `native kernel (head size ${config.headDim}, ${kernel.shape.group} query heads per KV head, block size ${blockSize})`,
      create: (memory, layers) => new NativeAttention(device, memory, kernel, layers),
    };
  } catch (error) {
    if (!(error instanceof CompileFailure)) throw error;
    if (option === 'native') throw nativeAttentionUnavailable({ reason: error.message }, error);
    const instead =
      'ggml computes attention instead, which is slower, and the text may differ from engines that have the kernel.';
    doWithout(error, 'The native attention kernel', instead, compile);
    return gather(device, config, `no native kernel: ${error.message}`);
  }
}

async function loadTested(
  device: ComputeDevice,
  config: ModelConfig,
  { blockSize, kvType }: Pick<AttentionShape, 'blockSize' | 'kvType'>,
  compile: CompileOptions,
): Promise<AttentionKernel> {
  if (device.kind !== 'cpu') throw new CompileFailure('the pool is on a GPU');
  const { headDim, headCount, headCountKv, latent } = config;
  const shape = { headDim, group: headCount / headCountKv, blockSize, kvType, valueInKey: latent?.rank };
  const kernel = await loadAttentionKernel(device.native, shape, compile);
  const mistake = mistakeOf(device, kernel, headCountKv);
  if (mistake !== undefined) throw new CompileFailure(`on this machine it ${mistake}`, { isAvoidable: true });
  return kernel;
}

/** Results of `selfTest` in this process. A loaded library cannot change (`sealedPath`). */
const tested = new Map<string, ReturnType<typeof selfTest>>();

function mistakeOf(device: ComputeDevice, kernel: AttentionKernel, headCountKv: number): ReturnType<typeof selfTest> {
  const { kvType, ...shape } = kernel.shape;
  const key = JSON.stringify([kernel.libraryDigest, device.threads, headCountKv, kvType.name, shape]);
  if (!tested.has(key)) tested.set(key, selfTest(device, kernel, headCountKv));
  return tested.get(key);
}

/** For tests: kernels are tested again. */
export const forgetSelfTests = (): void => tested.clear();

/** llama.cpp pads KV to this multiple, so ggml's GPU kernels are tested and tuned only for it. */
const gpuKvMultiple = 256;

const gather = (device: ComputeDevice, config: ModelConfig, why: string): AttentionChoice => ({
  kind: 'gather',
  identity: 'gather',
  description: `ggml over gathered blocks (${why})`,
  create: (memory, layers) =>
    new GatherAttention(memory, config.headCount, device.kind === 'cpu' ? 1 : gpuKvMultiple, layers),
});
