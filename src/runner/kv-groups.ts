import type { ModelConfig } from '../ggml/model-config.ts';
import { layersOf, type PipelineStage } from './contract.ts';

/** Where a layer's KV is, and how much of it the layer reads. */
export interface LayerKv {
  /** The layer's index in the model. */
  readonly layer: number;
  /** The KV group: the index of its block table. */
  readonly group: number;
  /** The layer's index among the layers of a block. */
  readonly place: number;
  /** Tokens that a token sees, itself included; undefined: all. */
  readonly window: number | undefined;
}

/** The KV of a stage's layers, in their order. */
export function layersKv({ slidingWindow }: ModelConfig, stage: PipelineStage): readonly LayerKv[] {
  return layersOf(stage).map((layer, place) => ({
    layer,
    group: 0,
    place,
    window: slidingWindow?.layers.includes(layer) === true ? slidingWindow.window : undefined,
  }));
}
