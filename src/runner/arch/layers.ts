import type { TensorPtr } from '../../ggml/ffi.ts';
import type { Architecture } from '../../ggml/model-config.ts';
import type { LayerStates } from '../states/layer-states.ts';
import { deepseek2Layer } from './deepseek2.ts';
import { gemma3Layer } from './gemma3.ts';
import { gptOssLayer } from './gpt-oss.ts';
import { granitehybridLayer, granitehybridMixer } from './granitehybrid.ts';
import type { LayerOperations } from './layer-operations.ts';
import type { LayerWeights } from './layer-weights.ts';
import { lfm2Mixer } from './lfm2.ts';
import { llamaLayer } from './llama.ts';
import { qwen3moeLayer } from './qwen3moe.ts';
import { qwen35Mixer, qwen35moeLayer } from './qwen35.ts';

/**
 * The part of a layer after attention. `x` is the layer's input, and `attended` the result of attention after its
 * output matrix, both F32 `[embedding, rows]`. Returns the layer's output in this shape.
 */
export type Layer = (
  operations: LayerOperations,
  weights: LayerWeights,
  x: TensorPtr,
  attended: TensorPtr,
) => TensorPtr;

/** Each architecture's layer. `DecoderBuilder` has the parts that all architectures share. */
export const layers: Readonly<Record<Architecture, Layer>> = {
  llama: llamaLayer,
  qwen2: llamaLayer,
  qwen3: llamaLayer,
  qwen3moe: qwen3moeLayer,
  gemma3: gemma3Layer,
  'gpt-oss': gptOssLayer,
  lfm2: llamaLayer,
  deepseek2: deepseek2Layer,
  granitehybrid: granitehybridLayer,
  qwen35: llamaLayer,
  qwen35moe: qwen35moeLayer,
};

/**
 * The part of a layer that continues a state instead of attention. `h` is the layer's input after its norm, F32
 * `[embedding, rows]`. Returns the result in this shape; the architecture's `Layer` gets it as `attended`.
 */
export type Mixer = (
  operations: LayerOperations,
  weights: LayerWeights,
  h: TensorPtr,
  states: LayerStates,
) => TensorPtr;

/** Mixers of the architectures that have layers with a state. */
export const mixers: Readonly<Partial<Record<Architecture, Mixer>>> = {
  lfm2: lfm2Mixer,
  granitehybrid: granitehybridMixer,
  qwen35: qwen35Mixer,
  qwen35moe: qwen35Mixer,
};
