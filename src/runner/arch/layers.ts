import type { TensorPtr } from '../../ggml/ffi.ts';
import type { Architecture } from '../../ggml/model-config.ts';
import type { LayerStates } from '../states/layer-states.ts';
import { bert } from './bert.ts';
import { deepseek2 } from './deepseek2.ts';
import { gemma3 } from './gemma3.ts';
import { gemma4 } from './gemma4.ts';
import { glm4 } from './glm4.ts';
import { glm4moe } from './glm4moe.ts';
import { gptOss } from './gpt-oss.ts';
import { granitehybrid } from './granitehybrid.ts';
import type { LayerOperations } from './layer-operations.ts';
import type { LayerWeights } from './layer-weights.ts';
import { lfm2 } from './lfm2.ts';
import { llama } from './llama.ts';
import { mistral3 } from './mistral3.ts';
import { nemotronH } from './nemotron-h.ts';
import { olmo2 } from './olmo2.ts';
import { phi3 } from './phi3.ts';
import { qwen3moe } from './qwen3moe.ts';
import { qwen35 } from './qwen35.ts';
import { smollm3 } from './smollm3.ts';

/** What an architecture has of its own. `DecoderBuilder` has the parts that all architectures share. */
export interface ArchitectureLayers {
  readonly layer: Layer;
  /** Of architectures that have layers with a state. */
  readonly mixer?: Mixer;
}

/** The part of a layer after attention or the mixer. Returns the layer's output, F32 `[embedding, rows]`. */
export type Layer = (operations: LayerOperations, weights: LayerWeights, inputs: LayerInputs) => TensorPtr;

export interface LayerInputs {
  /** The layer's input, F32 `[embedding, rows]`. */
  readonly x: TensorPtr;
  /** In the shape of x: the result of attention after its output matrix, or of the mixer; in a layer that is only a network, x after its norm. */
  readonly attended: TensorPtr;
  /** Of a model with per-layer embeddings: the layer's own embedding of the tokens, F32 `[length, rows]`. */
  readonly tokenInput?: TensorPtr | undefined;
}

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

export const layersByArchitecture: Readonly<Record<Architecture, ArchitectureLayers>> = {
  llama,
  qwen2: llama,
  qwen3: llama,
  qwen3moe,
  gemma3,
  gemma4,
  'gpt-oss': gptOss,
  lfm2,
  deepseek2,
  granitehybrid,
  nemotron_h: nemotronH,
  nemotron_h_moe: nemotronH,
  qwen35,
  qwen35moe: qwen35,
  qwen3next: qwen35,
  smollm3,
  olmo2,
  glm4,
  glm4moe,
  lfm2moe: lfm2,
  phi3,
  mistral3,
  bert,
  'nomic-bert': bert,
  'jina-bert-v3': bert,
  'gemma-embedding': gemma3,
};
