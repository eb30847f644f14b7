import { assertDefined } from '../../base/assert.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import type { RopeConfig } from '../../ggml/rope-config.ts';
import { F32 } from '../../ggml/types.ts';
import type { Matmuls } from '../matmul/matmuls.ts';
import type { Mixers } from '../mixer/mixers.ts';
import type { LayerStates } from '../states/layer-states.ts';
import type { DeltaNetWeights, LayerWeights, MambaWeights, NetworkWeights } from '../weights.ts';
import { deltaNet } from './delta-net.ts';
import { type ExpertVariant, expertNetwork } from './expert-network.ts';
import { mamba } from './mamba.ts';

interface OperationParts {
  readonly graph: GraphBuilder;
  readonly config: ModelConfig;
  readonly matmuls: Matmuls;
  readonly mixers: Mixers | undefined;
  readonly ropeFreqs: TensorPtr | undefined;
}

/** The operations from which architectures build their layers. Rows of tensors are tokens. */
export class LayerOperations {
  readonly #graph: GraphBuilder;
  readonly #config: ModelConfig;
  readonly #matmuls: Matmuls;
  readonly #mixers: Mixers | undefined;
  readonly #ropeFreqs: TensorPtr | undefined;

  constructor({ graph, config, matmuls, mixers, ropeFreqs }: OperationParts) {
    this.#graph = graph;
    this.#config = config;
    this.#matmuls = matmuls;
    this.#mixers = mixers;
    this.#ropeFreqs = ropeFreqs;
  }

  add(a: TensorPtr, b: TensorPtr): TensorPtr {
    return this.#graph.add(a, b);
  }

  /** x, and `added` times the model's scale. */
  addScaled(x: TensorPtr, added: TensorPtr): TensorPtr {
    const { residualScale } = this.#config;
    return this.#graph.add(x, residualScale === 1 ? added : this.#graph.scale(added, residualScale));
  }

  multiply(a: TensorPtr, b: TensorPtr): TensorPtr {
    return this.#graph.multiply(a, b);
  }

  /** `[3 n, rows]` -> three of `[n, rows]`: the first, the second and the last elements of each row. */
  thirds(x: TensorPtr): readonly [TensorPtr, TensorPtr, TensorPtr] {
    const graph = this.#graph;
    const width = graph.columnCountOf(x) / 3;
    const rowBytes = 3 * width * F32.typeSize;
    const third = (index: number): TensorPtr =>
      graph.view2d(x, width, graph.rowCountOf(x), rowBytes, index * width * F32.typeSize);
    return [third(0), third(1), third(2)];
  }

  /** A convolution of each channel over its last tokens, which continues the states of the layer. */
  convolution(kernel: TensorPtr, x: TensorPtr, states: LayerStates): TensorPtr {
    const weights = { kernel, activation: 'none' } as const;
    return this.#ownMixers.shortConvolution(this.#graph, x, weights, { states, firstElement: 0 });
  }

  /** The recurrence of Mamba-2, which continues the states of the layer. */
  mamba(weights: MambaWeights, h: TensorPtr, states: LayerStates): TensorPtr {
    const { mamba: config, rmsEpsilon } = this.#config;
    const parts = {
      graph: this.#graph,
      matmuls: this.#matmuls,
      mixers: this.#ownMixers,
      config: assertDefined(config, 'a model with Mamba-2'),
      rmsEpsilon,
    };
    return mamba(parts, weights, h, states);
  }

  /** A gated delta net, which continues the states of the layer. */
  deltaNet(weights: DeltaNetWeights, h: TensorPtr, states: LayerStates): TensorPtr {
    const { deltaNet: config, rmsEpsilon } = this.#config;
    const parts = {
      graph: this.#graph,
      matmuls: this.#matmuls,
      mixers: this.#ownMixers,
      config: assertDefined(config, 'a model with delta nets'),
      rmsEpsilon,
    };
    return deltaNet(parts, weights, h, states);
  }

  get #ownMixers(): Mixers {
    return assertDefined(this.#mixers, 'a model with states has mixers');
  }

  /** RMS norm. */
  norm(x: TensorPtr, weight: TensorPtr): TensorPtr {
    return this.#graph.rmsNorm(x, weight, this.#config.rmsEpsilon);
  }

  /** `down(silu(gate(h)) * up(h))` */
  swiglu(weights: NetworkWeights, h: TensorPtr): TensorPtr {
    return this.#matmuls.multiply(weights.down, this.#graph.swiglu(...this.#gateAndUp(weights, h)));
  }

  /** The shared network, times a gate of each row. The gate multiplies rows one by one, as routers do. */
  gatedShared({ shared, sharedGate }: LayerWeights, h: TensorPtr): TensorPtr {
    const graph = this.#graph;
    const [width, rows] = [graph.columnCountOf(h), graph.rowCountOf(h)];
    const router = assertDefined(sharedGate, 'a layer whose shared network has a gate');
    const gate = graph.mulMat(router, graph.reshape3d(h, width, 1, rows));
    const network = this.swiglu(assertDefined(shared, 'a layer with a shared network'), h);
    return graph.multiply(network, graph.sigmoid(graph.reshape2d(gate, 1, rows)));
  }

  /** `down(gelu(gate(h)) * up(h))` */
  geglu(weights: NetworkWeights, h: TensorPtr): TensorPtr {
    return this.#matmuls.multiply(weights.down, this.#graph.geglu(...this.#gateAndUp(weights, h)));
  }

  /** A SwiGLU network, or a mixture of them if the layer has a router. */
  network(weights: LayerWeights, h: TensorPtr): TensorPtr {
    return weights.router === undefined ? this.swiglu(weights, h) : this.experts(weights, h);
  }

  /** A mixture of SwiGLU networks, of which a router chooses some for each row. */
  experts(weights: LayerWeights, h: TensorPtr, variant: ExpertVariant = {}): TensorPtr {
    const experts = assertDefined(this.#config.experts, 'an architecture with experts');
    return expertNetwork({ graph: this.#graph, matmuls: this.#matmuls, experts, variant }, weights, h);
  }

  /** Experts and the network that computes for every token, or, in layers without experts, one SwiGLU network. */
  sharedExperts(weights: LayerWeights, h: TensorPtr): TensorPtr {
    if (weights.router === undefined) return this.swiglu(weights, h);
    const shared = assertDefined(weights.shared, 'an architecture with shared experts');
    return this.add(this.experts(weights, h), this.swiglu(shared, h));
  }

  /** The product with one of several matrices that `h` is multiplied by. */
  project(weight: TensorPtr, bias: TensorPtr | undefined, h: TensorPtr): TensorPtr {
    const product = this.#matmuls.multiply(weight, h, 'several');
    return bias === undefined ? product : this.#graph.add(product, bias);
  }

  /** F32 `[heads * headDim, rows]` -> normed per head if the model has norms, rotated: `[headDim, heads, rows]`. */
  rotate(x: TensorPtr, norm: TensorPtr | undefined, positions: TensorPtr, rope: RopeConfig): TensorPtr {
    const graph = this.#graph;
    const { headDim } = this.#config;
    const heads = graph.columnCountOf(x) / headDim;
    return this.rotateHeads(graph.reshape3d(x, headDim, heads, graph.rowCountOf(x)), norm, positions, rope);
  }

  /** The same for `[headDim, heads, rows]`. */
  rotateHeads(x: TensorPtr, norm: TensorPtr | undefined, positions: TensorPtr, rope: RopeConfig): TensorPtr {
    const graph = this.#graph;
    const shaped = norm === undefined ? x : this.norm(x, norm);
    if (rope.mode === 'none') return shaped;
    return graph.rope(shaped, positions, this.#ropeFreqs, rope);
  }

  #gateAndUp(weights: NetworkWeights, h: TensorPtr): [gate: TensorPtr, up: TensorPtr] {
    const gate = this.#matmuls.multiply(weights.gate, h, 'several');
    return [gate, this.#matmuls.multiply(weights.up, h, 'several')];
  }
}
