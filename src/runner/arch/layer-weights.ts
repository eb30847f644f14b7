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
  /** Either a network or experts; neither if the layer has only attention or a state. */
  readonly network?: NetworkWeights;
  readonly experts?: ExpertWeights;
  readonly feedForwardPostNorm: TensorPtr | undefined;
  /** Instead of the norms and the network above. */
  readonly bert?: BertLayerWeights;
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
  const network = () =>
    isDense ? { network: networkWeights(tensors, config) } : { experts: expertWeights(tensors, config, experts) };
  const { networkLayers } = config;
  if (networkLayers !== undefined) {
    return {
      ...withoutNorms,
      attentionNorm: norm('attn_norm'),
      ...(networkLayers.includes(index) ? network() : tokenMixing(tensors, config, index)),
    };
  }
  return {
    attentionNorm: norm('attn_norm'),
    ...tokenMixing(tensors, config, index),
    attentionPostNorm: postNorm('attention'),
    feedForwardNorm: norm(config.feedForwardNormName),
    ...network(),
    feedForwardPostNorm: postNorm('ffw'),
  };
}

const withoutNorms = { attentionPostNorm: undefined, feedForwardNorm: undefined, feedForwardPostNorm: undefined };

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
