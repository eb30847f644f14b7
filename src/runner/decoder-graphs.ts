import { keptGraphsMax } from '../core/kept-graphs.ts';
import { ComputeMemory } from '../ggml/compute-memory.ts';
import type { ComputeDevice } from '../ggml/device.ts';
import { GraphBuilder } from '../ggml/graph.ts';
import type { GraphKernels } from '../ggml/graph-kernels.ts';
import { buildDecoder, type DecoderGraph, type DecoderParts } from './arch/decoder.ts';
import type { Batch } from './batch.ts';

/**
 * The built graphs of a runner, for the last numbers of rows. To build and allocate a graph takes 0.2 ms for a model of a few layers, which
 * is as long as its step takes. Decodes need the same graph again and again, and with drafts a few graphs in turn.
 *
 * All graphs share the memory of their results. So a further graph costs only its tensors: about 400 bytes each, 25 per layer. On a GPU,
 * ggml's scheduler knows the places of one graph, so only the last is kept.
 */
export class DecoderGraphs {
  readonly #device: ComputeDevice;
  readonly #kernels: GraphKernels | undefined;
  /** On a CPU. */
  readonly #results: ComputeMemory | undefined;
  /** Reusable graphs, the last used last. */
  readonly #kept: DecoderGraph[] = [];
  /** Builders whose graph is not used again. */
  readonly #spare: GraphBuilder[] = [];
  #built = 0;

  constructor(device: ComputeDevice, kernels: GraphKernels | undefined) {
    this.#device = device;
    this.#kernels = kernels;
    this.#results = device.kind === 'cpu' ? new ComputeMemory(device) : undefined;
  }

  /** A kept graph that fits the batch, or a new one. The results of the last graph are invalid then. */
  graphFor(parts: Omit<DecoderParts, 'graph'>, batch: Batch): DecoderGraph {
    const index = this.#kept.findIndex((decoder) => decoder.fits(batch));
    if (index >= 0) {
      const decoder = this.#kept[index]!;
      this.#kept.splice(index, 1);
      this.#kept.push(decoder);
      decoder.rebind(batch);
      return decoder;
    }
    return this.#build(parts, batch);
  }

  /** Graphs that were built so far. */
  get built(): number {
    return this.#built;
  }

  close(): void {
    for (const { graph } of this.#kept) graph.close();
    for (const graph of this.#spare) graph.close();
    this.#results?.close();
  }

  #build(parts: Omit<DecoderParts, 'graph'>, batch: Batch): DecoderGraph {
    const graph = this.#freeBuilder();
    // The builder stays spare until its graph is kept, so that it is not lost if building fails.
    this.#spare.push(graph);
    this.#built++;
    const decoder = buildDecoder({ ...parts, graph }, batch);
    const moves = this.#results?.moves;
    try {
      graph.allocate();
    } finally {
      if (this.#results?.moves !== moves) this.#spare.push(...this.#kept.splice(0).map((kept) => kept.graph));
    }
    if (decoder.isReusable) {
      this.#spare.splice(this.#spare.indexOf(graph), 1);
      this.#kept.push(decoder);
    }
    return decoder;
  }

  #freeBuilder(): GraphBuilder {
    const spare = this.#spare.pop();
    if (spare !== undefined) return spare;
    const most = this.#device.kind === 'cpu' ? keptGraphsMax : 1;
    if (this.#kept.length >= most) return this.#kept.shift()!.graph;
    return new GraphBuilder(this.#device, this.#kernels, this.#results);
  }
}
