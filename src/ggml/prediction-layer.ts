import { predictionLayerMissing } from './errors.ts';
import type { GgufFile } from './gguf.ts';
import type { ModelConfig } from './model-config.ts';
import { predictionLayers } from './model-tensors.ts';
import { checkEqual, expectedTensors } from './tensor-list.ts';

/** The name of a tensor that only a prediction layer has. Its other tensors are those of a layer with attention. */
export const predictionTensor = (layer: number, rest: string): string => `blk.${layer}.nextn.${rest}.weight`;

/** Tensors that a file may leave out, because the model's own serve as well. */
const optional = ['embed_tokens', 'shared_head_head', 'shared_head_norm'] as const;

/**
 * The names and shapes of the tensors of one prediction layer, which comes after the model's layers. `has`: whether the file has an
 * optional tensor.
 */
export function expectedPrediction(
  config: ModelConfig,
  has: (name: string) => boolean,
): Map<string, readonly number[]> {
  const { layerCount: layer, embeddingLength: embedding, vocabSize } = config;
  const own = [...expectedTensors({ ...config, layerCount: layer + 1 })].filter(([name]) =>
    name.startsWith(`blk.${layer}.`),
  );
  const shapes = new Map<string, readonly number[]>(own);
  shapes.set(predictionTensor(layer, 'eh_proj'), [2 * embedding, embedding]);
  for (const norm of ['enorm', 'hnorm']) shapes.set(predictionTensor(layer, norm), [embedding]);
  for (const rest of optional) {
    const name = predictionTensor(layer, rest);
    if (has(name)) shapes.set(name, rest === 'shared_head_norm' ? [embedding] : [embedding, vocabSize]);
  }
  return shapes;
}

/** @throws KvasirError if the file does not have exactly one prediction layer, with exactly its tensors. */
export function checkPrediction(file: GgufFile, config: ModelConfig): void {
  const { metadata, path, predictionTensors } = file;
  const count = predictionLayers(metadata, config.architecture);
  const refuse = (reason: string): Error => predictionLayerMissing({ path, reason });
  if (count === 0) throw refuse(`${config.architecture}.nextn_predict_layers is 0`);
  if (count > 1) throw refuse(`it has ${count} such layers, and Kvasir can draft with one`);
  if (predictionTensors.size === 0) throw refuse('the tensors of that layer were left out of the file');
  const has = (name: string): boolean => predictionTensors.has(name);
  checkEqual(predictionTensors, expectedPrediction(config, has), file, config);
}
