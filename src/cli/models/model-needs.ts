import { formatBytes } from '../../base/bytes.ts';
import { hostTierBytes } from '../../connector/offloading/host-bytes.ts';
import { gpuLayersImpossible } from '../../engine/errors.ts';
import type { GpuLayers } from '../../engine/options.ts';
import type { GpuMemory } from '../../ggml/device.ts';
import { type GgufPart, readGguf, weightBytesOf } from '../../ggml/gguf.ts';
import { modelFile } from '../../hub/model-file.ts';
import { engineOptionsOf } from '../args.ts';
import type { CliContext } from '../context.ts';
import type { ServeFlags } from '../serve.ts';
import type { GpuShare } from '../size/gpu-share.ts';
import { ModelSize } from '../size/memory-needs.ts';

const GIB = 1024 ** 3;
/** Without --kv-cache-memory, a pool has at most this part of the limit, unless one request needs more. */
const POOL_PARTS = 8;

/** The memory of all models together. */
export interface ModelLimits {
  readonly memoryMaxBytes: number;
  /** At the start of the server, if models may use a GPU. */
  readonly gpu?: GpuMemory;
  readonly shareOnGpu: CliContext['shareOnGpu'];
}

export interface ModelNeeds {
  readonly bytes: number;
  readonly gpuBytes: number;
  /** The files whose headers were read. */
  readonly parts: readonly GgufPart[];
  /** They would depend on the free memory in a server with one model, and so on the other models here. */
  readonly settings: { readonly kvCacheMemory: number; readonly gpuLayers?: GpuLayers };
}

/**
 * The memory that counts for a model: weights, KV pool, host tier, draft model, and an estimate of the rest. What is on the GPU counts
 * there, with the memory that an engine leaves free for its buffers.
 * @throws gpuLayersImpossible if the GPU is too small for the layers that the flags want there
 */
export async function needsOfModel(path: string, flags: ServeFlags, limits: ModelLimits): Promise<ModelNeeds> {
  const { memoryMaxBytes, gpu } = limits;
  const file = await readGguf(path);
  const size = new ModelSize(file, flags);
  const { weightBytes, processBytes, maxModelLen, maxNumSeqs } = size.needs;
  const poolOf = (limitBytes: number): number => {
    const largest = Math.min(4 * GIB, limitBytes / POOL_PARTS, size.pool(maxNumSeqs, maxModelLen).bytes);
    return flags.kvCacheMemory ?? Math.floor(Math.max(size.pool(1, maxModelLen).bytes, largest));
  };
  const draftBytes = await draftBytesOf(flags);
  const rest = processBytes + hostTierBytes(flags.kvTransferConfig) + draftBytes;
  const kvOnGpu = poolOf(gpu?.freeBytes ?? 0);
  const share =
    gpu?.freeBytes === undefined
      ? undefined
      : await limits.shareOnGpu?.(engineOptionsOf(path, { ...flags, kvCacheMemory: kvOnGpu }, {}), file, gpu);
  const { division } = share ?? {};
  if (share === undefined || gpu === undefined || division === undefined) {
    const kvCacheMemory = poolOf(memoryMaxBytes);
    const isOnCpu = share !== undefined && flags.device === 'auto';
    return {
      parts: file.parts,
      bytes: weightBytes + kvCacheMemory + rest,
      gpuBytes: 0,
      settings: { kvCacheMemory, ...(isOnCpu ? { gpuLayers: 0 } : {}) },
    };
  }
  const { onCpu, poolBytes } = division;
  const blocks = poolBytes / division.onGpu.blockBytes;
  return {
    parts: file.parts,
    bytes: onCpu.weightBytes + blocks * onCpu.blockBytes + rest,
    gpuBytes: gpuBytesOf(share, gpu, draftBytes),
    settings: { kvCacheMemory: kvOnGpu, gpuLayers: share.layers },
  };
}

function gpuBytesOf({ division, reserveBytes, gpuLayers }: GpuShare, gpu: GpuMemory, draftBytes: number): number {
  const { onGpu, poolBytes } = division!;
  const bytes = onGpu.weightBytes + Math.min(poolBytes, gpu.tensorBytesMax) + draftBytes;
  const free = gpu.freeBytes!;
  if (bytes > free) {
    const problem = `weights and KV need ${formatBytes(bytes)}, and ${formatBytes(free)} were free on ${gpu.description} at the start. Use --gpu-layers auto`;
    throw gpuLayersImpossible({ layers: gpuLayers, problem });
  }
  return Math.min(bytes + reserveBytes, free);
}

async function draftBytesOf({ speculativeConfig }: ServeFlags): Promise<number> {
  if (speculativeConfig === undefined || !('model' in speculativeConfig)) return 0;
  return weightBytesOf(await readGguf(await modelFile(speculativeConfig.model)));
}
