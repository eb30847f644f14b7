/** What models of Gemma 4 have besides the others: metadata, and the values of their tensors. */
import type { GgufPtr, NativeApi } from '../../src/ggml/ffi.ts';
import { feedForwardLengthOf, type HeadShape } from '../../src/ggml/layer-shapes.ts';
import type { ModelConfig } from '../../src/ggml/model-config.ts';
import { setWindowLayers } from './hybrid-models.ts';
import type { ModelOptions } from './model-maker.ts';
import type { Filling } from './random-rows.ts';

export interface Gemma4Options {
  /** Layers at the end that read the KV of earlier ones; default: two without experts, else none. */
  readonly sharedLayers?: number;
  /** Length of a layer's own embedding of a token, 0 for none; default: 64 without experts, else none. */
  readonly perLayerLength?: number;
  /** Heads of layers with a window; default: one of 64 without experts, else four. */
  readonly windowHeads?: HeadShape;
  /** Layers with full attention have no matrix for V; default: with experts. */
  readonly keyIsValue?: boolean;
  /** Networks of layers that share KV are twice as wide; default: yes. */
  readonly doubleWide?: boolean;
  /** One matrix for queries, keys and values where a layer has all three; default: no. */
  readonly fusedQkv?: boolean;
  /** Layers that share KV have matrices for K and V in the file, as some files do; default: no. */
  readonly spareKv?: boolean;
  /** A scalar for each layer, and a scale for each expert; default: yes. */
  readonly scales?: boolean;
}

/** Options of a gemma4 in the shape of the model with experts: blocks of layers with full attention have more tokens. */
export const gemma4WithExperts: Partial<ModelOptions> = {
  layers: 3,
  seed: 4,
  experts: { count: 8, used: 3, feedForwardLength: 256 },
};

/** The layers with a window, by default: two of three, and the first of those that share KV. */
const windowsOf = ({ windowLayers, windowPattern = 3 }: ModelOptions, layerCount: number, ownCount: number) =>
  windowLayers ??
  Array.from({ length: layerCount }, (_, layer) => layer).filter((layer) =>
    layer < ownCount ? (ownCount - 1 - layer) % windowPattern > 0 : (layer - ownCount) % 2 === 0,
  );

/** Without experts the shape of the small models, else that of the model with experts. Layers: at least three. */
export function gemma4Config(options: ModelOptions, config: ModelConfig): Partial<ModelConfig> {
  const { layerCount, embeddingLength, feedForwardLength, rope } = config;
  const { gemma4 = {}, windowFreqBase = 10_000 } = options;
  const isDense = options.experts === undefined;
  const { sharedLayers = isDense ? 2 : 0, perLayerLength = isDense ? 64 : 0, scales = true } = gemma4;
  const ownCount = layerCount - sharedLayers;
  const layers = windowsOf(options, layerCount, ownCount);
  const heads = gemma4.windowHeads ?? { headDim: 64, headCountKv: isDense ? 1 : 4 };
  const { freqFactors: _, ...plain } = rope;
  const widths = Array.from({ length: layerCount }, (_, layer) => (layer < ownCount ? 1 : 2) * feedForwardLength);
  const hasWide = sharedLayers > 0 && gemma4.doubleWide !== false;
  const full = Array.from({ length: ownCount }, (_, layer) => layer).filter((layer) => !layers.includes(layer));
  return {
    embeddingScale: Math.sqrt(embeddingLength),
    attentionScale: 1,
    rope: { ...rope, freqFactors: 'rope_freqs.weight' },
    slidingWindow: {
      window: options.window ?? 40,
      layers,
      heads,
      rope: { ...plain, freqBase: windowFreqBase, dimension: heads.headDim },
    },
    ...(sharedLayers === 0 ? {} : { sharedKvFrom: ownCount }),
    ...(perLayerLength === 0 ? {} : { perLayerLength }),
    ...(hasWide ? { feedForwardLengths: widths } : {}),
    ...((gemma4.keyIsValue ?? !isDense) ? { keyIsValue: full } : {}),
    hasLayerScale: scales,
    ...(config.experts === undefined
      ? {}
      : {
          experts: {
            ...config.experts,
            isBesideNetwork: true,
            // As in published files.
            hasFusedGate: config.experts.hasFusedGate ?? true,
            hasResultScale: scales,
          },
        }),
  };
}

export function setGemma4Metadata(native: NativeApi, gguf: GgufPtr, options: ModelOptions, config: ModelConfig): void {
  const { slidingWindow, layerCount, sharedKvFrom = layerCount } = config;
  if (slidingWindow?.heads === undefined) return;
  const { heads, layers, window, rope } = slidingWindow;
  const key = (name: string): string => `gemma4.${name}`;
  const u32 = (name: string, value: number): void => native.gguf_set_val_u32(gguf, key(name), value);
  const ofLayers = (name: string, ofLayer: (layer: number) => number): void => {
    const values = Int32Array.from({ length: layerCount }, (_, layer) => ofLayer(layer));
    native.gguf_set_arr_data(gguf, key(name), int32, values, layerCount);
  };
  ofLayers('attention.head_count_kv', (layer) => (layers.includes(layer) ? heads.headCountKv : config.headCountKv));
  if (config.feedForwardLengths !== undefined)
    ofLayers('feed_forward_length', (layer) => feedForwardLengthOf(config, layer));
  u32('attention.shared_kv_layers', layerCount - sharedKvFrom);
  u32('embedding_length_per_layer_input', config.perLayerLength ?? 0);
  u32('attention.key_length_swa', heads.headDim);
  u32('attention.value_length_swa', heads.headDim);
  u32('attention.sliding_window', window);
  setWindowLayers(native, gguf, config, layers);
  u32('rope.dimension_count_swa', rope.dimension);
  native.gguf_set_val_f32(gguf, key('rope.freq_base_swa'), rope.freqBase);
  if (options.finalSoftCap !== undefined)
    native.gguf_set_val_f32(gguf, key('final_logit_softcapping'), options.finalSoftCap);
}

/** GGUF's type of an array. */
const int32 = 5;

/** Of tensors that other models do not have. */
export function gemma4Filling(name: string, columns: number, { embeddingLength }: ModelConfig): Filling | undefined {
  // The scale of attention is 1, so norms keep scores small enough that a token attends to many.
  if (/\.attn_[qk]_norm\.weight$/.test(name)) return { mean: 1.5 * columns ** -0.25, deviation: 0.05, rowSpread: 0 };
  if (name.endsWith('.layer_output_scale.weight')) return { mean: 0.8, deviation: 0.1, rowSpread: 0 };
  if (name.endsWith('.ffn_down_exps.scale')) return { mean: 1, deviation: 0.2, rowSpread: 0 };
  // The input of the router is divided by this root.
  if (name.endsWith('.ffn_gate_inp.scale')) return { mean: Math.sqrt(embeddingLength), deviation: 1, rowSpread: 0 };
  if (/\.p(re|ost)_ffw_norm_\d\.weight$/.test(name)) return { mean: 1, deviation: 0.1, rowSpread: 0 };
  // Larger than in other models, because attention to many tokens is nearly the same for all of them.
  if (/\.post_attention_norm\.weight$/.test(name)) return { mean: 40, deviation: 4, rowSpread: 0 };
  return /\.post_(ffw_)?norm\.weight$/.test(name) ? { mean: 20, deviation: 2, rowSpread: 0 } : undefined;
}

/** As in published files, three of four pairs of a head are not rotated: their angles are divided by this number. */
export function fillDivisors(values: Float32Array): void {
  values.fill(1, 0, values.length / 4);
  values.fill(1e30, values.length / 4);
}
