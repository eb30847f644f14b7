import type { NativeApi, RawPtr, TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { ActivationQuantization, TileFunctions, TileShape } from './tiled-matmul.ts';

/**
 * The matrices of a layer's experts, `[inputs, outputs, experts]`, laid out as tiles. The operations give what
 * `ggml_mul_mat_id` gives, F32 `[outputs, chosen, tokens]`, with the bits of our matmul with the expert's matrix alone.
 */
export class TiledExperts {
  readonly activations: ActivationQuantization;
  readonly #native: NativeApi;
  readonly #functions: TileFunctions;
  readonly #shape: TileShape;
  /** `struct matrix` of tiles.h. */
  readonly #record: BigInt64Array<ArrayBuffer>;

  constructor(native: NativeApi, functions: TileFunctions, shape: TileShape, record: BigInt64Array<ArrayBuffer>) {
    this.activations = shape.activations;
    this.#native = native;
    this.#functions = functions;
    this.#shape = shape;
    this.#record = record;
  }

  /**
   * Sorts pairs of a token and an expert by expert: chosen experts, I32 `[chosen, tokens]`, become an `order` of
   * expert-operations.h, which all matrices with as many experts may share.
   */
  orderPairs(graph: GraphBuilder, chosen: TensorPtr): TensorPtr {
    const pairs = graph.columnCountOf(chosen) * graph.rowCountOf(chosen);
    const width = 2 * pairs + this.#shape.experts + 1;
    return this.#custom(graph, [chosen], width, 1, this.#functions.orderPairs);
  }

  /**
   * Quantizes x, F32 `[inputs, chosen or 1, tokens]`, for `multiply`, in the order of experts. Matrices with equal inputs
   * and equal quantization may share it.
   */
  quantizeInOrder(graph: GraphBuilder, x: TensorPtr, order: TensorPtr, pairs: number): TensorPtr {
    return this.#custom(graph, [x, order], this.#shape.quantizedWidth, pairs, this.#functions.quantizeInOrder);
  }

  /** F32 `[outputs, pairs]`, of the result of `quantizeInOrder`. */
  multiply(graph: GraphBuilder, quantized: TensorPtr, order: TensorPtr): TensorPtr {
    const pairs = graph.rowCountOf(quantized);
    return this.#custom(graph, [quantized, order], this.#shape.outputs, pairs, this.#functions.multiplyExperts);
  }

  /** F32 `[outputs, chosen]`, of one token: x `[inputs, chosen or 1, 1]`, and its chosen experts. */
  multiplyToken(graph: GraphBuilder, x: TensorPtr, chosen: TensorPtr): TensorPtr {
    const count = graph.columnCountOf(chosen);
    return this.#custom(graph, [x, chosen], this.#shape.outputs, count, this.#functions.multiplyExpertsOfToken);
  }

  // biome-ignore lint/complexity/useMaxParams: the parameters of `GraphBuilder.custom`
  #custom(graph: GraphBuilder, sources: readonly TensorPtr[], ne0: number, ne1: number, compute: RawPtr): TensorPtr {
    const address = this.#native.addressOf(this.#record.buffer) as RawPtr;
    return graph.custom(sources, ne0, ne1, compute, address, this.#record);
  }
}
