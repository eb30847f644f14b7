import type { GpuShare } from './gpu-share.ts';
import type { MemoryNeeds, ModelSize } from './memory-needs.ts';

/** The output of `kvasir size --json`. */
export interface SizeReport extends MemoryNeeds {
  /** If an engine would use a GPU. */
  readonly gpu?: GpuShare;
  /** What fits into `--memory`, and into the free memory of the GPU. */
  readonly fit?: Fit;
  readonly tiers: readonly TierSize[];
}

export interface Fit {
  /** Absent without `--memory`: only the GPU limits. */
  readonly memoryBytes?: number;
  /** For `--kv-cache-memory`: the memory that weights and process leave, at most what all sequences can fill. With a GPU, on both devices. */
  readonly poolBytes: number;
  /** Sequences of `maxModelLen` tokens that run at the same time, at most `maxNumSeqs`. */
  readonly sequences: number;
  /** Tokens of the longest sequence. */
  readonly longest: number;
  /** Bytes that remain for a tier in host memory; absent without `--memory`. */
  readonly leftBytes?: number;
}

export interface TierSize {
  readonly bytes: number;
  /** Tokens of prefixes that it holds. */
  readonly tokens: number;
  /** The same in sequences of `maxModelLen` tokens. */
  readonly sequences: number;
}

const GIB = 1024 ** 3;
const tierDefaults = [8 * GIB, 100 * GIB];

export function reportSize(
  size: ModelSize,
  { memory, tier = tierDefaults }: { readonly memory?: number; readonly tier?: readonly number[] },
  gpu?: GpuShare,
): SizeReport {
  const { needs } = size;
  const tiers = tier.map((bytes): TierSize => {
    const tokens = needs.storedBytesPerToken === 0 ? 0 : Math.floor(bytes / needs.storedBytesPerToken);
    return { bytes, tokens, sequences: tokens / needs.maxModelLen };
  });
  const fit = memory === undefined && gpu?.blocksMax === undefined ? {} : { fit: fitInto(size, memory, gpu) };
  return { ...needs, ...(gpu === undefined ? {} : { gpu }), ...fit, tiers };
}

function fitInto(size: ModelSize, memoryBytes: number | undefined, gpu: GpuShare | undefined): Fit {
  const { maxModelLen, maxNumSeqs, weightBytes, processBytes, poolBytesPerBlock } = size.needs;
  const { onGpu, onCpu } = gpu?.division ?? {
    onGpu: { blockBytes: 0 },
    onCpu: { weightBytes, blockBytes: poolBytesPerBlock },
  };
  const room = Math.max(0, (memoryBytes ?? Number.POSITIVE_INFINITY) - onCpu.weightBytes - processBytes);
  const blocks = Math.min(
    onCpu.blockBytes === 0 ? Number.POSITIVE_INFINITY : Math.floor(room / onCpu.blockBytes),
    gpu?.blocksMax ?? Number.POSITIVE_INFINITY,
    size.pool(maxNumSeqs, maxModelLen).blocks,
  );
  return {
    ...(memoryBytes === undefined ? {} : { memoryBytes, leftBytes: room - blocks * onCpu.blockBytes }),
    poolBytes: blocks * (onCpu.blockBytes + onGpu.blockBytes),
    sequences: Math.min(maxNumSeqs, size.sequencesIn(blocks * poolBytesPerBlock, maxModelLen)),
    longest: size.longestIn(blocks * poolBytesPerBlock),
  };
}
