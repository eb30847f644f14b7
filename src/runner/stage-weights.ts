import { type GgufFile, weightBytesOf } from '../ggml/gguf.ts';
import type { ModelConfig } from '../ggml/model-config.ts';
import { isFirstStage, isLastStage, type PipelineStage } from './contract.ts';

/** Bytes of the weights that a stage reads (`loadWeights`). `predicts`: the last stage also reads the prediction layer. */
export function stageWeightBytes(
  file: GgufFile,
  config: Embeddings & Pick<ModelConfig, 'bert'>,
  stage: PipelineStage,
  predicts: boolean,
): number {
  const isRead = (tensor: string): boolean => {
    const [, layer] = /^blk\.(\d+)\./.exec(tensor) ?? [];
    if (layer !== undefined) return Number(layer) >= stage.firstLayer && Number(layer) < stage.endLayer;
    if (tensor === 'token_embd.weight') return readsEmbedding(stage, config);
    if (config.bert !== undefined && ofEmbedding.test(tensor)) return isFirstStage(stage);
    return everywhere.test(tensor) || isLastStage(stage);
  };
  const tensors = new Map([...file.tensors].filter(([tensor]) => isRead(tensor)));
  return weightBytesOf({ ...file, tensors }, predicts && isLastStage(stage));
}

type Embeddings = Pick<ModelConfig, 'tiedEmbeddings' | 'perLayerLength'>;

const readsEmbedding = (stage: PipelineStage, { tiedEmbeddings, perLayerLength }: Embeddings): boolean =>
  isFirstStage(stage) || perLayerLength !== undefined || (tiedEmbeddings && isLastStage(stage));

const ofEmbedding = /^(position_embd|token_types|token_embd_norm)\./;
const everywhere = /^(rope_|per_layer_)/;
