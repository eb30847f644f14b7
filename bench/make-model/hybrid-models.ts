/** What models with recurrent states have besides the others: metadata, and the values of their tensors. */
import { traitsOf } from '../../src/ggml/architectures.ts';
import { type DeltaNetConfig, deltaNetElements } from '../../src/ggml/delta-net-config.ts';
import type { GgufPtr, NativeApi } from '../../src/ggml/ffi.ts';
import { type MambaConfig, mambaElements, mambaWidth } from '../../src/ggml/mamba-config.ts';
import type { Architecture, ModelConfig } from '../../src/ggml/model-config.ts';
import type { ModelOptions } from './model-maker.ts';
import type { Filling } from './random-rows.ts';

export const hasDeltaNets = (architecture: Architecture): boolean => traitsOf(architecture).mixer === 'delta net';
export const isNemotron = (architecture: Architecture): boolean => traitsOf(architecture).hasSinglePartLayers === true;
export const isHybrid = (architecture: Architecture): boolean => traitsOf(architecture).mixer !== undefined;

/** Factors of Granite that are not those of other models. */
const scales = { attention: 0.1, embedding: 3, residual: 0.5, logits: 4 };

/**
 * Options of a granitehybrid, nemotron_h or qwen35 whose states are hardly smaller than K and V of 16 tokens, so that blocks have 16
 * tokens.
 */
export const smallStates: Partial<ModelOptions> = {
  embedding: 128,
  feedForward: 256,
  heads: 8,
  headsKv: 8,
  headDim: 160,
  mamba: { taps: 4, heads: 4, headDim: 64, stateSize: 64, groups: 1 },
};

/** Options of an lfm2 with a convolution, a sliding window and full attention: a layer of each. */
export const tinyHybrid: Partial<ModelOptions> = { layers: 3, stateLayers: [0], window: 40, windowLayers: [1] };

type HybridConfig = Pick<ModelConfig, 'states' | 'shortConvolution' | 'mamba' | 'deltaNet' | 'networkLayers'>;

/** The layers with states. */
export function hybridConfig(options: ModelOptions, layerCount: number, embeddingLength: number): HybridConfig {
  if (!isHybrid(options.architecture)) return {};
  const all = Array.from({ length: layerCount }, (_, i) => i);
  if (isNemotron(options.architecture)) {
    const mamba = options.mamba ?? { taps: 4, heads: 8, headDim: 64, stateSize: 64, groups: 2 };
    const stateLayers = options.stateLayers ?? all.filter((i) => i % 4 === 0);
    const networkLayers = options.networkLayers ?? all.filter((i) => i % 2 === 1);
    return { mamba, networkLayers, states: { layers: stateLayers, elements: mambaElements(mamba) } };
  }
  const layers = options.stateLayers ?? all.filter((i) => i % 3 < 2);
  if (options.architecture === 'lfm2' || options.architecture === 'lfm2moe') {
    const { taps = 3 } = options;
    return { shortConvolution: { taps }, states: { layers, elements: (taps - 1) * embeddingLength } };
  }
  if (hasDeltaNets(options.architecture)) {
    const deltaNet: DeltaNetConfig = {
      ...(options.deltaNet ?? { taps: 4, heads: 4, keyHeads: 2, headDim: 64 }),
      ...(traitsOf(options.architecture).hasAdjacentHeads === true ? { hasAdjacentHeads: true } : {}),
    };
    return { deltaNet, states: { layers, elements: deltaNetElements(deltaNet) } };
  }
  const mamba: MambaConfig = options.mamba ?? { taps: 4, heads: 8, headDim: 64, stateSize: 64, groups: 1 };
  return { mamba, states: { layers, elements: mambaElements(mamba) } };
}

/** Granite's factors, as the configuration has them. */
export function scalesOf({ architecture }: ModelOptions): Partial<ModelConfig> {
  if (traitsOf(architecture).hasScales !== true) return {};
  return {
    attentionScale: scales.attention,
    embeddingScale: scales.embedding,
    residualScale: scales.residual,
    logitScale: 1 / scales.logits,
  };
}

export function setHybridMetadata(native: NativeApi, gguf: GgufPtr, options: ModelOptions, config: ModelConfig): void {
  const { architecture, layerCount, headCountKv, states, shortConvolution, mamba, experts } = config;
  const u32 = (name: string, value: number): void => native.gguf_set_val_u32(gguf, `${architecture}.${name}`, value);
  if (config.deltaNet !== undefined) {
    setDeltaNetMetadata(native, gguf, options, { ...config, deltaNet: config.deltaNet });
    return;
  }
  const ofLayers = (name: string, ofLayer: (layer: number) => number): void => {
    const values = Int32Array.from({ length: layerCount + (options.predictionLayers ?? 0) }, (_, i) => ofLayer(i));
    native.gguf_set_arr_data(gguf, `${architecture}.${name}`, int32, values, values.length);
  };
  const hasNetworkOnly = (layer: number): boolean => config.networkLayers?.includes(layer) === true;
  ofLayers('attention.head_count_kv', (i) => (states?.layers.includes(i) || hasNetworkOnly(i) ? 0 : headCountKv));
  if (shortConvolution !== undefined) u32('shortconv.l_cache', shortConvolution.taps);
  if (options.window !== undefined) u32('attention.sliding_window', options.window);
  if (options.windowLayers !== undefined) setWindowLayers(native, gguf, config, options.windowLayers);
  if (mamba !== undefined) {
    u32('ssm.conv_kernel', mamba.taps);
    u32('ssm.inner_size', mambaWidth(mamba));
    u32('ssm.state_size', mamba.stateSize);
    u32('ssm.time_step_rank', mamba.heads);
    u32('ssm.group_count', mamba.groups);
  }
  const f32 = (name: string, value: number): void => native.gguf_set_val_f32(gguf, `${architecture}.${name}`, value);
  if (isNemotron(architecture)) {
    // A prediction layer has attention and a network.
    const width = experts?.feedForwardLength ?? config.feedForwardLength;
    ofLayers('feed_forward_length', (i) => (hasNetworkOnly(i) || i >= layerCount ? width : 0));
    f32('attention.layer_norm_epsilon', config.rmsEpsilon);
    native.gguf_set_val_bool(gguf, `${architecture}.rope.scaling.finetuned`, false);
    if (experts === undefined) return;
    u32('expert_group_count', 1);
    u32('expert_shared_count', 1);
    u32('expert_shared_feed_forward_length', experts.sharedLength ?? 0);
    native.gguf_set_val_bool(gguf, `${architecture}.expert_weights_norm`, experts.dividesBySum ?? true);
    f32('expert_weights_scale', experts.weightScale ?? 1);
    if (experts.latentLength !== undefined) u32('moe_latent_size', experts.latentLength);
  }
}

/** Granite's factors, and whether it has RoPE. */
export function setScales(native: NativeApi, gguf: GgufPtr, { architecture, rope, experts }: ModelConfig): void {
  if (traitsOf(architecture).hasScales !== true) return;
  const f32 = (name: string, value: number): void => native.gguf_set_val_f32(gguf, `${architecture}.${name}`, value);
  f32('attention.scale', scales.attention);
  f32('embedding_scale', scales.embedding);
  f32('residual_scale', scales.residual);
  f32('logit_scale', scales.logits);
  native.gguf_set_val_bool(gguf, `${architecture}.rope.scaling.finetuned`, rope.mode !== 'none');
  if (experts?.sharedLength !== undefined)
    native.gguf_set_val_u32(gguf, `${architecture}.expert_shared_feed_forward_length`, experts.sharedLength);
}

/** The pattern of windows that has a boolean for each layer. */
export function setWindowLayers(
  native: NativeApi,
  gguf: GgufPtr,
  { architecture, layerCount }: Pick<ModelConfig, 'architecture' | 'layerCount'>,
  layers: readonly number[],
): void {
  const pattern = Uint8Array.from({ length: layerCount }, (_, i) => (layers.includes(i) ? 1 : 0));
  native.gguf_set_arr_data(gguf, `${architecture}.attention.sliding_window_pattern`, bool, pattern, pattern.length);
}

/** Types of GGUF's arrays. */
const [int32, bool] = [5, 7];

function setDeltaNetMetadata(
  native: NativeApi,
  gguf: GgufPtr,
  options: ModelOptions,
  config: ModelConfig & { readonly deltaNet: DeltaNetConfig },
): void {
  const { architecture, layerCount, headCountKv, states, experts, rope, deltaNet } = config;
  const u32 = (name: string, value: number): void => native.gguf_set_val_u32(gguf, `${architecture}.${name}`, value);
  u32('attention.head_count_kv', headCountKv);
  const layersOfFile = layerCount + (options.predictionLayers ?? 0);
  const listed = Uint8Array.from({ length: layersOfFile }, (_, i) => (states?.layers.includes(i) ? 1 : 0));
  const isThird = (layer: number): boolean => (layer + 1) % 3 === 0;
  // The pattern of each third layer has a shorter form.
  if (listed.every((isState, i) => i >= layerCount || (isState === 1) !== isThird(i)))
    u32('full_attention_interval', 3);
  else native.gguf_set_arr_data(gguf, `${architecture}.attention.recurrent_layers`, bool, listed, listed.length);
  u32('ssm.conv_kernel', deltaNet.taps);
  u32('ssm.inner_size', deltaNet.heads * deltaNet.headDim);
  u32('ssm.state_size', deltaNet.headDim);
  u32('ssm.time_step_rank', deltaNet.heads);
  u32('ssm.group_count', deltaNet.keyHeads);
  if (experts?.sharedLength !== undefined) u32('expert_shared_feed_forward_length', experts.sharedLength);
  if (architecture === 'qwen3next') return;
  const pairs = rope.dimension / 2;
  const sections = Int32Array.of(...[0, 1, 2].map((kind) => Math.ceil((pairs - kind) / 3)), 0);
  native.gguf_set_arr_data(gguf, `${architecture}.rope.dimension_sections`, int32, sections, sections.length);
}

/** Of tensors that other models do not have: states decay within some tens of tokens. */
export function hybridFilling(name: string): Filling | undefined {
  if (name.endsWith('.ssm_a')) return { mean: -1, deviation: 0.3, rowSpread: 0 };
  if (name.endsWith('.ssm_d')) return { mean: 1, deviation: 0.3, rowSpread: 0 };
  if (name.endsWith('.ssm_dt.bias')) return { mean: -2, deviation: 0.5, rowSpread: 0 };
  if (name.endsWith('.ssm_conv1d.weight')) return { mean: 0, deviation: 0.7, rowSpread: 0 };
  return undefined;
}
