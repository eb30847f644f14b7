import { type Architecture, traitsOf } from './architectures.ts';
import { modelFeatureUnsupported } from './errors.ts';
import type { GgufFile } from './gguf.ts';
import type { ModelConfig } from './model-config.ts';

/** Rotary position embedding, as the parameters of `ggml_rope_ext`. */
export interface RopeConfig {
  /**
   * Pairs are adjacent elements (`normal`, as in Llama) or elements of the two halves of a head (`neox`, as in Qwen).
   * `none`: nothing is rotated.
   */
  readonly mode: 'normal' | 'neox' | 'none';
  /** How the model extends its context. */
  readonly scaling: 'none' | 'linear' | 'yarn';
  /** Elements of a head that are rotated: all of them, or the first ones. */
  readonly dimension: number;
  readonly freqBase: number;
  /** 1 / the scaling factor. */
  readonly freqScale: number;
  /** 1 for YaRN, else 0. */
  readonly extFactor: number;
  readonly attnFactor: number;
  readonly betaFast: number;
  readonly betaSlow: number;
  readonly originalContextLength: number;
  /** The tensor that has a divisor for each frequency, F32 [dimension / 2]. */
  readonly freqFactors?: FreqFactors;
  /** The same, computed: ggml rounds the range of pairs that YaRN stretches in part. */
  readonly divisors?: readonly number[];
}

/** Whether the angles have divisors, from the file or computed. */
export const hasDivisors = ({ freqFactors, divisors }: RopeConfig): boolean =>
  freqFactors !== undefined || divisors !== undefined;

/** Llama 3's divisors, and LongRoPE's for sequences within the original context and for longer ones. */
export const llama3Factors = 'rope_freqs.weight';
export const longRopeFactors = ['rope_factors_short.weight', 'rope_factors_long.weight'] as const;
export type FreqFactors = typeof llama3Factors | (typeof longRopeFactors)[number];

interface RopeSizes {
  /** Of a head, or of the part of a head that is rotated. */
  readonly length: number;
  /** Of the model. */
  readonly contextLength: number;
  /** The longest sequence of the engine. */
  readonly longest: number;
}

export function readRopeConfig(file: GgufFile, architecture: Architecture, sizes: RopeSizes): RopeConfig {
  const { metadata, path } = file;
  const { length, contextLength } = sizes;
  const traits = traitsOf(architecture);
  const key = (name: string): string => `${architecture}.rope.${name}`;
  const dimension = traits.hasNoRope === true ? length : (metadata.u32(key('dimension_count')) ?? length);
  checkSections({ metadata, path }, architecture, dimension);
  if (traits.hasPartialRope !== true && dimension !== length)
    throw metadata.invalid(key('dimension_count'), `${length}, the length of a head`);
  if (dimension > length || dimension % 2 !== 0) throw metadata.invalid(key('dimension_count'), 'a part of a head');

  const freqBase = metadata.f32(key('freq_base')) ?? 10_000;
  if (freqBase <= 0) throw metadata.invalid(key('freq_base'), 'positive');
  const type = metadata.string(key('scaling.type')) ?? 'linear';
  const isKnown = type === 'none' || type === 'linear' || type === 'yarn';
  if (!isKnown && !(type === 'longrope' && traits.hasLongRope === true)) {
    throw modelFeatureUnsupported({
      path,
      architecture,
      feature: 'this RoPE scaling',
      found: `rope.scaling.type = ${type}`,
    });
  }
  // `rope.scale_linear` is the old name of the factor; 0 means "not set".
  const written = metadata.f32(key('scaling.factor')) ?? metadata.f32(key('scale_linear')) ?? 0;
  if (written < 0) throw metadata.invalid(key('scaling.factor'), 'positive');
  const factor = written === 0 || type === 'none' ? 1 : written;
  const isYarn = type === 'yarn';
  const originalContextLength = metadata.u32(key('scaling.original_context_length')) ?? contextLength;
  const freqFactors = freqFactorsOf(file, architecture, sizes.longest > originalContextLength);
  // As transformers reads them: 0 means "not set". llama.cpp reads them for few architectures.
  const beta = (speed: 'fast' | 'slow', usual: number): number => {
    const turns = metadata.f32(key(`scaling.yarn_beta_${speed}`)) || usual;
    if (turns < 0) throw metadata.invalid(key(`scaling.yarn_beta_${speed}`), 'positive');
    return turns;
  };
  const config: RopeConfig = {
    mode: modeOf(architecture, metadata.bool(key('scaling.finetuned'))),
    scaling: isYarn ? 'yarn' : factor === 1 ? 'none' : 'linear',
    dimension,
    freqBase,
    freqScale: Math.fround(1 / factor),
    extFactor: isYarn ? 1 : 0,
    attnFactor:
      (isYarn ? yarnAttention(factor, file, architecture) : 1) * (metadata.f32(key('scaling.attn_factor')) ?? 1),
    betaFast: beta('fast', 32),
    betaSlow: beta('slow', 1),
    originalContextLength,
    ...(freqFactors === undefined ? {} : { freqFactors }),
  };
  return isYarn && traits.hasExactYarn === true ? withExactRange(config) : config;
}

/**
 * YaRN without rounding, as `truncate: false` in gpt-oss' configuration says, which GGUF files have not. The frequencies become divisors.
 */
function withExactRange(rope: RopeConfig): RopeConfig {
  const { dimension, freqScale, attnFactor, betaFast, betaSlow } = rope;
  const low = Math.max(0, pairOfTurns(rope, betaFast));
  const high = Math.min(dimension - 1, pairOfTurns(rope, betaSlow));
  const divisors = Array.from({ length: dimension / 2 }, (_, pair) => {
    const ramp = Math.min(1, Math.max(0, (pair - low) / (high === low ? 0.001 : high - low)));
    return Math.fround(1 / (freqScale * ramp + 1 - ramp));
  });
  const raised = attnFactor * (1 + 0.1 * Math.log(1 / freqScale));
  return { ...rope, freqScale: 1, extFactor: 0, attnFactor: raised, divisors };
}

/** The pair, as a fraction, that turns `turns` times within the original context. */
const pairOfTurns = ({ dimension, freqBase, originalContextLength }: RopeConfig, turns: number): number =>
  (dimension * Math.log(originalContextLength / (turns * 2 * Math.PI))) / (2 * Math.log(freqBase));

/** As in llama.cpp and vLLM, the longest sequence of the engine chooses one set of LongRoPE for all sequences. */
function freqFactorsOf({ tensors }: GgufFile, architecture: Architecture, isLong: boolean): FreqFactors | undefined {
  if (tensors.has(llama3Factors)) return llama3Factors;
  if (traitsOf(architecture).hasLongRope !== true) return undefined;
  return longRopeFactors.some((name) => tensors.has(name)) ? longRopeFactors[isLong ? 1 : 0] : undefined;
}

/** RoPE of a layer; undefined: nothing is rotated. */
export function ropeOfLayer(
  { architecture, rope, slidingWindow }: Pick<ModelConfig, 'architecture' | 'rope' | 'slidingWindow'>,
  layer: number,
): RopeConfig | undefined {
  const { noRopeInterval } = traitsOf(architecture);
  if (noRopeInterval !== undefined && (layer + 1) % noRopeInterval === 0) return undefined;
  const ofLayer = slidingWindow?.layers.includes(layer) === true ? slidingWindow.rope : rope;
  return ofLayer.mode === 'none' ? undefined : ofLayer;
}

/**
 * Qwen 3.5 has three kinds of positions, for text and images: pair i of a head has the position of kind i % 3, up to the
 * kind's number of pairs. A text's positions of all kinds are equal, so its RoPE is that of other models with pairs of
 * halves, if each pair has one of the three kinds. Other architectures with kinds of positions are those for images.
 */
function checkSections(
  { metadata, path }: Pick<GgufFile, 'metadata' | 'path'>,
  architecture: Architecture,
  dimension: number,
): void {
  const key = `${architecture}.rope.dimension_sections`;
  const given = metadata.array(key)?.numbers;
  if (traitsOf(architecture).hasImagePositions === true) return;
  if (architecture !== 'qwen35' && architecture !== 'qwen35moe') {
    if (given?.some((pairs) => pairs !== 0) !== true) return;
    const found = `rope.dimension_sections = ${given.join(', ')}`;
    throw modelFeatureUnsupported({ path, architecture, feature: 'positions of images', found });
  }
  const sections = metadata.require(key, given);
  const pairs = Array.from({ length: dimension / 2 }, (_, pair) => pair);
  if (pairs.every((pair) => pair < 3 * (sections[pair % 3] ?? 0))) return;
  const found = `rope.dimension_sections = ${sections.join(', ')} for ${dimension / 2} pairs`;
  throw modelFeatureUnsupported({ path, architecture, feature: 'elements without a position', found });
}

/** Granite has RoPE unless `rope.scaling.finetuned` is false. */
function modeOf(architecture: Architecture, isFinetuned: boolean | undefined): RopeConfig['mode'] {
  const { pairs, hasNoRope, hasPositionEmbeddings, hasScales } = traitsOf(architecture);
  const isWithout = hasNoRope === true || hasPositionEmbeddings === true;
  return isWithout || (hasScales === true && isFinetuned === false) ? 'none' : pairs;
}

/**
 * YaRN multiplies attention by a magnitude. ggml's rope multiplies by `1 + 0.1 ln(factor)`, so this divides by it. A file may have the
 * magnitude itself (`attention_factor` in a configuration). Without it and without a
 * multiplier of the magnitude, the result is 1 for a factor above 1. For other factors, it cancels ggml's multiplication.
 * DeepSeek 2 with a multiplier has the magnitude in attention's scale, and none in RoPE.
 */
function yarnAttention(factor: number, file: GgufFile, architecture: Architecture): number {
  const logMultiplier = yarnLogMultiplier(file, architecture);
  const key = `${architecture}.rope.scaling.yarn_attn_factor`;
  const written = file.metadata.f32(key);
  if (written !== undefined && written <= 0) throw file.metadata.invalid(key, 'positive');
  const magnitude = (multiplier: number): number => (factor <= 1 ? 1 : 0.1 * multiplier * Math.log(factor) + 1);
  const isInAttention = architecture === 'deepseek2' && logMultiplier !== 0;
  const raised = isInAttention ? 1 : magnitude(1) / magnitude(logMultiplier);
  return (written ?? raised) / (1 + 0.1 * Math.log(factor));
}

/** The multiplier of YaRN's magnitude. Files of DeepSeek 2 have a tenth of it. */
export function yarnLogMultiplier({ metadata }: GgufFile, architecture: Architecture): number {
  const written = (): number => metadata.f32(`${architecture}.rope.scaling.yarn_log_multiplier`) ?? 0;
  if (architecture === 'deepseek2') return written() / 0.1;
  return architecture === 'mistral3' ? written() : 0;
}
