/**
 * The configuration of a model from its metadata, checked against its tensors. Keys, defaults and tensor names are
 * those of llama.cpp v0.5.0 (`llama_model_base::load_hparams`, and `src/models` for each architecture), so that both compute
 * the same model. One key is more: a pattern of windows in lfm2, where llama.cpp gives the window to all layers with attention.
 */
import {
  type Architecture,
  architectures,
  marksStatesByHeads,
  type Norms,
  type QkNorm,
  traitsOf,
} from './architectures.ts';
import { type BertConfig, readBertConfig } from './bert-config.ts';
import { type DeltaNetConfig, deltaNetElements, readDeltaNetConfig, readDeltaNetLayers } from './delta-net-config.ts';
import { architectureUnsupported, modelFeatureUnsupported, tensorShapeWrong } from './errors.ts';
import type { ExpertConfig } from './expert-config.ts';
import { readExperts } from './expert-variants.ts';
import { gemma4Rope, readGemma4Layers, readGemma4Parts, readGemma4Window } from './gemma4-config.ts';
import type { GgufFile } from './gguf.ts';
import type { GgufMetadata } from './gguf-metadata.ts';
import { type LatentAttention, latentAttentionScale, readLatentAttention } from './latent-config.ts';
import type { HeadShape } from './layer-shapes.ts';
import { type MambaConfig, mambaElements, readMambaConfig } from './mamba-config.ts';
import { predictionLayers } from './model-tensors.ts';
import { type PooledHead, readPooledHead } from './pooled-head.ts';
import { isBidirectional, refuseFeatures } from './refused-features.ts';
import { type RopeConfig, readRopeConfig } from './rope-config.ts';
import { readSlidingWindow, type SlidingWindow, type WindowDefaults } from './sliding-window.ts';
import { checkTensors } from './tensor-list.ts';

export interface ModelConfig extends HeadShape {
  readonly architecture: Architecture;
  /** `general.name`, for people. */
  readonly name?: string;
  /** Tokens of context for which the model was trained. */
  readonly contextLength: number;
  /** Tokens also see later tokens: the model makes embeddings or scores, and no text. */
  readonly isEncoder?: boolean;
  /** Present in BERT's architectures. */
  readonly bert?: BertConfig;
  /** Present if matrices follow the pooling. */
  readonly pooledHead?: PooledHead;
  readonly vocabSize: number;
  readonly layerCount: number;
  readonly embeddingLength: number;
  readonly headCount: number;
  /** The first layer that has no K and V of its own: it and all later layers read those of earlier ones (`kvLayerOf`). */
  readonly sharedKvFrom?: number;
  /** Layers without `blk.N.attn_v.weight`: V is the product with the matrix of K. */
  readonly keyIsValue?: readonly number[];
  /** Present if K and V of all heads are made from one row per token. */
  readonly latent?: LatentAttention;
  readonly feedForwardLength: number;
  /**
   * Present if each layer has attention, a recurrent state or a network alone: those with a network, ascending. Such a layer has neither
   * K and V nor a state.
   */
  readonly networkLayers?: readonly number[];
  /** Networks and experts have `blk.N.ffn_gate*.weight`. Without it, their activation is the square of ReLU. */
  readonly hasNetworkGate: boolean;
  /** `blk.N.ffn_{gate,up,down}.bias` of every layer; default false. */
  readonly hasNetworkBias?: boolean;
  /** By layer, if not all networks have one width. */
  readonly feedForwardLengths?: readonly number[];
  /** Present if each layer has a second embedding of the token: its length. */
  readonly perLayerLength?: number;
  /** `blk.N.layer_output_scale.weight` multiplies the result of each layer. */
  readonly hasLayerScale?: boolean;
  /** Present if feed-forward networks are mixtures of experts. */
  readonly experts?: ExpertConfig;
  /** Of RMS norms, or of LayerNorms in BERT's architectures. */
  readonly rmsEpsilon: number;
  /** Of layers with full attention. */
  readonly rope: RopeConfig;
  /** Present if some layers have sliding-window attention. */
  readonly slidingWindow?: SlidingWindow;
  /** Present if some layers have a recurrent state instead of K and V. */
  readonly states?: StateConfig;
  /** Taps of the convolutions of layers with a state. */
  readonly shortConvolution?: { readonly taps: number };
  /** The shape of layers with a state, if they have Mamba-2. */
  readonly mamba?: MambaConfig;
  /** The shape of layers with a state, if they have gated delta nets. */
  readonly deltaNet?: DeltaNetConfig;
  /** Factor of the dot product of a query and a key. */
  readonly attentionScale: number;
  /** Factor of the embeddings of tokens. */
  readonly embeddingScale: number;
  /** Factor of what attention, mixers and networks add to the hidden states. */
  readonly residualScale: number;
  /** Factor of logits. */
  readonly logitScale: number;
  /** Logits become `cap * tanh(logit / cap)`. */
  readonly finalSoftCap?: number;
  /** Every layer has `blk.N.attn_{q,k,v}.bias`. */
  readonly hasQkvBias: boolean;
  /** Every layer has `blk.N.attn_output.bias`. */
  readonly hasOutputBias: boolean;
  /** Every layer has `blk.N.attn_sinks.weight`: a score per query head, which is added to the softmax without a value. */
  readonly hasSinks: boolean;
  /** `blk.N.attn_{q,k}_norm.weight` of every layer with attention. */
  readonly qkNorm: QkNorm;
  /** `blk.N.{attn,ffn}_norm.weight` and `blk.N.post_{attention,ffw}_norm.weight` of every layer. */
  readonly norms: Norms;
  /** Present if queries of later tokens are multiplied by a larger factor. */
  readonly temperature?: AttentionTemperature;
  /** `blk.N.attn_q.weight` has a gate besides each query. */
  readonly hasGatedAttention: boolean;
  /** `blk.N.*.weight`: the norm before the feed-forward network. */
  readonly feedForwardNormName: 'ffn_norm' | 'post_attention_norm';
  /** Routers and experts have biases. */
  readonly hasExpertBias: boolean;
  /** No `output.weight`: the output head is the token embedding. */
  readonly tiedEmbeddings: boolean;
}

/** The query at a position is multiplied by `1 + scale * ln(1 + floor(position / interval))`. */
export interface AttentionTemperature {
  readonly scale: number;
  /** Tokens with an equal factor. */
  readonly interval: number;
}

/** Layers whose tokens continue a state of the tokens before, instead of attention. */
export interface StateConfig {
  /** Their indices, ascending. */
  readonly layers: readonly number[];
  /** F32 numbers in one state of one layer. */
  readonly elements: number;
}

export type { Architecture } from './architectures.ts';

/**
 * Reads the configuration, and checks that the file has every tensor in its shape. `maxModelLen`: the longest sequence, which
 * chooses LongRoPE's divisors; default: the context length of the model. Throws errors of `errors.ts`.
 */
export function readModelConfig(file: GgufFile, maxModelLen?: number): ModelConfig {
  const { metadata } = file;
  const architecture = readArchitecture(file);
  refuseFeatures(file, architecture);
  const positive = (name: string, fallback?: number): number => {
    const key = `${architecture}.${name}`;
    const value = metadata.require(key, metadata.u32(key) ?? fallback);
    if (value < 1 || value > 1 << 24) throw metadata.invalid(key, 'between 1 and 2^24');
    return value;
  };
  const embeddingLength = positive('embedding_length');
  const headCount = positive('attention.head_count');
  const layerCount = readLayerCount(metadata, architecture, positive('block_count'));
  const latent = architecture === 'deepseek2' ? readLatentAttention(file, architecture) : undefined;
  const gemma4 = architecture === 'gemma4' ? readGemma4Layers(file, layerCount, headCount) : undefined;
  const { headCountKv, layersWithout } =
    latent === undefined && gemma4 === undefined
      ? readHeadCountKv(file, architecture, layerCount, headCount)
      : { headCountKv: gemma4?.full.headCountKv ?? 1, layersWithout: [] };
  const headDim =
    latent === undefined
      ? (gemma4?.full.headDim ?? readHeadDim(file, architecture, embeddingLength, headCount))
      : latent.rank + latent.ropeLength;
  const bert = readBertConfig(file, architecture);
  const traits = traitsOf(architecture);
  const networkLayers =
    traits.hasSinglePartLayers === true ? readNetworkLayers(file, architecture, layerCount, layersWithout) : undefined;
  const stateLayers =
    traits.mixer === 'delta net'
      ? readDeltaNetLayers(file, architecture, layerCount)
      : layersWithout.filter((layer) => networkLayers?.layers.includes(layer) !== true);
  const rmsEpsilon = readEpsilon(metadata, architecture);
  const name = metadata.string('general.name');
  const contextLength = positive('context_length');
  const longest = maxModelLen ?? contextLength;
  const read = readRopeConfig(file, architecture, { length: latent?.ropeLength ?? headDim, contextLength, longest });
  const rope = gemma4 === undefined ? read : gemma4Rope(read);
  const isGemma3 = architecture === 'gemma3' || architecture === 'gemma-embedding';
  const isGemma = isGemma3 || gemma4 !== undefined;
  const isGptOss = architecture === 'gpt-oss';
  const windowDefaults = windowDefaultsOf(architecture, rope, stateLayers);
  const slidingWindow =
    gemma4 === undefined
      ? windowDefaults && readSlidingWindow(file, architecture, layerCount, windowDefaults)
      : readGemma4Window(file, gemma4, rope);
  const temperature = readTemperature(metadata, architecture, rope);
  const finalSoftCap = readFinalSoftCap(metadata, architecture);
  const gemma4Parts = gemma4 && readGemma4Parts(file, gemma4, layerCount);
  const feedForwardLength =
    networkLayers?.width ?? gemma4Parts?.feedForwardLengths?.[0] ?? positive('feed_forward_length');
  const vocabSize = readVocabSize(file);
  const experts = readExperts(file, architecture, { feedForwardLength, layerCount, vocabSize });
  const scales = readScales(file, architecture);
  const isEncoder = traits.isEncoder === true || isBidirectional(metadata, architecture);
  const pooledHead = readPooledHead(file, architecture, { embedding: embeddingLength, isEncoder });
  const mayHaveBiases = bert !== undefined || traits.hasBiases === true;
  const config: ModelConfig = {
    architecture,
    ...(name === undefined ? {} : { name }),
    contextLength,
    ...(isEncoder ? { isEncoder } : {}),
    ...(bert === undefined ? {} : { bert }),
    ...(pooledHead === undefined ? {} : { pooledHead }),
    vocabSize,
    layerCount,
    embeddingLength,
    headCount,
    headCountKv,
    headDim,
    ...(latent === undefined ? {} : { latent }),
    feedForwardLength,
    ...(networkLayers === undefined ? {} : { networkLayers: networkLayers.layers }),
    hasNetworkGate: traits.network !== 'squared relu',
    ...gemma4Parts,
    ...(experts === undefined ? {} : { experts }),
    rmsEpsilon,
    rope,
    ...(slidingWindow === undefined ? {} : { slidingWindow }),
    ...(stateLayers.length === 0 ? {} : readStates(file, architecture, stateLayers, embeddingLength)),
    attentionScale: isGemma3
      ? gemmaScale(layerCount, embeddingLength, headCount, headDim)
      : latent === undefined
        ? (scales.attention ?? (gemma4 === undefined ? 1 / Math.sqrt(headDim) : 1))
        : latentAttentionScale(file, architecture, latent, rope),
    embeddingScale: isGemma ? Math.sqrt(embeddingLength) : (scales.embedding ?? 1),
    residualScale: scales.residual ?? 1,
    logitScale: 1 / (scales.logits ?? 1),
    ...(finalSoftCap === 0 ? {} : { finalSoftCap }),
    hasQkvBias: file.tensors.has('blk.0.attn_q.bias'),
    hasOutputBias: isGptOss || (mayHaveBiases && file.tensors.has('blk.0.attn_output.bias')),
    ...(mayHaveBiases && bert === undefined && file.tensors.has('blk.0.ffn_down.bias') ? { hasNetworkBias: true } : {}),
    hasSinks: isGptOss,
    qkNorm: qkNormOf(file, architecture),
    ...(temperature === undefined ? {} : { temperature }),
    hasGatedAttention: traits.mixer === 'delta net',
    norms: traits.norms ?? 'before',
    feedForwardNormName: traits.feedForwardNormName ?? 'ffn_norm',
    hasExpertBias: isGptOss,
    tiedEmbeddings: !isGptOss && !file.tensors.has('output.weight'),
  };
  checkTensors(file, config);
  return config;
}

/** Gemma 3 and OLMo 3 have no RoPE scaling in layers with a window. In lfm2, all layers with attention may have one. */
function windowDefaultsOf(
  architecture: Architecture,
  rope: RopeConfig,
  stateLayers: readonly number[],
): WindowDefaults | undefined {
  const unscaled = { ...rope, scaling: 'none', freqScale: 1, extFactor: 0, attnFactor: 1 } as const;
  if (architecture === 'gemma3' || architecture === 'gemma-embedding')
    return { pattern: 6, rope: { ...rope, freqBase: 10_000, freqScale: 1 } };
  if (architecture === 'olmo2') return { pattern: 4, rope: unscaled };
  if (architecture === 'lfm2') return { pattern: 0, rope, others: stateLayers };
  return architecture === 'gpt-oss' ? { pattern: 2, rope } : undefined;
}

/** Of glm4moe, only large models have these norms. */
function qkNormOf({ tensors }: GgufFile, architecture: Architecture): QkNorm {
  if (architecture === 'glm4moe' && tensors.has('blk.0.attn_q_norm.weight')) return 'head';
  return traitsOf(architecture).qkNorm ?? 'none';
}

function readTemperature(
  metadata: GgufMetadata,
  architecture: Architecture,
  { originalContextLength }: RopeConfig,
): AttentionTemperature | undefined {
  const scale = metadata.f32(`${architecture}.attention.temperature_scale`) ?? 0;
  if (scale === 0) return undefined;
  if (originalContextLength < 1) {
    throw metadata.invalid(`${architecture}.rope.scaling.original_context_length`, 'at least 1');
  }
  return { scale, interval: originalContextLength };
}

/** 0: none. As in llama.cpp, logits of Gemma 4 have a cap without the key too. */
function readFinalSoftCap(metadata: GgufMetadata, architecture: Architecture): number {
  if (architecture !== 'gemma3' && architecture !== 'gemma4') return 0;
  const key = `${architecture}.final_logit_softcapping`;
  const cap = metadata.f32(key) ?? (architecture === 'gemma4' ? 30 : 0);
  if (cap < 0) throw metadata.invalid(key, 'not negative');
  return cap;
}

/** The factors of Granite; undefined where the file has none or 0. Logits are divided by theirs. */
function readScales({ metadata }: GgufFile, architecture: Architecture) {
  const read = (name: string): number | undefined =>
    traitsOf(architecture).hasScales === true ? metadata.f32(`${architecture}.${name}`) || undefined : undefined;
  return {
    attention: read('attention.scale'),
    embedding: read('embedding_scale'),
    residual: read('residual_scale'),
    logits: read('logit_scale'),
  };
}

/** The layers with a state, and the shape of their mixers. */
function readStates(
  file: GgufFile,
  architecture: Architecture,
  layers: readonly number[],
  embeddingLength: number,
): Pick<ModelConfig, 'states' | 'mamba' | 'deltaNet' | 'shortConvolution'> {
  const { mixer } = traitsOf(architecture);
  if (mixer === 'delta net') {
    const deltaNet = readDeltaNetConfig(file, architecture);
    return { deltaNet, states: { layers, elements: deltaNetElements(deltaNet) } };
  }
  if (mixer === 'mamba') {
    const mamba = readMambaConfig(file, architecture);
    return { mamba, states: { layers, elements: mambaElements(mamba) } };
  }
  const taps = readTaps(file, architecture);
  return { shortConvolution: { taps }, states: { layers, elements: (taps - 1) * embeddingLength } };
}

/** Gemma 3 27B, which llama.cpp recognizes by its 62 layers, scales by the embedding's part of a head. */
function gemmaScale(layerCount: number, embeddingLength: number, headCount: number, headDim: number): number {
  return 1 / Math.sqrt(layerCount === 62 ? Math.floor(embeddingLength / headCount) : headDim);
}

function readArchitecture({ metadata, path }: GgufFile): Architecture {
  const key = 'general.architecture';
  const found = metadata.require(key, metadata.string(key));
  const architecture = architectures.find((name) => name === found);
  if (architecture === undefined) throw architectureUnsupported({ path, found, supported: architectures.join(', ') });
  return architecture;
}

/** Layers that are computed: those of the file without prediction layers. */
function readLayerCount(metadata: GgufMetadata, architecture: Architecture, blockCount: number): number {
  if (blockCount > 512) throw metadata.invalid(`${architecture}.block_count`, 'at most 512');
  const predicted = predictionLayers(metadata, architecture);
  if (predicted >= blockCount) {
    throw metadata.invalid(`${architecture}.nextn_predict_layers`, `less than block_count, which is ${blockCount}`);
  }
  return blockCount - predicted;
}

/**
 * KV heads of the layers with attention, and the layers without KV heads, which have a state instead. Only hybrid
 * architectures have such layers.
 */
function readHeadCountKv({ metadata, path }: GgufFile, architecture: Architecture, layers: number, headCount: number) {
  const key = `${architecture}.attention.head_count_kv`;
  const ofFile = layers + predictionLayers(metadata, architecture);
  const counts = metadata.u32OfLayers(key, ofFile)?.slice(0, layers) ?? Array<number>(layers).fill(headCount);
  const headCountKv = Math.max(...counts);
  if (headCountKv === 0 || headCount % headCountKv !== 0) {
    throw metadata.invalid(key, `a divisor of head_count, which is ${headCount}`);
  }
  const found = `head_count_kv = ${[...new Set(counts)].join(', ')}`;
  if (counts.some((count) => count !== headCountKv && count !== 0)) {
    throw modelFeatureUnsupported({ path, architecture, feature: 'layers with different numbers of KV heads', found });
  }
  const layersWithout = counts.flatMap((count, layer) => (count === 0 ? [layer] : []));
  if (layersWithout.length > 0 && !marksStatesByHeads(traitsOf(architecture))) {
    throw modelFeatureUnsupported({ path, architecture, feature: 'layers without attention', found });
  }
  return { headCountKv, layersWithout };
}

/**
 * The layers with a network, and its width, of an architecture whose other layers have none. `layersWithout`: layers without KV heads.
 * As in llama.cpp, a layer with a width has a network, also if other metadata says otherwise.
 */
function readNetworkLayers(
  { metadata, path }: GgufFile,
  architecture: Architecture,
  layerCount: number,
  layersWithout: readonly number[],
): { readonly layers: readonly number[]; readonly width: number } {
  const key = `${architecture}.feed_forward_length`;
  const ofFile = layerCount + predictionLayers(metadata, architecture);
  const widths = metadata.require(key, metadata.u32OfLayers(key, ofFile)).slice(0, layerCount);
  const layers = widths.flatMap((width, layer) => (width > 0 ? [layer] : []));
  const width = Math.max(...widths);
  if (width < 1 || width > 1 << 24) throw metadata.invalid(key, 'between 1 and 2^24 for a layer with a network');
  if (layers.some((layer) => widths[layer] !== width)) {
    const found = `feed_forward_length = ${[...new Set(widths)].join(', ')}`;
    throw modelFeatureUnsupported({ path, architecture, feature: 'layers of different sizes', found });
  }
  if (new Set([...layers, ...layersWithout]).size === layerCount) {
    const found = 'KV heads in no layer without a network';
    throw modelFeatureUnsupported({ path, architecture, feature: 'no layer with attention', found });
  }
  return { layers, width };
}

/** Of RMS norms. Files of Nemotron may have only the number of other norms. */
function readEpsilon(metadata: GgufMetadata, architecture: Architecture): number {
  const { hasSinglePartLayers: isNemotron = false, bertNetwork } = traitsOf(architecture);
  const key = `${architecture}.attention.layer_norm_${bertNetwork === undefined ? 'rms_' : ''}epsilon`;
  const other = isNemotron ? metadata.f32(`${architecture}.attention.layer_norm_epsilon`) : undefined;
  const epsilon = metadata.require(key, metadata.f32(key) ?? other);
  if (epsilon < 0) throw metadata.invalid(key, 'not negative');
  return epsilon;
}

/** Tokens that a short convolution reads, its own token included. */
function readTaps({ metadata }: GgufFile, architecture: Architecture): number {
  const key = `${architecture}.shortconv.l_cache`;
  const taps = metadata.require(key, metadata.u32(key));
  if (taps < 2 || taps > 64) throw metadata.invalid(key, 'between 2 and 64');
  return taps;
}

function readHeadDim(
  { metadata, path }: GgufFile,
  architecture: Architecture,
  embedding: number,
  heads: number,
): number {
  const keyName = `${architecture}.attention.key_length`;
  const keyLength = metadata.u32(keyName) ?? Math.floor(embedding / heads);
  const valueLength = metadata.u32(`${architecture}.attention.value_length`) ?? Math.floor(embedding / heads);
  if (keyLength !== valueLength) {
    const found = `key_length = ${keyLength}, value_length = ${valueLength}`;
    throw modelFeatureUnsupported({ path, architecture, feature: 'keys and values of different lengths', found });
  }
  if (keyLength < 2 || keyLength > 1024 || keyLength % 2 !== 0) {
    throw metadata.invalid(keyName, 'an even number between 2 and 1024');
  }
  return keyLength;
}

/** The rows of the embedding matrix; the tokenizer's list of tokens must have the same length. */
function readVocabSize({ metadata, tensors, path }: GgufFile): number {
  const embedding = tensors.get('token_embd.weight');
  const tokens = metadata.array('tokenizer.ggml.tokens');
  const rows = embedding?.ne[1] ?? tokens?.length ?? 0;
  if (tokens !== undefined && tokens.length !== rows) {
    throw tensorShapeWrong({
      path,
      tensor: 'token_embd.weight',
      found: `[${embedding?.ne.join(', ')}]`,
      expected: `${tokens.length} rows, one per token of the vocabulary`,
    });
  }
  return rows;
}
