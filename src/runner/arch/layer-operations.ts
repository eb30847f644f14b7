import { assertDefined } from '../../base/assert.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import type { RopeConfig } from '../../ggml/rope-config.ts';
import { F32 } from '../../ggml/types.ts';
import type { Matmuls } from '../matmul/matmuls.ts';
import type { Mixers } from '../mixer/mixers.ts';
import type { LayerStates } from '../states/layer-states.ts';
import type { LayerWeights, NetworkWeights } from '../weights.ts';
import { type ExpertVariant, expertNetwork } from './expert-network.ts';

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
    const mixers = assertDefined(this.#mixers, 'a model with states has mixers');
    return mixers.shortConvolution(this.#graph, x, { kernel, activation: 'none' }, { states, firstElement: 0 });
  }

  /** RMS norm. */
  norm(x: TensorPtr, weight: TensorPtr): TensorPtr {
    return this.#graph.rmsNorm(x, weight, this.#config.rmsEpsilon);
  }

  /** `down(silu(gate(h)) * up(h))` */
  swiglu(weights: NetworkWeights, h: TensorPtr): TensorPtr {
    return this.#matmuls.multiply(weights.down, this.#graph.swiglu(...this.#gateAndUp(weights, h)));
  }

  /** `down(gelu(gate(h)) * up(h))` */
  geglu(weights: NetworkWeights, h: TensorPtr): TensorPtr {
    return this.#matmuls.multiply(weights.down, this.#graph.geglu(...this.#gateAndUp(weights, h)));
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
    let shaped = graph.reshape3d(x, headDim, heads, graph.rowCountOf(x));
    if (norm !== undefined) shaped = this.norm(shaped, norm);
    return graph.rope(shaped, positions, this.#ropeFreqs, rope);
  }

  #gateAndUp(weights: NetworkWeights, h: TensorPtr): [gate: TensorPtr, up: TensorPtr] {
    const gate = this.#matmuls.multiply(weights.gate, h, 'several');
    return [gate, this.#matmuls.multiply(weights.up, h, 'several')];
  }
}
