import { defineError } from '../../base/errors.ts';
import type { ComputeDevice } from '../../ggml/device.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import { F16 } from '../../ggml/types.ts';
import { CompileFailure, type CompileOptions, doWithout } from '../../native/compiler.ts';
import type { KvMemory, KvType } from '../kv-memory.ts';
import type { Attention } from './attention.ts';
import { GatherAttention } from './attention-gather.ts';
import { type AttentionKernel, loadAttentionKernel } from './attention-kernel.ts';
import { NativeAttention } from './attention-native.ts';
import { selfTest } from './self-test.ts';

/** `auto`: the native kernel where it can be had, else ggml over gathered blocks. */
export type AttentionOption = 'auto' | 'native' | 'gather';

export const nativeAttentionUnavailable = defineError(
  'KVASIR_NATIVE_ATTENTION_UNAVAILABLE',
  'The native attention kernel was demanded and cannot be used: {reason}. Install a C compiler (cc, or name one in CC), or use --attention auto.',
  500,
);

export const kvTypeUnsupported = defineError(
  'KVASIR_KV_TYPE_UNSUPPORTED',
  "KV of type {type} comes in pieces of {multiple} elements, but this model's heads have {headDim}. Use --kv-cache-dtype f16.",
  400,
);

/** Decided before the pool exists, because it decides what KV's bits are. */
export interface AttentionChoice {
  readonly kind: 'native' | 'gather';
  /** What decides the bits of KV: the kind, and from what the kernel was compiled. */
  readonly identity: string;
  /** For people: which it is, and why not the other. */
  readonly description: string;
  create(memory: KvMemory): Attention;
}

/** Compiles, loads and tries the native kernel, unless told otherwise. Throws `nativeAttentionUnavailable` on demand only. */
export async function chooseAttention(
  device: ComputeDevice,
  config: ModelConfig,
  blockSize: number,
  option: AttentionOption,
  options: CompileOptions & { readonly kvType?: KvType } = {},
): Promise<AttentionChoice> {
  const { kvType = F16, ...compile } = options;
  if (config.headDim % kvType.blockSize !== 0) {
    throw kvTypeUnsupported({ type: kvType.name.toLowerCase(), headDim: config.headDim, multiple: kvType.blockSize });
  }
  if (option === 'gather') return gather(device, config, 'as demanded');
  try {
    const kernel = await loadTested(device, config, blockSize, kvType, compile);
    return {
      kind: 'native',
      identity: `native ${kernel.sourceDigest}`,
      description: `native kernel (heads of ${config.headDim}, ${kernel.shape.group} to a KV head, blocks of ${blockSize})`,
      create: (memory) => new NativeAttention(device, memory, config.headCount, kernel),
    };
  } catch (error) {
    if (!(error instanceof CompileFailure)) throw error;
    if (option === 'native') throw nativeAttentionUnavailable({ reason: error.message }, error);
    const instead =
      'ggml computes attention instead: slower, and the text may differ from engines that have the kernel.';
    doWithout(error, 'The native attention kernel', instead, compile);
    return gather(device, config, `no native kernel: ${error.message}`);
  }
}

async function loadTested(
  device: ComputeDevice,
  config: ModelConfig,
  blockSize: number,
  kvType: KvType,
  compile: CompileOptions,
): Promise<AttentionKernel> {
  if (device.kind !== 'cpu') throw new CompileFailure('KV lies on a GPU');
  const shape = { headDim: config.headDim, group: config.headCount / config.headCountKv, blockSize, kvType };
  const kernel = await loadAttentionKernel(device.native, shape, compile);
  const fault = selfTest(device, kernel, config.headCountKv);
  if (fault !== undefined) throw new CompileFailure(`compiled here, it ${fault}`, { isAvoidable: true });
  return kernel;
}

/** llama.cpp pads KV to this, so ggml's GPU kernels are tried and tuned with nothing else. */
const gpuKvMultiple = 256;

const gather = (device: ComputeDevice, config: ModelConfig, why: string): AttentionChoice => ({
  kind: 'gather',
  identity: 'gather',
  description: `ggml over gathered blocks (${why})`,
  create: (memory) => new GatherAttention(memory, config.headCount, device.kind === 'cpu' ? 1 : gpuKvMultiple),
});
