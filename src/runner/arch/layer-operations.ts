import { assertDefined } from '../../base/assert.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import type { Matmuls } from '../matmul/matmuls.ts';
import type { Mixers } from '../mixer/mixers.ts';
import type { LayerStates } from '../states/layer-states.ts';
import type { BertLayerWeights, LayerNormWeights } from './bert.ts';
import { deltaNet } from './delta-net.ts';
import type { NetworkWeights } from './dense-network.ts';
import { type ExpertVariant, type ExpertWeights, expertNetwork } from './expert-network.ts';
import type { LayerWeights, TokenInputLayer } from './layer-weights.ts';
import { mamba } from './mamba.ts';
import type { MixerParts } from './mixer-parts.ts';
import { shortConvolution } from './short-convolution.ts';

interface OperationParts {
  readonly graph: GraphBuilder;
  readonly config: ModelConfig;
  readonly matmuls: Matmuls;
  readonly mixers: Mixers | undefined;
}

/** The operations from which architectures build their layers. Rows of tensors are tokens. */
export class LayerOperations {
  readonly #graph: GraphBuilder;
  readonly #config: ModelConfig;
  readonly #matmuls: Matmuls;
  readonly #mixers: Mixers | undefined;

  constructor({ graph, config, matmuls, mixers }: OperationParts) {
    this.#graph = graph;
    this.#config = config;
    this.#matmuls = matmuls;
    this.#mixers = mixers;
  }

  get embeddingLength(): number {
    return this.#config.embeddingLength;
  }

  /** Adds the result of attention, a mixer or a network to the hidden states, times the model's scale. */
  add(x: TensorPtr, added: TensorPtr): TensorPtr {
    const { residualScale } = this.#config;
    return this.#graph.add(x, residualScale === 1 ? added : this.#graph.scale(added, residualScale));
  }

  /** A gated short convolution, which continues the states of the layer. */
  shortConvolution(weights: LayerWeights, h: TensorPtr, states: LayerStates): TensorPtr {
    const ofMixer = assertDefined(weights.shortConvolution, 'a layer with a short convolution');
    return shortConvolution(this.#mixerParts(undefined), ofMixer, h, states);
  }

  /** The recurrence of Mamba-2, which continues the states of the layer. */
  mamba(weights: LayerWeights, h: TensorPtr, states: LayerStates): TensorPtr {
    const config = assertDefined(this.#config.mamba, 'a model with Mamba-2');
    return mamba(this.#mixerParts(config), assertDefined(weights.mamba, 'a layer with Mamba-2'), h, states);
  }

  /** A gated delta net, which continues the states of the layer. */
  deltaNet(weights: LayerWeights, h: TensorPtr, states: LayerStates): TensorPtr {
    const config = assertDefined(this.#config.deltaNet, 'a model with delta nets');
    return deltaNet(this.#mixerParts(config), assertDefined(weights.deltaNet, 'a layer with a delta net'), h, states);
  }

  #mixerParts<Config>(config: Config): MixerParts<Config> {
    const mixers = assertDefined(this.#mixers, 'a model with states has mixers');
    const { rmsEpsilon } = this.#config;
    return { graph: this.#graph, matmuls: this.#matmuls, mixers, config, rmsEpsilon };
  }

  /** RMS norm; x itself if there is no weight. */
  norm(x: TensorPtr, weight: TensorPtr | undefined): TensorPtr {
    if (weight === undefined) return x;
    return this.#graph.rmsNorm(x, weight, this.#config.rmsEpsilon);
  }

  layerNorm(x: TensorPtr, { weight, bias }: LayerNormWeights): TensorPtr {
    return this.#graph.layerNorm(x, weight, bias, this.#config.rmsEpsilon);
  }

  /** `down(gelu(up(h)))`, or with a gate `down(silu(gate(h)) * up(h))`; with the biases that there are. */
  bertNetwork({ gate, up, upBias, down, downBias }: BertLayerWeights, h: TensorPtr): TensorPtr {
    const raised = this.project(up, upBias, h);
    const active =
      gate === undefined
        ? this.#graph.activate('gelu', raised)
        : this.#graph.swiglu(this.#matmuls.multiply(gate, h, 'several'), raised);
    return this.multiplyAndAdd(down, downBias, active);
  }

  /** A SwiGLU network, or one without a gate; or a mixture of experts, and the shared network if there is one. */
  network(weights: LayerWeights, h: TensorPtr): TensorPtr {
    const { experts } = weights;
    if (experts === undefined) return this.#network(networkOf(weights), h);
    const mixture = this.experts(weights, h);
    return experts.shared === undefined
      ? mixture
      : this.#graph.add(mixture, this.#sharedNetwork(experts, experts.shared, h));
  }

  /** `down(gelu(gate(h)) * up(h))` */
  geglu(weights: LayerWeights, h: TensorPtr): TensorPtr {
    const { gate, up, down } = networkOf(weights);
    const hidden = this.#graph.geglu(
      this.#ofSeveral(assertDefined(gate, 'a network with a gate'), h),
      this.#ofSeveral(up, h),
    );
    return this.#matmuls.multiply(down, hidden);
  }

  /** RMS norm without weights, times a vector and a factor. */
  scaledNorm(x: TensorPtr, vector: TensorPtr, factor: number): TensorPtr {
    const graph = this.#graph;
    return graph.multiply(graph.scale(graph.rmsNorm(x, undefined, this.#config.rmsEpsilon), factor), vector);
  }

  /**
   * The layer's embedding of the tokens, F32 `[length, rows]`, multiplied by a gate of the hidden states and projected to their
   * length.
   */
  gatedTokenInput({ gate, projection, postNorm }: TokenInputLayer, x: TensorPtr, tokenInput: TensorPtr): TensorPtr {
    const gated = this.#graph.geglu(this.#matmuls.multiply(gate, x), tokenInput);
    return this.norm(this.#matmuls.multiply(projection, gated), postNorm);
  }

  /** Times a vector of one element. */
  times(x: TensorPtr, scale: TensorPtr): TensorPtr {
    return this.#graph.multiply(x, scale);
  }

  /** A mixture of SwiGLU networks, of which a router chooses some for each row. */
  experts(weights: LayerWeights, h: TensorPtr, variant: ExpertVariant = {}): TensorPtr {
    const experts = assertDefined(this.#config.experts, 'an architecture with experts');
    const parts = { graph: this.#graph, matmuls: this.#matmuls, experts, variant };
    return expertNetwork(parts, assertDefined(weights.experts, 'a layer with experts'), h);
  }

  /** The product with one of several matrices that `h` is multiplied by. */
  project(weight: TensorPtr, bias: TensorPtr | undefined, h: TensorPtr): TensorPtr {
    return this.#addBias(this.#matmuls.multiply(weight, h, 'several'), bias);
  }

  /** The product with the only matrix that `x` is multiplied by. */
  multiplyAndAdd(weight: TensorPtr, bias: TensorPtr | undefined, x: TensorPtr): TensorPtr {
    return this.#addBias(this.#matmuls.multiply(weight, x), bias);
  }

  #addBias(product: TensorPtr, bias: TensorPtr | undefined): TensorPtr {
    return bias === undefined ? product : this.#graph.add(product, bias);
  }

  /** The network that computes for every token. Its gate multiplies rows one by one, as routers do. */
  #sharedNetwork({ sharedGate }: ExpertWeights, shared: NetworkWeights, h: TensorPtr): TensorPtr {
    const graph = this.#graph;
    if (sharedGate === undefined) return this.#network(shared, h);
    const gate = graph.multiplySingleRows(sharedGate, h);
    return graph.multiply(this.#network(shared, h), graph.activate('sigmoid', gate));
  }

  /** `down(silu(gate(h)) * up(h))`, or `down(relu(up(h))^2)` */
  #network({ gate, up, down, biases }: NetworkWeights, h: TensorPtr): TensorPtr {
    const hidden =
      gate === undefined
        ? this.#graph.squaredRelu(this.#matmuls.multiply(up, h))
        : this.#graph.swiglu(this.project(gate, biases?.gate, h), this.project(up, biases?.up, h));
    return this.multiplyAndAdd(down, biases?.down, hidden);
  }

  #ofSeveral(matrix: TensorPtr, h: TensorPtr): TensorPtr {
    return this.#matmuls.multiply(matrix, h, 'several');
  }
}

const networkOf = ({ network }: LayerWeights): NetworkWeights =>
  assertDefined(network, 'a layer without experts has one network');
