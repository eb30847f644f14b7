import type { ComputeDevice } from '../ggml/device.ts';
import type { TensorPtr } from '../ggml/ffi.ts';
import type { GgufFile } from '../ggml/gguf.ts';
import type { ModelConfig } from '../ggml/model-config.ts';
import type { HeadLayer } from '../ggml/pooled-head.ts';
import type { RopeConfig } from '../ggml/rope-config.ts';
import { outputNormOf } from '../ggml/tensor-list.ts';
import { type LayerNormWeights, layerNormWeights } from './arch/bert.ts';
import { type LayerWeights, layerWeights } from './arch/layer-weights.ts';
import { type TokenInputWeights, tokenInputWeights } from './arch/token-inputs.ts';
import { isFirstStage, isLastStage, layersOf, type PipelineStage } from './contract.ts';
import { type LoadProgress, type PlacedMatrix, type PlacementOptions, WeightStore } from './weight-store.ts';

/** The weights that turn the last layer's output into logits. */
export interface OutputHead {
  /** Undefined in BERT's architectures, whose layers end with a norm. */
  readonly norm: TensorPtr | undefined;
  /** `[embedding, vocab]`; undefined if the model makes no text. */
  readonly output: TensorPtr | undefined;
  /** What follows the pooling. */
  readonly pooled: readonly PooledLayer[];
}

/** `activation(weight * x + bias)` */
export interface PooledLayer extends Pick<HeadLayer, 'outputs' | 'activation'> {
  readonly weight: TensorPtr;
  readonly bias: TensorPtr | undefined;
}

/** In BERT's architectures: what is added to the embeddings of tokens, and the norm after that. */
export interface EmbeddingWeights {
  /** `[embedding, positions]` */
  readonly positions: TensorPtr | undefined;
  /** `[embedding, types]` */
  readonly types: TensorPtr | undefined;
  readonly norm: LayerNormWeights;
}

/** Weights of a prediction layer: they make its input of the embedding of a token and a hidden state. */
export interface PredictionEntry {
  readonly embeddingNorm: TensorPtr;
  readonly hiddenNorm: TensorPtr;
  /** `[2 * embedding, embedding]`, first for the embedding. */
  readonly projection: TensorPtr;
}

/** The weights of one pipeline stage, or of a whole model. */
export interface ModelWeights {
  /** Undefined if this is not the first stage. */
  readonly tokenEmbedding: TensorPtr | undefined;
  /** Only with `tokenEmbedding`, in BERT's architectures. */
  readonly embedding: EmbeddingWeights | undefined;
  /** Of a prediction layer, whose input is tokens and hidden states. */
  readonly entry?: PredictionEntry;
  /** Undefined if this is not the last stage. */
  readonly head: OutputHead | undefined;
  readonly ropeFreqs: TensorPtr | undefined;
  /** Of a model with per-layer embeddings, in each stage. */
  readonly tokenInputs: TokenInputWeights | undefined;
  /** The index in the model of the first layer. */
  readonly firstLayer: number;
  /** The stage's layers in order. */
  readonly layers: readonly LayerWeights[];
  /** All matrices of matmuls with every row. */
  readonly matrices: readonly PlacedMatrix[];
  /** All matrices `[inputs, outputs, experts or heads]` of matmuls with the rows of an expert or a head. */
  readonly expertMatrices: readonly PlacedMatrix[];
  readonly byteLength: number;
  /** After a step. @throws modelFileChanged if a mapped file was written: what was computed with it may be wrong */
  checkMapped(): void;
  close(): void;
}

export interface WeightOptions extends PlacementOptions {
  /** The stage whose weights are read. */
  readonly stage: PipelineStage;
  readonly onProgress?: LoadProgress | undefined;
}

function ropeDivisors(store: WeightStore, { freqFactors, divisors }: RopeConfig): TensorPtr | undefined {
  if (divisors !== undefined) return store.constant('rope_divisors', Float32Array.from(divisors));
  return freqFactors === undefined ? undefined : store.vector(freqFactors);
}

/**
 * Places and reads the weights of a model, or of one stage of a model. `WeightStore` decides where.
 * Throws `outOfNativeMemory` and errors of reading the file.
 */
export async function loadWeights(
  device: ComputeDevice,
  file: GgufFile,
  config: ModelConfig,
  options: WeightOptions,
): Promise<ModelWeights> {
  const store = new WeightStore(device, file, options);
  const { stage } = options;
  const weights = {
    tokenEmbedding: isFirstStage(stage) ? store.table('token_embd.weight') : undefined,
    embedding: isFirstStage(stage) ? embeddingWeights(store, config) : undefined,
    head: isLastStage(stage) ? outputHead(store, config) : undefined,
    ropeFreqs: ropeDivisors(store, config.rope),
    tokenInputs: config.perLayerLength === undefined ? undefined : tokenInputWeights(store),
    firstLayer: stage.firstLayer,
    layers: layersOf(stage).map((layer) => layerWeights(store.ofLayer(layer), config, layer)),
  };
  try {
    await store.load(options.onProgress);
  } catch (error) {
    store.close();
    throw error;
  }
  return {
    ...weights,
    matrices: store.matrices,
    expertMatrices: store.expertMatrices,
    byteLength: store.byteLength,
    checkMapped: () => store.checkMapped(),
    close: () => store.close(),
  };
}

function outputHead(store: WeightStore, config: ModelConfig): OutputHead {
  return {
    norm: config.bert === undefined ? store.vector(outputNormOf(config)) : undefined,
    output:
      config.isEncoder === true
        ? undefined
        : store.matrix(config.tiedEmbeddings ? 'token_embd.weight' : 'output.weight'),
    pooled: (config.pooledHead?.layers ?? []).map(({ weight, bias, outputs, activation }) => ({
      weight: store.router(weight),
      bias: bias === undefined ? undefined : store.vector(bias),
      outputs,
      activation,
    })),
  };
}

function embeddingWeights(store: WeightStore, { bert }: ModelConfig): EmbeddingWeights | undefined {
  if (bert === undefined) return undefined;
  return {
    positions: bert.hasPositions ? store.table('position_embd.weight') : undefined,
    types: bert.tokenTypes > 0 ? store.table('token_types.weight') : undefined,
    norm: layerNormWeights(store, 'token_embd_norm'),
  };
}
