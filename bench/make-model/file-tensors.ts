/** The tensors of a file, where they are others than those that Kvasir reads. */
import type { ModelConfig } from '../../src/ggml/model-config.ts';
import { expectedTensors } from '../../src/ggml/tensor-list.ts';
import type { ModelOptions } from './model-maker.ts';

type Shapes = ReadonlyMap<string, readonly number[]>;

export function fileTensors(options: ModelOptions, config: ModelConfig): Shapes {
  return withPrediction(config, options.predictionLayers ?? 0);
}

/** Prediction layers have attention, a network like the last layer's, and what joins an embedding and a hidden state. */
function withPrediction(config: ModelConfig, count: number): Shapes {
  const { embeddingLength: embedding, layerCount } = config;
  const shapes = new Map(expectedTensors({ ...config, layerCount: layerCount + count }));
  for (let layer = layerCount; layer < layerCount + count; layer++) {
    const name = (rest: string): string => `blk.${layer}.nextn.${rest}.weight`;
    shapes.set(name('eh_proj'), [2 * embedding, embedding]);
    for (const norm of ['enorm', 'hnorm', 'shared_head_norm']) shapes.set(name(norm), [embedding]);
  }
  return shapes;
}
