import { assertDefined } from '../../base/assert.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { Batch } from '../batch.ts';
import type { Attention, AttentionRows } from './attention.ts';

/** A layer's attention, and the layer's index among the layers of that attention. */
export interface LayerPart {
  readonly attention: Attention;
  readonly layer: number;
}

/** Attention of a model whose layers have heads of several shapes: each shape has its own. */
export class AttentionOfParts implements Attention {
  readonly #parts: readonly Attention[];
  readonly #layers: readonly LayerPart[];
  readonly rebind?: (batch: Batch) => void;
  readonly fits?: (batch: Batch) => boolean;

  /** `layers`: in the order of the model. */
  constructor(layers: readonly LayerPart[]) {
    this.#layers = layers;
    this.#parts = [...new Set(layers.map(({ attention }) => attention))];
    if (this.#parts.every(({ rebind }) => rebind !== undefined)) {
      this.rebind = (batch) => {
        for (const part of this.#parts) part.rebind?.(batch);
      };
    }
    if (this.#parts.some(({ fits }) => fits !== undefined))
      this.fits = (batch) => this.#parts.every((part) => part.fits?.(batch) ?? true);
  }

  prepare(graph: GraphBuilder, batch: Batch): void {
    for (const part of this.#parts) part.prepare(graph, batch);
  }

  attend(graph: GraphBuilder, index: number, q: TensorPtr, rows: AttentionRows): TensorPtr {
    const { attention, layer } = assertDefined(this.#layers[index], 'a layer with attention');
    return attention.attend(graph, layer, q, rows);
  }

  writeInputs(graph: GraphBuilder): void {
    for (const part of this.#parts) part.writeInputs(graph);
  }

  nodeCount(batch: Batch, layerCount: number): number {
    return this.#parts.reduce((sum, part) => sum + part.nodeCount(batch, layerCount), 0);
  }
}
