import { modelFeatureUnsupported } from './errors.ts';
import type { GgufFile } from './gguf.ts';

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
  /** The file has `rope_freqs.weight` (Llama 3): a divisor for each frequency, F32 [dimension / 2]. */
  readonly hasFreqFactors: boolean;
}

/** The tensor of Llama 3's frequency factors. */
export const ROPE_FREQS = 'rope_freqs.weight';

/** Reads the RoPE of `length` elements: a head, or the part of a head that is rotated. */
export function readRopeConfig(file: GgufFile, architecture: string, length: number): RopeConfig {
  const { metadata, tensors, path } = file;
  const key = (name: string): string => `${architecture}.rope.${name}`;
  const dimension = metadata.u32(key('dimension_count')) ?? length;
  if (architecture === 'qwen35' || architecture === 'qwen35moe')
    checkSections({ metadata, path }, architecture, dimension);
  else if (dimension !== length) throw metadata.invalid(key('dimension_count'), `${length}, the length of a head`);
  if (dimension > length || dimension % 2 !== 0) throw metadata.invalid(key('dimension_count'), 'a part of a head');

  const freqBase = metadata.f32(key('freq_base')) ?? 10_000;
  if (freqBase <= 0) throw metadata.invalid(key('freq_base'), 'positive');
  const type = metadata.string(key('scaling.type')) ?? 'linear';
  if (type !== 'none' && type !== 'linear' && type !== 'yarn') {
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
  const contextLength = metadata.u32(`${architecture}.context_length`) ?? 0;
  const isYarn = type === 'yarn';
  return {
    mode: modeOf(architecture, metadata.bool(key('scaling.finetuned'))),
    scaling: isYarn ? 'yarn' : factor === 1 ? 'none' : 'linear',
    dimension,
    freqBase,
    freqScale: Math.fround(1 / factor),
    extFactor: isYarn ? 1 : 0,
    attnFactor:
      (isYarn ? yarnAttention(factor, yarnLogMultiplier(file, architecture) !== 0) : 1) *
      (metadata.f32(key('scaling.attn_factor')) ?? 1),
    betaFast: 32,
    betaSlow: 1,
    originalContextLength: metadata.u32(key('scaling.original_context_length')) ?? contextLength,
    hasFreqFactors: tensors.has(ROPE_FREQS),
  };
}

/**
 * Qwen 3.5 has three kinds of positions, for text and images: pair i of a head has the position of kind i % 3, up to the
 * kind's number of pairs. A text's positions of all kinds are equal, so its RoPE is that of other models with pairs of
 * halves, if each pair has one of the three kinds.
 */
function checkSections(
  { metadata, path }: Pick<GgufFile, 'metadata' | 'path'>,
  architecture: string,
  dimension: number,
): void {
  const key = `${architecture}.rope.dimension_sections`;
  const sections = metadata.require(key, metadata.array(key)?.numbers);
  const pairs = Array.from({ length: dimension / 2 }, (_, pair) => pair);
  if (pairs.every((pair) => pair < 3 * (sections[pair % 3] ?? 0))) return;
  const found = `rope.dimension_sections = ${sections.join(', ')} for ${dimension / 2} pairs`;
  throw modelFeatureUnsupported({ path, architecture, feature: 'elements without a position', found });
}

/** Granite has RoPE unless `rope.scaling.finetuned` is false. */
function modeOf(architecture: string, isFinetuned: boolean | undefined): RopeConfig['mode'] {
  if (architecture === 'granitehybrid') return isFinetuned === false ? 'none' : 'normal';
  return architecture === 'llama' || architecture === 'deepseek2' ? 'normal' : 'neox';
}

/**
 * YaRN multiplies attention by `1 + 0.1 ln(factor)`. ggml's rope multiplies by the same number, so this divides by it.
 * The result is 1 for a factor above 1. For other factors, it cancels ggml's multiplication. A model whose
 * attention has a magnitude of its own (`yarnLogMultiplier`) has none in RoPE.
 */
function yarnAttention(factor: number, isInAttention: boolean): number {
  const raised = factor <= 1 || isInAttention ? 1 : 0.1 * Math.log(factor) + 1;
  return raised / (1 + 0.1 * Math.log(factor));
}

/** DeepSeek 2: the multiplier of the magnitude in attention's scale. Files have a tenth of it. */
export function yarnLogMultiplier({ metadata }: GgufFile, architecture: string): number {
  if (architecture !== 'deepseek2') return 0;
  return (metadata.f32(`${architecture}.rope.scaling.yarn_log_multiplier`) ?? 0) / 0.1;
}
