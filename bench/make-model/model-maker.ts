/**
 * Writes models with random weights and a byte-level vocabulary, so that tests and benches need no download. Options
 * choose the architecture, the type of weights and the shape, from some hundred kilobytes to that of a real 0.6B model.
 *
 * Their text is random, but engines compute it as for real models. Equal options give equal files.
 */
import { open } from 'node:fs/promises';
import { traitsOf } from '../../src/ggml/architectures.ts';
import type { DeltaNetConfig } from '../../src/ggml/delta-net-config.ts';
import type { ExpertConfig } from '../../src/ggml/expert-config.ts';
import { type ContextPtr, type GgufPtr, loadNative, type NativeApi } from '../../src/ggml/ffi.ts';
import type { LatentAttention } from '../../src/ggml/latent-config.ts';
import type { MambaConfig } from '../../src/ggml/mamba-config.ts';
import type { Architecture, ModelConfig } from '../../src/ggml/model-config.ts';
import { hasOnlyF32 } from '../../src/ggml/tensor-list.ts';
import { type GgmlType, ggmlTypeNamed, rowBytes, type WeightTypeName } from '../../src/ggml/types.ts';
import {
  encoderConfig,
  hasBertBias,
  setEncoderMetadata,
  setUnigramVocabulary,
  setWordPieceVocabulary,
} from './encoder-models.ts';
import { fileTensors } from './file-tensors.ts';
import { type Gemma4Options, gemma4Config, setGemma4Metadata } from './gemma4-models.ts';
import {
  hasDeltaNets,
  hybridConfig,
  isHybrid,
  isNemotron,
  scalesOf,
  setHybridMetadata,
  setScales,
  setWindowLayers,
} from './hybrid-models.ts';
import { type ModelShape, shapes } from './model-shapes.ts';
import { RandomRows } from './random-rows.ts';
import { type Filler, fillerOf } from './tensor-values.ts';
import { CHAT_TEMPLATE, makeVocabulary, type Vocabulary } from './vocabulary-maker.ts';

export interface ModelOptions {
  readonly architecture: Architecture;
  /**
   * The type of the matrices. Norms and biases are F32. `Q4_K_M` mixes Q4_K and Q6_K as llama.cpp does. With MXFP4, only
   * the experts of gpt-oss have this type, and its other matrices Q8_0, as in the published files.
   */
  readonly type: WeightTypeName | 'Q4_K_M';
  /** Another type for the matrices of some layers; undefined means `type`. */
  readonly typeOfLayer?: (layer: number) => WeightTypeName | undefined;
  readonly layers?: number;
  readonly embedding?: number;
  readonly heads?: number;
  readonly headsKv?: number;
  readonly headDim?: number;
  readonly feedForward?: number;
  /** Of architectures with experts. */
  readonly experts?: ExpertConfig;
  readonly gemma4?: Gemma4Options;
  /** Of deepseek2. */
  readonly latent?: LatentAttention;
  /** Of deepseek2 and mistral3 with YaRN: the multiplier of attention's magnitude. */
  readonly yarnLogMultiplier?: number;
  /** `pooling_type` of embedding models: llama.cpp's number. */
  readonly poolingType?: number;
  /** `false` in the metadata of attention: tokens see later tokens. Default: as the architecture. */
  readonly isBidirectional?: boolean;
  /** What follows the pooling: a reranker's matrices, a matrix for the labels yes and no, or EmbeddingGemma's two. */
  readonly head?: 'rank' | 'yes or no' | 'dense';
  /** Of a reranker: the template of its prompt. */
  readonly rerankTemplate?: string;
  /** The kind of the vocabulary; default: byte-level BPE. */
  readonly vocabulary?: 'bpe' | 'word piece' | 'unigram';
  /** At least 264. */
  readonly vocab?: number;
  readonly context?: number;
  readonly seed?: number;
  /** The model has no `output.weight`. */
  readonly tied?: boolean;
  /** Biases of queries, keys and values; by default qwen2 has them. */
  readonly qkvBias?: boolean;
  readonly ropeScaling?: 'none' | 'linear' | 'yarn' | 'llama3' | 'longrope';
  /** With YaRN and LongRoPE; default: a quarter of the context. */
  readonly originalContext?: number;
  /** Of mistral3: the scale of its temperature. */
  readonly temperatureScale?: number;
  /** Of gemma3 and gpt-oss: tokens of its sliding window; 0: no layer of gemma3 has a window. Of lfm2 and olmo2: default none. */
  readonly window?: number;
  /** Of gemma3, gpt-oss and olmo2: of so many layers, the last has full attention. */
  readonly windowPattern?: number;
  /** Of gemma3 and gpt-oss: the base of RoPE in layers with a window. */
  readonly windowFreqBase?: number;
  /** Of lfm2 and olmo2 with a window: the layers that have it; default of lfm2: all layers with attention. */
  readonly windowLayers?: readonly number[];
  /** Of lfm2: taps of its convolutions. */
  readonly taps?: number;
  /** Of hybrid models: the layers with a state; default: all but each third, and each fourth of nemotron_h. */
  readonly stateLayers?: readonly number[];
  /** Of nemotron_h and nemotron_h_moe: the layers that are only a network; default: each second one. */
  readonly networkLayers?: readonly number[];
  /** Of granitehybrid and nemotron_h. */
  readonly mamba?: MambaConfig;
  /** Of glm4moe: norms of queries and keys; default: none. */
  readonly qkNorm?: 'none' | 'head';
  /** Of qwen35 and qwen35moe. */
  readonly deltaNet?: DeltaNetConfig;
  /** Of qwen35, qwen35moe, glm4 and phi3: elements of a head that are rotated; default: half of them. */
  readonly rotated?: number;
  /** Of granitehybrid: whether layers with attention have RoPE; default: they do not. */
  readonly rope?: boolean;
  /** Of qwen35, qwen35moe, deepseek2 and glm4: layers for multi-token prediction, which come after `layers`; default 0. */
  readonly predictionLayers?: number;
  /** The layers add nothing, so the next token is a function of the last one, which prediction layers know: their drafts are right. */
  readonly isPredictable?: boolean;
  /** Three reserved tokens are those for filling in the middle. */
  readonly fillsInMiddle?: boolean;
  /** Of gemma3 and gemma4: logits become `cap * tanh(logit / cap)`. */
  readonly finalSoftCap?: number;
}

/** Writes a model of less than 15 MB. Rows are long enough for every type of weights. */
export function writeTinyModel(path: string, options: ModelOptions): Promise<void> {
  return writeModel(path, options);
}

/** The same model with zeros for weights, which take no time and no space: for tests of the header. */
export async function writeTinyHeader(path: string, options: ModelOptions): Promise<void> {
  const tensors = layOut(path, options).tensors;
  const bytes = tensors.reduce((sum, { shape, type }) => sum + padded(tensorBytes(shape, typeNamed(type))), 0);
  const file = await open(path, 'r+');
  try {
    await file.truncate((await file.stat()).size + bytes);
  } finally {
    await file.close();
  }
}

/** Writes a model in the shape of a real one, so that figures of benches are realistic. */
export function writeShaped(path: string, shape: ModelShape, type: ModelOptions['type']): Promise<void> {
  return writeModel(path, { ...shapes[shape], type });
}

async function writeModel(path: string, options: ModelOptions): Promise<void> {
  const { config, tensors } = layOut(path, options);
  const elements = tensors.reduce((sum, { shape }) => sum + shape.reduce((product, length) => product * length), 0);
  const random = new RandomRows(options.seed ?? 1, elements);
  const file = await open(path, 'a');
  try {
    for (const tensor of tensors)
      await writeTensor(file, { ...tensor, fill: fillerOf(tensor.name, options, config, random) });
  } finally {
    await file.close();
  }
}

/** Writes the header. */
function layOut(path: string, options: ModelOptions) {
  const config = configOf(options);
  const shapes = fileTensors(options, config);
  const typeOf = (name: string): string => {
    const layer = /^blk\.(\d+)\./.exec(name)?.[1];
    const type = layer === undefined ? undefined : options.typeOfLayer?.(Number(layer));
    return tensorType(name, shapes.get(name) ?? [], type ?? options.type, config);
  };
  writeHeader(path, options, { config, shapes, typeOf });
  const tensors: NewTensor[] = Array.from(shapes, ([name, shape]) => ({ name, shape, type: typeOf(name) }));
  return { config, tensors };
}

/** One layer without experts before others with experts, and compressed queries, so that llama.cpp loads any number of layers. */
const tinyExperts = { count: 8, used: 3, feedForwardLength: 256 } as const;
const tinySharedExperts: ExpertConfig = {
  ...tinyExperts,
  denseLayers: 1,
  sharedLength: 512,
  gating: 'softmax',
  dividesBySum: false,
  weightScale: 1,
  hasChoiceBias: false,
};
/** As published models have them. */
const sigmoidExperts = { gating: 'sigmoid', dividesBySum: true, hasChoiceBias: true } as const;
const expertsByArchitecture: { readonly [architecture in Architecture]?: ExpertConfig } = {
  deepseek2: tinySharedExperts,
  glm4moe: { ...tinySharedExperts, ...sigmoidExperts },
  lfm2moe: { ...tinyExperts, ...sigmoidExperts, denseLayers: 1 },
  qwen35moe: { ...tinyExperts, sharedLength: 512, hasSharedGate: true },
  qwen3next: { ...tinyExperts, sharedLength: 512, hasSharedGate: true },
  nemotron_h_moe: { ...tinyExperts, ...sigmoidExperts, sharedLength: 512 },
};
const tinyLatent: LatentAttention = { rank: 256, ropeLength: 32, queryLength: 64, valueLength: 64, queryRank: 256 };

/** Shared experts are as large as in the default, relative to the others. */
function expertsOf(architecture: Architecture, given: Partial<ExpertConfig> = {}): ExpertConfig {
  const typical: ExpertConfig = expertsByArchitecture[architecture] ?? tinyExperts;
  const { feedForwardLength = typical.feedForwardLength } = given;
  if (typical.sharedLength === undefined) return { ...typical, ...given };
  const sharedLength = (typical.sharedLength / typical.feedForwardLength) * feedForwardLength;
  return { ...typical, sharedLength, ...given };
}

function configOf(options: ModelOptions): ModelConfig {
  const { architecture } = options;
  const traits = traitsOf(architecture);
  const isDeepseek = architecture === 'deepseek2';
  const latent = isDeepseek ? (options.latent ?? tinyLatent) : undefined;
  const isGemma4 = architecture === 'gemma4';
  const headDim = latent === undefined ? (options.headDim ?? (isGemma4 ? 128 : 64)) : latent.rank + latent.ropeLength;
  const isGemma = isGemma4 || architecture === 'gemma3' || architecture === 'gemma-embedding';
  const isGptOss = architecture === 'gpt-oss';
  const layerCount =
    options.layers ?? (hasFourLayers(architecture) ? 4 : isGemma4 ? (options.experts === undefined ? 5 : 3) : 2);
  const embeddingLength = options.embedding ?? 256;
  const isGated = hasDeltaNets(architecture);
  const hasExperts = traits.experts === 'always' || (traits.experts === 'maybe' && options.experts !== undefined);
  const experts = hasExperts ? expertsOf(architecture, options.experts) : undefined;
  const hasOneWidth = isNemotron(architecture) || traits.expertKeys === 'granite';
  const config: ModelConfig = {
    architecture,
    // libllama expects more special tokens in a vocabulary of a model whose name has `phi3`.
    name: `random ${architecture.replace('phi3', 'phi')} ${options.type}`,
    contextLength: options.context ?? 4096,
    vocabSize: options.vocab ?? 320,
    layerCount,
    embeddingLength,
    headCount: options.heads ?? 4,
    headCountKv:
      options.headsKv ?? (isDeepseek || isGemma4 ? 1 : traits.bertNetwork === undefined ? 2 : (options.heads ?? 4)),
    headDim,
    ...(latent === undefined ? {} : { latent }),
    feedForwardLength: options.feedForward ?? (hasOneWidth && experts !== undefined ? experts.feedForwardLength : 512),
    hasNetworkGate: traits.network !== 'squared relu',
    ...(experts === undefined ? {} : { experts }),
    rmsEpsilon: 1e-6,
    rope: ropeOf(options, latent?.ropeLength ?? headDim),
    hasQkvBias:
      options.qkvBias ?? (architecture === 'qwen2' || architecture === 'glm4moe' || isGptOss || hasBertBias(options)),
    hasOutputBias: isGptOss || hasBertBias(options),
    hasSinks: isGptOss,
    hasExpertBias: isGptOss,
    feedForwardNormName: traits.feedForwardNormName ?? 'ffn_norm',
    attentionScale: 1 / Math.sqrt(headDim),
    embeddingScale: isGemma ? Math.sqrt(embeddingLength) : 1,
    residualScale: 1,
    logitScale: 1,
    ...scalesOf(options),
    ...encoderConfig(options, embeddingLength),
    qkNorm: options.qkNorm ?? traits.qkNorm ?? 'none',
    hasGatedAttention: isGated,
    ...hybridConfig(options, layerCount, embeddingLength),
    norms: traits.norms ?? 'before',
    tiedEmbeddings: options.tied ?? (isGemma || isHybrid(architecture) || traits.isEncoder === true),
  };
  return isGemma4 ? { ...config, ...gemma4Config(options, config) } : config;
}

/** Of each kind of layer at least one. */
const hasFourLayers = (architecture: Architecture): boolean =>
  isHybrid(architecture) || ['gemma3', 'gpt-oss', 'olmo2', 'smollm3', 'gemma-embedding'].includes(architecture);

function ropeOf(options: ModelOptions, length: number): ModelConfig['rope'] {
  const { architecture, ropeScaling, rotated, context = 4096 } = options;
  const { pairs, qkNorm, hasPartialRope, hasNoRope } = traitsOf(architecture);
  const isPart = hasPartialRope === true;
  return {
    mode: hasNoRope === true || (architecture === 'granitehybrid' && options.rope !== true) ? 'none' : pairs,
    scaling: 'none',
    dimension: isPart ? (rotated ?? length / 2) : length,
    freqBase: qkNorm === 'head' && !hasDeltaNets(architecture) ? 1_000_000 : 10_000,
    freqScale: 1,
    extFactor: 0,
    attnFactor: 1,
    betaFast: 32,
    betaSlow: 1,
    originalContextLength: context,
    ...(ropeScaling === 'llama3' ? { freqFactors: 'rope_freqs.weight' } : {}),
    ...(ropeScaling === 'longrope' ? { freqFactors: 'rope_factors_long.weight' } : {}),
  };
}

function tensorType(name: string, shape: readonly number[], type: ModelOptions['type'], config: ModelConfig): string {
  if (shape.length === 1 || hasOnlyF32(name) || name.endsWith('.ffn_gate_inp.weight')) return 'F32';
  if (type === 'MXFP4' && config.architecture === 'gpt-oss') return name.includes('_exps.') ? 'MXFP4' : 'Q8_0';
  const ofMixture = type === 'Q4_K_M' ? ofQ4KM(name, config) : type;
  // As llama.cpp: another type if rows are no whole blocks.
  const isWhole = (shape[0] ?? 0) % (ggmlTypeNamed(ofMixture)?.blockSize ?? 1) === 0;
  return isWhole ? ofMixture : ofMixture === 'Q4_K' ? 'Q5_0' : 'Q8_0';
}

/** llama.cpp's mixture for Q4_K_M: more bits for the head, and for values and `ffn_down` in about half of the layers. */
function ofQ4KM(name: string, config: ModelConfig): string {
  if (name === 'output.weight' || (name === 'token_embd.weight' && config.tiedEmbeddings)) return 'Q6_K';
  const layer = Number(/^blk\.(\d+)\.(attn_v|ffn_down|ffn_down_exps)\./.exec(name)?.[1] ?? Number.NaN);
  const eighth = Math.floor(config.layerCount / 8);
  const hasMoreBits = layer < eighth || layer >= 7 * eighth || (layer - eighth) % 3 === 2;
  return hasMoreBits ? 'Q6_K' : 'Q4_K';
}

interface ModelLayout {
  readonly config: ModelConfig;
  readonly shapes: ReadonlyMap<string, readonly number[]>;
  readonly typeOf: (name: string) => string;
}

function writeHeader(path: string, options: ModelOptions, { config, shapes, typeOf }: ModelLayout): void {
  const native = loadNative();
  const gguf = native.gguf_init_empty();
  const context = native.ggml_init({
    mem_size: native.ggml_tensor_overhead() * (shapes.size + 1),
    mem_buffer: 0,
    no_alloc: true,
  });
  try {
    setMetadata(native, gguf, options, config);
    vocabularies[options.vocabulary ?? 'bpe'](native, gguf, config, options);
    for (const [name, shape] of shapes) addTensor({ native, gguf, context }, { name, shape, type: typeOf(name) });
    if (!native.gguf_write_to_file(gguf, path, true)) throw new Error(`cannot write ${path}`);
  } finally {
    native.gguf_free(gguf);
    native.ggml_free(context);
  }
}

interface NewTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly type: string;
}

interface Header {
  readonly native: NativeApi;
  readonly gguf: GgufPtr;
  readonly context: ContextPtr;
}

function addTensor({ native, gguf, context }: Header, { name, shape, type }: NewTensor): void {
  const id = ggmlTypeNamed(type)?.id ?? 0;
  const [columns = 1, rows, experts] = shape;
  const tensor =
    rows === undefined
      ? native.ggml_new_tensor_1d(context, id, columns)
      : native.ggml_new_tensor_3d(context, id, columns, rows, experts ?? 1);
  native.ggml_set_name(tensor, name);
  native.gguf_add_tensor(gguf, tensor);
}

function setMetadata(native: NativeApi, gguf: GgufPtr, options: ModelOptions, config: ModelConfig): void {
  const key = (name: string): string => `${config.architecture}.${name}`;
  const u32 = (name: string, value: number): void => native.gguf_set_val_u32(gguf, key(name), value);
  const f32 = (name: string, value: number): void => native.gguf_set_val_f32(gguf, key(name), value);
  native.gguf_set_val_str(gguf, 'general.architecture', config.architecture);
  native.gguf_set_val_str(gguf, 'general.name', config.name ?? 'random');
  u32('context_length', config.contextLength);
  if (options.poolingType !== undefined) u32('pooling_type', options.poolingType);
  const { predictionLayers = 0 } = options;
  u32('block_count', config.layerCount + predictionLayers);
  if (predictionLayers > 0) u32('nextn_predict_layers', predictionLayers);
  u32('embedding_length', config.embeddingLength);
  if (config.feedForwardLengths === undefined) u32('feed_forward_length', config.feedForwardLength);
  if (config.experts !== undefined) {
    u32('expert_count', config.experts.count);
    u32('expert_used_count', config.experts.used);
    u32('expert_feed_forward_length', config.experts.feedForwardLength);
  }
  u32('attention.head_count', config.headCount);
  if (config.architecture === 'gemma4') setGemma4Metadata(native, gguf, options, config);
  else if (config.states === undefined) u32('attention.head_count_kv', config.headCountKv);
  else setHybridMetadata(native, gguf, options, config);
  setScales(native, gguf, config);
  u32('attention.key_length', config.headDim);
  u32('attention.value_length', config.latent?.rank ?? config.headDim);
  u32('rope.dimension_count', config.rope.dimension);
  if (config.bert === undefined) f32('attention.layer_norm_rms_epsilon', config.rmsEpsilon);
  setEncoderMetadata(native, gguf, options, config);
  f32('rope.freq_base', config.rope.freqBase);
  if (options.ropeScaling === 'linear' || options.ropeScaling === 'yarn') {
    native.gguf_set_val_str(gguf, key('rope.scaling.type'), options.ropeScaling);
    f32('rope.scaling.factor', 4);
  }
  if (options.ropeScaling === 'longrope') f32('rope.scaling.attn_factor', 1.2);
  const hasOriginal = ['linear', 'yarn', 'longrope'].includes(options.ropeScaling ?? 'none');
  if (hasOriginal || options.originalContext !== undefined)
    u32('rope.scaling.original_context_length', options.originalContext ?? config.contextLength / 4);
  if (options.temperatureScale !== undefined) f32('attention.temperature_scale', options.temperatureScale);
  if (options.yarnLogMultiplier !== undefined)
    f32('rope.scaling.yarn_log_multiplier', (config.latent === undefined ? 1 : 0.1) * options.yarnLogMultiplier);
  if (['gemma3', 'gpt-oss', 'gemma-embedding'].includes(config.architecture)) setWindow(native, gguf, options, config);
  if (config.architecture === 'olmo2' && options.window !== undefined) setWindow(native, gguf, options, config);
  if (config.latent !== undefined) setLatentMetadata(native, gguf, config, config.latent);
  if (config.experts?.denseLayers !== undefined) setRouterMetadata(native, gguf, config, config.experts);
}

/** A small window, so that short prompts of tests are longer. */
function setWindow(native: NativeApi, gguf: GgufPtr, options: ModelOptions, config: ModelConfig): void {
  const key = (name: string): string => `${options.architecture}.${name}`;
  native.gguf_set_val_u32(gguf, key('attention.sliding_window'), options.window ?? 40);
  const { windowLayers } = options;
  if (windowLayers === undefined) {
    native.gguf_set_val_u32(gguf, key('attention.sliding_window_pattern'), options.windowPattern ?? 2);
  } else setWindowLayers(native, gguf, config, windowLayers);
  if (options.finalSoftCap !== undefined)
    native.gguf_set_val_f32(gguf, key('final_logit_softcapping'), options.finalSoftCap);
  if (options.windowFreqBase !== undefined)
    native.gguf_set_val_f32(gguf, key('rope.freq_base_swa'), options.windowFreqBase);
}

function setLatentMetadata(native: NativeApi, gguf: GgufPtr, config: ModelConfig, latent: LatentAttention): void {
  const u32 = (name: string, value: number): void =>
    native.gguf_set_val_u32(gguf, `${config.architecture}.${name}`, value);
  u32('attention.kv_lora_rank', latent.rank);
  u32('attention.key_length_mla', latent.queryLength + latent.ropeLength);
  u32('attention.value_length_mla', latent.valueLength);
  if (latent.queryRank !== undefined) u32('attention.q_lora_rank', latent.queryRank);
}

function setRouterMetadata(native: NativeApi, gguf: GgufPtr, config: ModelConfig, experts: ExpertConfig): void {
  const key = (name: string): string => `${config.architecture}.${name}`;
  native.gguf_set_val_u32(gguf, key('leading_dense_block_count'), experts.denseLayers ?? 0);
  native.gguf_set_val_u32(gguf, key('expert_gating_func'), experts.gating === 'sigmoid' ? 2 : 1);
  if (experts.sharedLength === undefined) return;
  native.gguf_set_val_u32(gguf, key('expert_shared_count'), experts.sharedLength / experts.feedForwardLength);
  native.gguf_set_val_bool(gguf, key('expert_weights_norm'), experts.dividesBySum ?? true);
  native.gguf_set_val_f32(gguf, key('expert_weights_scale'), experts.weightScale ?? 1);
}

function setVocabulary(native: NativeApi, gguf: GgufPtr, config: ModelConfig, options: ModelOptions): void {
  const vocabulary: Vocabulary = makeVocabulary(config.vocabSize);
  const isLlama = config.architecture === 'llama';
  const splitting = isLlama ? 'llama-bpe' : config.architecture === 'gpt-oss' ? 'gpt-4o' : 'qwen2';
  const key = (name: string): string => `tokenizer.ggml.${name}`;
  const int32 = 5;
  native.gguf_set_val_str(gguf, key('model'), 'gpt2');
  native.gguf_set_val_str(gguf, key('pre'), splitting);
  native.gguf_set_arr_str(gguf, key('tokens'), vocabulary.tokens, vocabulary.tokens.length);
  native.gguf_set_arr_data(gguf, key('token_type'), int32, vocabulary.types, vocabulary.types.length);
  native.gguf_set_arr_str(gguf, key('merges'), vocabulary.merges, vocabulary.merges.length);
  native.gguf_set_val_u32(gguf, key('bos_token_id'), vocabulary.endOfText);
  native.gguf_set_val_u32(gguf, key('eos_token_id'), vocabulary.endOfTurn);
  native.gguf_set_val_u32(gguf, key('padding_token_id'), vocabulary.endOfText);
  native.gguf_set_val_bool(gguf, key('add_bos_token'), isLlama);
  for (const [i, name] of (options.fillsInMiddle === true ? ['fim_pre', 'fim_suf', 'fim_mid'] : []).entries())
    native.gguf_set_val_u32(gguf, key(`${name}_token_id`), vocabulary.reserved + i);
  native.gguf_set_val_str(gguf, 'tokenizer.chat_template', CHAT_TEMPLATE);
}

const vocabularies: Readonly<Record<NonNullable<ModelOptions['vocabulary']>, typeof setVocabulary>> = {
  bpe: setVocabulary,
  'word piece': (native, gguf, { vocabSize }) => setWordPieceVocabulary(native, gguf, vocabSize),
  unigram: (native, gguf, { vocabSize }) => setUnigramVocabulary(native, gguf, vocabSize),
};

/** Elements that are quantized and written together. */
const CHUNK = 1 << 21;
const ALIGNMENT = 32;

async function writeTensor(
  file: Awaited<ReturnType<typeof open>>,
  { shape, type: typeName, fill }: NewTensor & { readonly fill: Filler },
): Promise<void> {
  const native = loadNative();
  const type = typeNamed(typeName);
  const [columns = 1, rowsOfMatrix = 1, matrices = 1] = shape;
  const rows = rowsOfMatrix * matrices;
  const rowsPerChunk = Math.max(1, Math.min(rows, Math.floor(CHUNK / columns)));
  const source = new Float32Array(rowsPerChunk * columns);
  const target = new Uint8Array(rowsPerChunk * rowBytes(type, columns));
  let written = 0;
  for (let row = 0; row < rows; row += rowsPerChunk) {
    const count = Math.min(rowsPerChunk, rows - row);
    fill(source, count, columns, row);
    const bytes = native.ggml_quantize_chunk(type.id, source, target, 0, count, columns, null);
    await file.write(target, 0, bytes);
    written += bytes;
  }
  const padding = padded(written) - written;
  if (padding > 0) await file.write(new Uint8Array(padding));
}

const padded = (bytes: number): number => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;

function tensorBytes([columns = 1, rows = 1, matrices = 1]: readonly number[], type: GgmlType): number {
  return rowBytes(type, columns) * rows * matrices;
}

function typeNamed(name: string): GgmlType {
  const type = ggmlTypeNamed(name);
  if (type === undefined) throw new Error(`no type ${name}`);
  return type;
}
