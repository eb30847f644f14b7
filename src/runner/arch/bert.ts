import { assertDefined } from '../../base/assert.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import type { LayerTensors } from '../weight-store.ts';
import type { Layer } from './layers.ts';

/** The weights of a layer besides those of attention. */
export interface BertLayerWeights {
  readonly attentionNorm: LayerNormWeights;
  readonly up: TensorPtr;
  readonly upBias: TensorPtr | undefined;
  /** With SwiGLU. */
  readonly gate: TensorPtr | undefined;
  readonly down: TensorPtr;
  readonly downBias: TensorPtr | undefined;
  readonly outputNorm: LayerNormWeights;
}

export interface LayerNormWeights {
  readonly weight: TensorPtr;
  readonly bias: TensorPtr;
}

export const layerNormWeights = (tensors: Pick<LayerTensors, 'vector'>, name: string): LayerNormWeights => ({
  weight: tensors.vector(`${name}.weight`),
  bias: tensors.vector(`${name}.bias`),
});

export function bertLayerWeights(tensors: LayerTensors, { bert }: ModelConfig): BertLayerWeights {
  const { network, hasUpBias, hasDownBias } = assertDefined(bert, 'an architecture of BERT');
  return {
    attentionNorm: layerNormWeights(tensors, 'attn_output_norm'),
    up: tensors.matrix('ffn_up.weight'),
    upBias: hasUpBias ? tensors.vector('ffn_up.bias') : undefined,
    gate: network === 'swiglu' ? tensors.matrix('ffn_gate.weight') : undefined,
    down: tensors.matrix('ffn_down.weight'),
    downBias: hasDownBias ? tensors.vector('ffn_down.bias') : undefined,
    outputNorm: layerNormWeights(tensors, 'layer_output_norm'),
  };
}

/**
 * BERT and its relatives. Nomic's have RoPE and SwiGLU, Jina's RoPE.
 *
 *   x -> attention -> + x -> LayerNorm -> network -> + its input -> LayerNorm
 */
export const bertLayer: Layer = (operations, weights, { x, attended }) => {
  const ofBert = assertDefined(weights.bert, 'a layer of BERT');
  const h = operations.layerNorm(operations.add(x, attended), ofBert.attentionNorm);
  return operations.layerNorm(operations.add(h, operations.bertNetwork(ofBert, h)), ofBert.outputNorm);
};
