import { assertDefined } from '../base/assert.ts';
import type { BertConfig } from './bert-config.ts';
import { type DeltaNetConfig, deltaNetChannels } from './delta-net-config.ts';
import { tensorMissing, tensorShapeWrong, tensorTypeUnsupported, tensorUnexpected } from './errors.ts';
import type { ExpertConfig } from './expert-config.ts';
import type { GgufFile } from './gguf.ts';
import type { LatentAttention } from './latent-config.ts';
import { feedForwardLengthOf, headsOfLayer } from './layer-shapes.ts';
import { type MambaConfig, mambaChannels, mambaWidth } from './mamba-config.ts';
import type { ModelConfig } from './model-config.ts';
import { headTensors } from './pooled-head.ts';
import { llama3Factors, longRopeFactors } from './rope-config.ts';
import { isWeightType, weightTypeNames } from './types.ts';

type Shape = readonly number[];

/**
 * Checks that the file has exactly the tensors of its architecture, each in its shape and in a supported type. A model
 * with an unknown tensor needs an operation that Kvasir does not compute, so its text would be wrong.
 */
export function checkTensors(file: GgufFile, config: ModelConfig): void {
  checkEqual(file.tensors, expectedTensors(config), file, config);
}

/** The same of tensors that the configuration does not list. */
export function checkEqual(
  tensors: GgufFile['tensors'],
  expected: ReadonlyMap<string, Shape>,
  { path }: Pick<GgufFile, 'path'>,
  { architecture }: Pick<ModelConfig, 'architecture'>,
): void {
  for (const [name, shape] of expected) {
    const tensor = tensors.get(name);
    if (tensor === undefined) throw tensorMissing({ path, tensor: name, architecture });
    const isShape = tensor.ne.every((length, i) => length === (shape[i] ?? 1));
    if (!isShape) {
      const found = `[${tensor.ne.join(', ')}]`;
      throw tensorShapeWrong({ path, tensor: name, found, expected: `[${shape.join(', ')}]` });
    }
    const isMatrix = shape.length > 1 && !hasOnlyF32(name);
    const isSupported = isMatrix ? isWeightType(tensor.type) : tensor.type.name === 'F32';
    if (!isSupported) {
      const supported = isMatrix ? weightTypeNames.join(', ') : 'F32';
      throw tensorTypeUnsupported({ path, tensor: name, found: tensor.type.name, supported });
    }
  }
  for (const name of tensors.keys()) {
    if (!expected.has(name)) throw tensorUnexpected({ path, tensor: name, architecture });
  }
}

/** The kernels for biases, convolutions and recurrences support only F32, also for matrices. So are BERT's two small tables. */
export const hasOnlyF32 = (name: string): boolean =>
  /^(position_embd|token_types)\.weight$/.test(name) ||
  /\.(bias|shortconv\.conv\.weight|ssm_(conv1d|norm)\.weight|ssm_[ad])$/.test(name);

/** Names and shapes in ggml's order: a matrix with n inputs and m outputs is [n, m], and of k experts [n, m, k]. */
export function expectedTensors(config: ModelConfig): Map<string, Shape> {
  const embedding = config.embeddingLength;
  const tensors = new Map<string, Shape>([
    ['token_embd.weight', [embedding, config.vocabSize]],
    ...(config.bert === undefined
      ? [[outputNormOf(config), [embedding]] as const]
      : bertEmbeddings(config.bert, embedding, config.contextLength)),
    ...(config.pooledHead === undefined ? [] : headTensors(config.pooledHead)),
  ]);
  if (!config.tiedEmbeddings) tensors.set('output.weight', [embedding, config.vocabSize]);
  const { freqFactors, dimension } = config.rope;
  const factors = freqFactors === undefined ? [] : freqFactors === llama3Factors ? [freqFactors] : longRopeFactors;
  for (const name of factors) tensors.set(name, [dimension / 2]);
  const { perLayerLength } = config;
  if (perLayerLength !== undefined) {
    const width = perLayerLength * config.layerCount;
    tensors.set('per_layer_token_embd.weight', [width, config.vocabSize]);
    tensors.set('per_layer_model_proj.weight', [embedding, width]);
    tensors.set('per_layer_proj_norm.weight', [perLayerLength]);
  }
  for (let layer = 0; layer < config.layerCount; layer++) {
    const set = (name: string, shape: Shape): unknown => tensors.set(`blk.${layer}.${name}`, shape);
    if (config.bert !== undefined) {
      setAttention(set, config, layer);
      setBertLayer(set, config, config.bert);
      continue;
    }
    if (config.norms !== 'after') set('attn_norm.weight', [embedding]);
    const isNetwork = config.networkLayers?.includes(layer) === true;
    if (config.states?.layers.includes(layer) === true) setMixer(set, config);
    else if (config.latent !== undefined) setLatentAttention(set, config, config.latent);
    else if (!isNetwork) setAttention(set, config, layer);
    if (config.networkLayers !== undefined && !isNetwork) continue;
    if (config.norms !== 'before') {
      set('post_attention_norm.weight', [embedding]);
      set('post_ffw_norm.weight', [embedding]);
    }
    // A layer that is only a network has the first norm.
    if (config.norms !== 'after' && !isNetwork) set(`${config.feedForwardNormName}.weight`, [embedding]);
    const { experts } = config;
    const isDense = experts === undefined || layer < (experts.denseLayers ?? 0);
    const width = feedForwardLengthOf(config, layer);
    if (isDense || experts.isBesideNetwork === true) setNetwork(set, config, width);
    if (isDense && config.hasNetworkBias === true) {
      for (const part of ['gate', 'up']) set(`ffn_${part}.bias`, [width]);
      set('ffn_down.bias', [embedding]);
    }
    if (!isDense) setExperts(set, config, experts);
    if (perLayerLength !== undefined) {
      set('inp_gate.weight', [embedding, perLayerLength]);
      set('proj.weight', [perLayerLength, embedding]);
      set('post_norm.weight', [embedding]);
    }
    if (config.hasLayerScale === true) set('layer_output_scale.weight', [1]);
  }
  return tensors;
}

/** LFM 2 has another name for the norm before the output head. */
export const outputNormOf = ({ architecture }: Pick<ModelConfig, 'architecture'>): string =>
  architecture === 'lfm2' || architecture === 'lfm2moe' ? 'token_embd_norm.weight' : 'output_norm.weight';

type SetShape = (name: string, shape: Shape) => unknown;

function setAttention(set: SetShape, config: ModelConfig, layer: number): void {
  const embedding = config.embeddingLength;
  const { headDim, headCountKv } = headsOfLayer(config, layer);
  const queries = config.headCount * headDim;
  const keys = headCountKv * headDim;
  const hasKv = layer < (config.sharedKvFrom ?? config.layerCount);
  set('attn_q.weight', [embedding, config.hasGatedAttention ? 2 * queries : queries]);
  if (hasKv) set('attn_k.weight', [embedding, keys]);
  if (hasKv && config.keyIsValue?.includes(layer) !== true) set('attn_v.weight', [embedding, keys]);
  set('attn_output.weight', [queries, embedding]);
  if (config.hasQkvBias) {
    set('attn_q.bias', [queries]);
    set('attn_k.bias', [keys]);
    set('attn_v.bias', [keys]);
  }
  if (config.hasOutputBias) set('attn_output.bias', [embedding]);
  if (config.hasSinks) set('attn_sinks.weight', [config.headCount]);
  if (config.qkNorm !== 'none') {
    set('attn_q_norm.weight', [config.qkNorm === 'head' ? headDim : queries]);
    if (hasKv) set('attn_k_norm.weight', [config.qkNorm === 'head' ? headDim : keys]);
  }
}

/** What is added to the embeddings of tokens, and the norm after that. */
const bertEmbeddings = (
  bert: BertConfig,
  embedding: number,
  contextLength: number,
): readonly (readonly [string, Shape])[] => [
  ...(bert.hasPositions ? [['position_embd.weight', [embedding, contextLength]] as const] : []),
  ...(bert.tokenTypes > 0 ? [['token_types.weight', [embedding, bert.tokenTypes]] as const] : []),
  ['token_embd_norm.weight', [embedding]],
  ['token_embd_norm.bias', [embedding]],
];

function setBertLayer(set: SetShape, config: ModelConfig, bert: BertConfig): void {
  const { embeddingLength: embedding, feedForwardLength } = config;
  for (const norm of ['attn_output_norm', 'layer_output_norm']) {
    set(`${norm}.weight`, [embedding]);
    set(`${norm}.bias`, [embedding]);
  }
  if (bert.network === 'swiglu') set('ffn_gate.weight', [embedding, feedForwardLength]);
  set('ffn_up.weight', [embedding, feedForwardLength]);
  set('ffn_down.weight', [feedForwardLength, embedding]);
  if (bert.hasUpBias) set('ffn_up.bias', [feedForwardLength]);
  if (bert.hasDownBias) set('ffn_down.bias', [embedding]);
}

/** A layer with a state instead of attention. */
function setMixer(set: SetShape, config: ModelConfig): void {
  const { embeddingLength: embedding, shortConvolution, mamba, deltaNet } = config;
  if (deltaNet !== undefined) {
    setDeltaNet(set, deltaNet, embedding);
    return;
  }
  if (mamba !== undefined) {
    setMamba(set, mamba, embedding);
    return;
  }
  const { taps } = assertDefined(shortConvolution, 'a layer with a state has a convolution');
  set('shortconv.conv.weight', [taps, embedding]);
  set('shortconv.in_proj.weight', [embedding, 3 * embedding]);
  set('shortconv.out_proj.weight', [embedding, embedding]);
}

function setLatentAttention(set: SetShape, config: ModelConfig, latent: LatentAttention): void {
  const { embeddingLength: embedding, headCount } = config;
  const { rank, ropeLength, queryLength, valueLength, queryRank } = latent;
  const queries = headCount * (queryLength + ropeLength);
  if (queryRank === undefined) set('attn_q.weight', [embedding, queries]);
  else {
    set('attn_q_a.weight', [embedding, queryRank]);
    set('attn_q_a_norm.weight', [queryRank]);
    set('attn_q_b.weight', [queryRank, queries]);
  }
  set('attn_kv_a_mqa.weight', [embedding, rank + ropeLength]);
  set('attn_kv_a_norm.weight', [rank]);
  set('attn_k_b.weight', [queryLength, rank, headCount]);
  set('attn_v_b.weight', [rank, valueLength, headCount]);
  set('attn_output.weight', [headCount * valueLength, embedding]);
}

function setNetwork(
  set: SetShape,
  { embeddingLength: embedding, hasNetworkGate }: ModelConfig,
  width: number,
  suffix = '',
): void {
  if (hasNetworkGate) set(`ffn_gate${suffix}.weight`, [embedding, width]);
  set(`ffn_up${suffix}.weight`, [embedding, width]);
  set(`ffn_down${suffix}.weight`, [width, embedding]);
}

function setExperts(set: SetShape, config: ModelConfig, experts: ExpertConfig): void {
  const { embeddingLength: embedding, hasExpertBias, hasNetworkGate } = config;
  const { count, feedForwardLength, sharedLength, hasSharedGate, hasChoiceBias, latentLength, hasFusedGate } = experts;
  const inner = latentLength ?? embedding;
  set('ffn_gate_inp.weight', [embedding, count]);
  if (hasChoiceBias === true) set('exp_probs_b.bias', [count]);
  if (latentLength !== undefined) {
    set('ffn_latent_down.weight', [embedding, latentLength]);
    set('ffn_latent_up.weight', [latentLength, embedding]);
  }
  if (hasFusedGate === true) set('ffn_gate_up_exps.weight', [inner, 2 * feedForwardLength, count]);
  else {
    if (hasNetworkGate) set('ffn_gate_exps.weight', [inner, feedForwardLength, count]);
    set('ffn_up_exps.weight', [inner, feedForwardLength, count]);
  }
  set('ffn_down_exps.weight', [feedForwardLength, inner, count]);
  if (hasExpertBias) {
    set('ffn_gate_inp.bias', [count]);
    set('ffn_gate_exps.bias', [feedForwardLength, count]);
    set('ffn_up_exps.bias', [feedForwardLength, count]);
    set('ffn_down_exps.bias', [embedding, count]);
  }
  if (experts.hasResultScale === true) set('ffn_down_exps.scale', [count]);
  if (experts.isBesideNetwork === true) {
    set('ffn_gate_inp.scale', [embedding]);
    for (const norm of ['pre_ffw_norm_2', 'post_ffw_norm_1', 'post_ffw_norm_2']) set(`${norm}.weight`, [embedding]);
  }
  if (sharedLength === undefined) return;
  setNetwork(set, config, sharedLength, '_shexp');
  if (hasSharedGate === true) set('ffn_gate_inp_shexp.weight', [embedding]);
}

function setMamba(set: SetShape, mamba: MambaConfig, embedding: number): void {
  const [width, channels] = [mambaWidth(mamba), mambaChannels(mamba)];
  set('ssm_in.weight', [embedding, width + channels + mamba.heads]);
  set('ssm_conv1d.weight', [mamba.taps, channels]);
  set('ssm_conv1d.bias', [channels]);
  set('ssm_dt.bias', [mamba.heads]);
  set('ssm_a', [1, mamba.heads]);
  set('ssm_d', [1, mamba.heads]);
  set('ssm_norm.weight', [width / mamba.groups, mamba.groups]);
  set('ssm_out.weight', [width, embedding]);
}

function setDeltaNet(set: SetShape, deltaNet: DeltaNetConfig, embedding: number): void {
  const [channels, width] = [deltaNetChannels(deltaNet), deltaNet.heads * deltaNet.headDim];
  if (deltaNet.hasJointProjection === true) set('ssm_in.weight', [embedding, channels + width]);
  else {
    set('attn_qkv.weight', [embedding, channels]);
    set('attn_gate.weight', [embedding, width]);
  }
  set('ssm_conv1d.weight', [deltaNet.taps, channels]);
  set('ssm_dt.bias', [deltaNet.heads]);
  set('ssm_a', [deltaNet.heads]);
  if (deltaNet.hasAdjacentHeads === true) set('ssm_ba.weight', [embedding, 2 * deltaNet.heads]);
  else for (const part of ['alpha', 'beta']) set(`ssm_${part}.weight`, [embedding, deltaNet.heads]);
  set('ssm_norm.weight', [deltaNet.headDim]);
  set('ssm_out.weight', [width, embedding]);
}
