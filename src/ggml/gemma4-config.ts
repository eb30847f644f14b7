import { modelFeatureUnsupported } from './errors.ts';
import { type ExpertConfig, readExpertConfig } from './expert-config.ts';
import type { GgufFile } from './gguf.ts';
import type { HeadShape } from './layer-shapes.ts';
import type { ModelConfig } from './model-config.ts';
import { llama3Factors, type RopeConfig } from './rope-config.ts';
import { readWindow, type SlidingWindow } from './sliding-window.ts';

const key = (name: string): string => `gemma4.${name}`;

/** The layers of Gemma 4 with a window, and the heads of both kinds of layers. */
export interface Gemma4Layers {
  readonly full: HeadShape;
  readonly window: HeadShape;
  readonly windowLayers: readonly number[];
}

export function readGemma4Layers(file: GgufFile, layerCount: number, headCount: number): Gemma4Layers {
  const { metadata } = file;
  const patternKey = key('attention.sliding_window_pattern');
  const pattern = metadata.require(patternKey, metadata.u32OfLayers(patternKey, layerCount));
  const windowLayers = pattern.flatMap((isWindow, layer) => (isWindow === 0 ? [] : [layer]));
  if (windowLayers.length === 0 || windowLayers.length === layerCount) {
    throw metadata.invalid(patternKey, 'a list with layers of both kinds');
  }
  const countsKey = key('attention.head_count_kv');
  const counts = metadata.u32OfLayers(countsKey, layerCount) ?? pattern.map(() => headCount);
  const headsOf = (isWindow: boolean): HeadShape => {
    const ofKind = counts.filter((_, layer) => (pattern[layer] !== 0) === isWindow);
    const headCountKv = ofKind[0] ?? 0;
    if (ofKind.some((count) => count !== headCountKv)) {
      const feature = 'layers of one kind with different numbers of KV heads';
      const found = `head_count_kv = ${counts.join(', ')}`;
      throw modelFeatureUnsupported({ path: file.path, architecture: 'gemma4', feature, found });
    }
    if (headCountKv === 0 || headCount % headCountKv !== 0) {
      throw metadata.invalid(countsKey, `divisors of head_count, which is ${headCount}`);
    }
    return { headDim: readHeadLength(file, isWindow ? '_swa' : ''), headCountKv };
  };
  return { full: headsOf(false), window: headsOf(true), windowLayers };
}

function readHeadLength({ metadata, path }: GgufFile, suffix: '' | '_swa'): number {
  const keyName = key(`attention.key_length${suffix}`);
  const valueName = key(`attention.value_length${suffix}`);
  const length = metadata.require(keyName, metadata.u32(keyName));
  const valueLength = metadata.require(valueName, metadata.u32(valueName));
  if (length !== valueLength) {
    const feature = 'keys and values of different lengths';
    const found = `key_length${suffix} = ${length}, value_length${suffix} = ${valueLength}`;
    throw modelFeatureUnsupported({ path, architecture: 'gemma4', feature, found });
  }
  if (length < 2 || length > 1024 || length % 2 !== 0) {
    throw metadata.invalid(keyName, 'an even number between 2 and 1024');
  }
  return length;
}

/** Layers with a window have their own RoPE, without scaling and without divisors. */
export function readGemma4Window(
  { metadata }: GgufFile,
  { window: heads, windowLayers }: Gemma4Layers,
  rope: RopeConfig,
): SlidingWindow {
  const window = metadata.require(key('attention.sliding_window'), readWindow(metadata, 'gemma4'));
  const freqBase = metadata.f32(key('rope.freq_base_swa')) ?? 10_000;
  if (freqBase <= 0) throw metadata.invalid(key('rope.freq_base_swa'), 'positive');
  const dimensionKey = key('rope.dimension_count_swa');
  const dimension = metadata.u32(dimensionKey) ?? heads.headDim;
  if (dimension < 2 || dimension > heads.headDim || dimension % 2 !== 0) {
    throw metadata.invalid(dimensionKey, `an even number up to ${heads.headDim}, the length of a head`);
  }
  const { freqFactors: _, ...unscaled } = { ...rope, scaling: 'none', freqScale: 1, freqBase, dimension } as const;
  return { window, layers: windowLayers, heads, rope: unscaled };
}

/** The divisors are part of all files: elements of a head that are not rotated have large ones. */
export const gemma4Rope = (rope: RopeConfig): RopeConfig => ({ ...rope, freqFactors: llama3Factors });

/** What Gemma 4 has besides attention. `shape`: of the whole model. */
export function readGemma4Parts(
  file: GgufFile,
  { windowLayers }: Gemma4Layers,
  layerCount: number,
): Pick<ModelConfig, 'sharedKvFrom' | 'perLayerLength' | 'feedForwardLengths' | 'keyIsValue' | 'hasLayerScale'> {
  const { metadata, tensors } = file;
  const lengthsKey = key('feed_forward_length');
  const lengths = metadata.require(lengthsKey, metadata.u32OfLayers(lengthsKey, layerCount));
  if (lengths.some((length) => length < 1 || length > 1 << 24)) {
    throw metadata.invalid(lengthsKey, 'between 1 and 2^24');
  }
  const perLayerKey = key('embedding_length_per_layer_input');
  const perLayerLength = metadata.require(perLayerKey, metadata.u32(perLayerKey));
  if (perLayerLength > 1 << 16) throw metadata.invalid(perLayerKey, 'at most 2^16');
  const sharedKvFrom = readSharedKv(file, windowLayers, layerCount);
  const keyIsValue = Array.from({ length: sharedKvFrom ?? layerCount }, (_, layer) => layer).filter(
    (layer) => tensors.has(`blk.${layer}.attn_k.weight`) && !tensors.has(`blk.${layer}.attn_v.weight`),
  );
  return {
    ...(sharedKvFrom === undefined ? {} : { sharedKvFrom }),
    ...(perLayerLength === 0 ? {} : { perLayerLength }),
    ...(lengths.every((length) => length === lengths[0]) ? {} : { feedForwardLengths: lengths }),
    ...(keyIsValue.length === 0 ? {} : { keyIsValue }),
    hasLayerScale: tensors.has('blk.0.layer_output_scale.weight'),
  };
}

/** The first layer that reads the KV of earlier ones. llama.cpp expects a layer of each kind just before it. */
function readSharedKv(
  { metadata, path }: GgufFile,
  windowLayers: readonly number[],
  layerCount: number,
): number | undefined {
  const sharedKey = key('attention.shared_kv_layers');
  const shared = metadata.u32(sharedKey) ?? 0;
  if (shared === 0) return undefined;
  if (shared > layerCount - 2) throw metadata.invalid(sharedKey, `at most ${layerCount - 2}`);
  const first = layerCount - shared;
  if (windowLayers.includes(first - 2) && !windowLayers.includes(first - 1)) return first;
  const feature = 'layers that share KV without a window and full attention just before them';
  throw modelFeatureUnsupported({ path, architecture: 'gemma4', feature, found: `shared_kv_layers = ${shared}` });
}

/** Experts beside the network of each layer, with a scale of each expert's result. */
export function readGemma4Experts(file: GgufFile): ExpertConfig | undefined {
  if ((file.metadata.u32(key('expert_count')) ?? 0) === 0) return undefined;
  return {
    ...readExpertConfig(file, 'gemma4'),
    isBesideNetwork: true,
    hasResultScale: file.tensors.has('blk.0.ffn_down_exps.scale'),
  };
}
