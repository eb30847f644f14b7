import { architectures, traitsOf } from './architectures.ts';
import { modelFeatureUnsupported } from './errors.ts';
import type { GgufFile } from './gguf.ts';
import { predictionLayers } from './model-tensors.ts';

/** The shape of a layer with a gated delta net. */
export interface DeltaNetConfig {
  /** Tokens that the convolution of a channel reads, its own token included. */
  readonly taps: number;
  /** Heads of values, each with a state of `headDim * headDim` numbers. */
  readonly heads: number;
  /** Heads of queries and keys, which divide the heads of values. */
  readonly keyHeads: number;
  /** Of queries, keys and values. */
  readonly headDim: number;
  /**
   * Adjacent heads of values read one head of queries and keys: head h reads head `floor(h * keyHeads / heads)`. Default: `h % keyHeads`.
   * The file then has alpha and beta in one matrix: for each head of keys, beta of its heads of values and alpha of them.
   */
  readonly hasAdjacentHeads?: boolean;
  /** Older files of Qwen3-Next have one matrix for all: for each head of keys, its query, key, values and gates. */
  readonly hasJointProjection?: boolean;
}

/** Channels of the convolution: queries, keys and values. */
export const deltaNetChannels = ({ heads, keyHeads, headDim }: DeltaNetConfig): number =>
  (2 * keyHeads + heads) * headDim;

/** F32 numbers of a layer's state: the rows of the convolution, and the states of the heads. */
export const deltaNetElements = (config: DeltaNetConfig): number =>
  (config.taps - 1) * deltaNetChannels(config) + config.heads * config.headDim * config.headDim;

export function readDeltaNetConfig({ metadata, tensors, path }: GgufFile, architecture: string): DeltaNetConfig {
  const read = (name: string, most: number): number => {
    const key = `${architecture}.ssm.${name}`;
    const value = metadata.require(key, metadata.u32(key));
    if (value < 1 || value > most) throw metadata.invalid(key, `between 1 and ${most}`);
    return value;
  };
  const [heads, keyHeads, headDim] = [
    read('time_step_rank', 1 << 16),
    read('group_count', 1 << 16),
    read('state_size', 1 << 12),
  ];
  if (heads % keyHeads !== 0) {
    const expected = `a divisor of time_step_rank, which is ${heads}`;
    throw metadata.invalid(`${architecture}.ssm.group_count`, expected);
  }
  const width = read('inner_size', 1 << 24);
  if (width !== heads * headDim) {
    const found = `inner_size = ${width} with ${heads} heads of keys of ${headDim}`;
    throw modelFeatureUnsupported({ path, architecture, feature: 'keys and values of different lengths', found });
  }
  const taps = read('conv_kernel', 64);
  if (taps < 2) throw metadata.invalid(`${architecture}.ssm.conv_kernel`, 'between 2 and 64');
  const known = architectures.find((name) => name === architecture);
  if (known === undefined || traitsOf(known).hasAdjacentHeads !== true) return { taps, heads, keyHeads, headDim };
  const hasJointProjection = [...tensors.keys()].some((name) => name.endsWith('.ssm_in.weight'));
  return {
    taps,
    heads,
    keyHeads,
    headDim,
    hasAdjacentHeads: true,
    ...(hasJointProjection ? { hasJointProjection } : {}),
  };
}

/** The layers with a delta net: those that the file lists, or all but each n-th. */
export function readDeltaNetLayers({ metadata }: GgufFile, architecture: string, layerCount: number): number[] {
  const all = layerCount + predictionLayers(metadata, architecture);
  const listed = metadata.u32OfLayers(`${architecture}.attention.recurrent_layers`, all);
  const intervalKey = `${architecture}.full_attention_interval`;
  const interval = metadata.u32(intervalKey) ?? 4;
  if (interval < 1) throw metadata.invalid(intervalKey, 'at least 1');
  return Array.from({ length: layerCount }, (_, layer) => layer).filter((layer) =>
    listed === undefined ? (layer + 1) % interval !== 0 : listed[layer] !== 0,
  );
}
