import type { Architecture } from './architectures.ts';
import { modelFeatureUnsupported } from './errors.ts';
import type { GgufFile } from './gguf.ts';
import { type RopeConfig, yarnLogMultiplier } from './rope-config.ts';

/**
 * Multi-head latent attention: the K and V of all heads are products of one latent vector per token, which is all that
 * the KV cache has. RoPE is on elements of their own, which all heads share.
 */
export interface LatentAttention {
  /** Elements of the latent vector: `kv_lora_rank`. */
  readonly rank: number;
  /** Elements with RoPE, which follow the latent vector in the KV cache, and the other elements in a query. */
  readonly ropeLength: number;
  /** Elements of a head's query without RoPE. */
  readonly queryLength: number;
  /** Elements of a head's value. */
  readonly valueLength: number;
  /** Elements of the vector from which all queries are made; undefined (Lite): queries are made from the layer's input. */
  readonly queryRank?: number;
}

/** The keys of DeepSeek 2. Refuses older files, whose matrices for K and V are not separate. */
export function readLatentAttention({ metadata, tensors, path }: GgufFile, architecture: string): LatentAttention {
  const read = (name: string): number => {
    const key = `${architecture}.${name}`;
    const value = metadata.require(key, metadata.u32(key));
    if (value < 1 || value > 1 << 16) throw metadata.invalid(key, 'between 1 and 65536');
    return value;
  };
  const isSplit = ['key', 'value'].every((part) => metadata.u32(`${architecture}.attention.${part}_length_mla`));
  if (!isSplit) {
    const feature = 'one matrix for the keys and values of all heads, as in files of before April 2025';
    const found = 'no attention.key_length_mla; a newer convert_hf_to_gguf.py writes it';
    throw modelFeatureUnsupported({ path, architecture, feature, found });
  }
  const rank = read('attention.kv_lora_rank');
  const ropeLength = read('rope.dimension_count');
  const keyLength = read('attention.key_length_mla');
  if (keyLength <= ropeLength) {
    throw metadata.invalid(
      `${architecture}.attention.key_length_mla`,
      `more than rope.dimension_count (${ropeLength})`,
    );
  }
  const headsKey = `${architecture}.attention.head_count_kv`;
  if ((metadata.u32(headsKey) ?? 1) !== 1) throw metadata.invalid(headsKey, '1 for latent attention');
  return {
    rank,
    ropeLength,
    queryLength: keyLength - ropeLength,
    valueLength: read('attention.value_length_mla'),
    ...(tensors.has('blk.0.attn_q.weight') ? {} : { queryRank: read('attention.q_lora_rank') }),
  };
}

/**
 * The factor of the dot product of a query and a key. A model with a longer context than it was trained for first
 * multiplies both by a magnitude.
 */
export function latentAttentionScale(
  file: GgufFile,
  architecture: Architecture,
  { queryLength, ropeLength }: LatentAttention,
  { attnFactor, freqScale }: RopeConfig,
): number {
  const stretch = Math.log(1 / freqScale);
  // RoPE's factor divides by the magnitude that ggml's rope multiplies by.
  const original = attnFactor * (1 + 0.1 * stretch);
  const magnitude = original * (1 + 0.1 * yarnLogMultiplier(file, architecture) * stretch);
  return magnitude ** 2 / Math.sqrt(queryLength + ropeLength);
}
