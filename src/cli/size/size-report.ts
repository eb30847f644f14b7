import type { MemoryNeeds, ModelSize } from './memory-needs.ts';

/** The output of `kvasir size --json`. */
export interface SizeReport extends MemoryNeeds {
  /** What fits into `--memory`. */
  readonly fit?: Fit;
  readonly tiers: readonly TierSize[];
}

export interface Fit {
  readonly memoryBytes: number;
  /** For `--kv-cache-memory`: the memory that weights and process leave, at most what all sequences can fill. */
  readonly poolBytes: number;
  /** Sequences of `maxModelLen` tokens that run at the same time, at most `maxNumSeqs`. */
  readonly sequences: number;
  /** Tokens of the longest sequence. */
  readonly longest: number;
  /** Bytes that remain for a tier in host memory. */
  readonly leftBytes: number;
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
): SizeReport {
  const { needs } = size;
  const tiers = tier.map((bytes): TierSize => {
    const tokens = needs.storedBytesPerToken === 0 ? 0 : Math.floor(bytes / needs.storedBytesPerToken);
    return { bytes, tokens, sequences: tokens / needs.maxModelLen };
  });
  return { ...needs, ...(memory === undefined ? {} : { fit: fitInto(size, memory) }), tiers };
}

function fitInto(size: ModelSize, memoryBytes: number): Fit {
  const { maxModelLen, maxNumSeqs, weightBytes, processBytes, poolBytesPerBlock } = size.needs;
  const room = Math.max(0, memoryBytes - weightBytes - processBytes);
  const poolBytes = Math.min(
    Math.floor(room / poolBytesPerBlock) * poolBytesPerBlock,
    size.pool(maxNumSeqs, maxModelLen).bytes,
  );
  return {
    memoryBytes,
    poolBytes,
    sequences: Math.min(maxNumSeqs, size.sequencesIn(poolBytes, maxModelLen)),
    longest: size.longestIn(poolBytes),
    leftBytes: room - poolBytes,
  };
}
