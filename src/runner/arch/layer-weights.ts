import type { TensorPtr } from '../../ggml/ffi.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import type { LayerTensors } from '../weight-store.ts';
import { type BertLayerWeights, bertLayerWeights } from './bert.ts';
import { type DeltaNetWeights, deltaNetWeights } from './delta-net.ts';
import { type NetworkWeights, networkWeights } from './dense-network.ts';
import { type ExpertWeights, expertWeights } from './expert-network.ts';
import { type AttentionWeights, attentionWeights } from './grouped-query-attention.ts';
import { type LatentWeights, latentWeights } from './latent-attention.ts';
import { type MambaWeights, mambaWeights } from './mamba.ts';
import { type ShortConvolutionWeights, shortConvolutionWeights } from './short-convolution.ts';

/** The weights of a layer. Each part that an architecture can have is in the file of its weights. */
export interface LayerWeights extends TokenMixing {
  readonly attentionNorm: TensorPtr | undefined;
  readonly attentionPostNorm: TensorPtr | undefined;
  readonly feedForwardNorm: TensorPtr | undefined;
  /** A network, experts, or both; none of them if the layer has only attention or a state. */
  readonly network?: NetworkWeights;
  readonly experts?: ExpertWeights;
  readonly feedForwardPostNorm: TensorPtr | undefined;
  /** Instead of the norms and the network above. */
  readonly bert?: BertLayerWeights;
  /** If the layer has a network and experts. */
  readonly mixture?: MixtureWeights;
  /** Of a model with per-layer embeddings. */
  readonly tokenInput?: TokenInputLayer;
  /** F32 `[1]`: multiplies the layer's result. */
  readonly scale?: TensorPtr;
}

/** What joins a network and experts of one layer. */
export interface MixtureWeights {
  /** F32 `[embedding]`: of the router's input. */
  readonly routerScale: TensorPtr;
  readonly expertsNorm: TensorPtr;
  readonly expertsPostNorm: TensorPtr;
  readonly networkPostNorm: TensorPtr;
}

/** How a layer adds its embedding of the token. */
export interface TokenInputLayer {
  /** `[embedding, length]` */
  readonly gate: TensorPtr;
  /** `[length, embedding]` */
  readonly projection: TensorPtr;
  readonly postNorm: TensorPtr;
}

/** The part that reads other tokens: attention, or the mixer of a layer with a state. A layer has one of them, unless it is only a network. */
interface TokenMixing {
  readonly attention?: AttentionWeights;
  readonly latent?: LatentWeights;
  readonly shortConvolution?: ShortConvolutionWeights;
  readonly mamba?: MambaWeights;
  readonly deltaNet?: DeltaNetWeights;
}

export function layerWeights(tensors: LayerTensors, config: ModelConfig, index: number): LayerWeights {
  const { experts } = config;
  if (config.bert !== undefined) {
    return {
      ...withoutNorms,
      attentionNorm: undefined,
      ...tokenMixing(tensors, config, index),
      bert: bertLayerWeights(tensors, config),
    };
  }
  const norm = (name: string) => (config.norms === 'after' ? undefined : tensors.vector(`${name}.weight`));
  const postNorm = (part: string) =>
    config.norms === 'before' ? undefined : tensors.vector(`post_${part}_norm.weight`);
  const isDense = experts === undefined || index < (experts.denseLayers ?? 0);
  const hasNetwork = isDense || experts.isBesideNetwork === true;
  const networks = () => ({
    ...(hasNetwork ? { network: networkWeights(tensors, config) } : {}),
    ...(isDense ? {} : { experts: expertWeights(tensors, config, experts) }),
  });
  const { networkLayers } = config;
  if (networkLayers !== undefined) {
    return {
      ...withoutNorms,
      attentionNorm: norm('attn_norm'),
      ...(networkLayers.includes(index) ? networks() : tokenMixing(tensors, config, index)),
    };
  }
  return {
    attentionNorm: norm('attn_norm'),
    ...tokenMixing(tensors, config, index),
    attentionPostNorm: postNorm('attention'),
    feedForwardNorm: norm(config.feedForwardNormName),
    ...networks(),
    feedForwardPostNorm: postNorm('ffw'),
    ...(hasNetwork && !isDense ? { mixture: mixtureWeights(tensors) } : {}),
    ...(config.perLayerLength === undefined ? {} : { tokenInput: tokenInputLayer(tensors) }),
    ...(config.hasLayerScale === true ? { scale: tensors.vector('layer_output_scale.weight') } : {}),
  };
}

const withoutNorms = { attentionPostNorm: undefined, feedForwardNorm: undefined, feedForwardPostNorm: undefined };

const mixtureWeights = (tensors: LayerTensors): MixtureWeights => ({
  routerScale: tensors.vector('ffn_gate_inp.scale'),
  expertsNorm: tensors.vector('pre_ffw_norm_2.weight'),
  expertsPostNorm: tensors.vector('post_ffw_norm_2.weight'),
  networkPostNorm: tensors.vector('post_ffw_norm_1.weight'),
});

const tokenInputLayer = (tensors: LayerTensors): TokenInputLayer => ({
  gate: tensors.matrix('inp_gate.weight'),
  projection: tensors.matrix('proj.weight'),
  postNorm: tensors.vector('post_norm.weight'),
});

function tokenMixing(tensors: LayerTensors, config: ModelConfig, index: number): TokenMixing {
  if (config.states?.layers.includes(index) !== true) {
    const { latent } = config;
    return latent === undefined
      ? { attention: attentionWeights(tensors, config, index) }
      : { latent: latentWeights(tensors, latent) };
  }
  if (config.mamba !== undefined) return { mamba: mambaWeights(tensors) };
  if (config.deltaNet !== undefined) return { deltaNet: deltaNetWeights(tensors, config.deltaNet) };
  return { shortConvolution: shortConvolutionWeights(tensors) };
}
