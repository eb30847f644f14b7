import type { ComputeDevice } from '../../ggml/device.ts';
import type { GgufFile } from '../../ggml/gguf.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import { predictionTensor } from '../../ggml/prediction-layer.ts';
import { layerWeights } from '../arch/layer-weights.ts';
import { type PlacementOptions, WeightStore } from '../weight-store.ts';
import type { ModelWeights, OutputHead } from '../weights.ts';

export interface PredictionWeightOptions extends PlacementOptions {
  /** The weights of the last stage, which may have no embeddings. */
  readonly model: Pick<ModelWeights, 'tokenEmbedding' | 'ropeFreqs'> & { readonly head: OutputHead };
}

/**
 * The weights of the prediction layer, as a model of one layer. It shares the embeddings and the output head of the model, unless the
 * file has others for it.
 */
export async function loadPredictionWeights(
  device: ComputeDevice,
  file: GgufFile,
  config: ModelConfig,
  { model, ...options }: PredictionWeightOptions,
): Promise<ModelWeights> {
  const tensors = new Map([...file.tensors, ...file.predictionTensors]);
  const store = new WeightStore(device, { ...file, tensors }, options);
  const layer = config.layerCount;
  const name = (rest: string): string => predictionTensor(layer, rest);
  const ownOr = <T>(rest: string, own: (name: string) => T, shared: () => T): T =>
    file.predictionTensors.has(name(rest)) ? own(name(rest)) : shared();
  const table = (tensor: string) => store.table(tensor);
  const weights = {
    tokenEmbedding: ownOr('embed_tokens', table, () => model.tokenEmbedding ?? table('token_embd.weight')),
    head: {
      norm: ownOr(
        'shared_head_norm',
        (tensor) => store.vector(tensor),
        () => model.head.norm,
      ),
      output: ownOr(
        'shared_head_head',
        (tensor) => store.matrix(tensor),
        () => model.head.output,
      ),
      pooled: [],
    },
    embedding: undefined,
    entry: {
      embeddingNorm: store.vector(name('enorm')),
      hiddenNorm: store.vector(name('hnorm')),
      projection: store.matrix(name('eh_proj')),
    },
    ropeFreqs: model.ropeFreqs,
    tokenInputs: undefined,
    firstLayer: layer,
    layers: [layerWeights(store.ofLayer(layer), config, layer)],
  };
  try {
    await store.load();
  } catch (error) {
    store.close();
    throw error;
  }
  const { matrices, expertMatrices, byteLength } = store;
  const checkMapped = (): void => store.checkMapped();
  return { ...weights, matrices, expertMatrices, byteLength, checkMapped, close: () => store.close() };
}
