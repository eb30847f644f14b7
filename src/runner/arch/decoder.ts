import { assert, assertDefined } from '../../base/assert.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import { F32, I32 } from '../../ggml/types.ts';
import type { Attention, AttentionRows } from '../attention/attention.ts';
import type { Batch } from '../batch.ts';
import type { HiddenStates } from '../contract.ts';
import type { AttentionKv, LayerKv } from '../kv-groups.ts';
import { type KvMemory, type KvPart, keyPart, valuePart } from '../kv-memory.ts';
import { type MatmulKernels, Matmuls } from '../matmul/matmuls.ts';
import type { Mixers } from '../mixer/mixers.ts';
import type { BestTokens } from '../sampling/best-tokens.ts';
import type { StateTables } from '../states/layer-states.ts';
import type { ModelWeights, OutputHead } from '../weights.ts';
import type { AttentionProjections } from './attention-projections.ts';
import { expertNetworkNodes } from './expert-network.ts';
import { GroupedQueryProjections } from './grouped-query-attention.ts';
import { LatentProjections } from './latent-attention.ts';
import { LayerOperations } from './layer-operations.ts';
import type { LayerWeights } from './layer-weights.ts';
import { type Layer, layers as layersByArchitecture, type Mixer, mixers } from './layers.ts';

/** The largest number of tensors that one layer adds besides attention and experts, with views and reshapes. */
const nodesPerLayer = 60;

/** The parts from which all graphs of one runner are built. */
export interface DecoderParts {
  readonly graph: GraphBuilder;
  readonly config: ModelConfig;
  readonly weights: ModelWeights;
  /** The pool of the same layers as `weights`. */
  readonly memory: KvMemory;
  /** Where the KV or the state of each of these layers is. */
  readonly layersKv: readonly LayerKv[];
  readonly states: StateTables;
  /** Of a model with states. */
  readonly mixers: Mixers | undefined;
  readonly attention: Attention;
  readonly kernels: MatmulKernels;
  /** Undefined if ggml cannot call Kvasir's functions. */
  readonly bestTokens: BestTokens | undefined;
}

export interface DecoderGraph {
  /**
   * Of the last stage: logits, F32 `[vocab, outputRows]`; undefined if no row is sampled. Of other stages: hidden
   * states, F32 `[embedding, rows]`. Padding rows come last.
   */
  readonly result: TensorPtr | undefined;
  /** With logits: the best token of each row, which `BestTokens` reads. */
  readonly best: TensorPtr | undefined;
  /** `hidden`: of the batch's rows, without padding; undefined for the first stage. */
  writeInputs(hidden?: HiddenStates): void;
  /**
   * Binds the allocated graph to another batch with as many rows and outputs. False if a new graph must be built.
   * Building and allocating a graph takes most of a step's time besides computing, and decodes need the same graph
   * again and again.
   */
  rebind(batch: Batch): boolean;
}

/**
 * A decoder of any architecture. `layers.ts` has the part of a layer that follows.
 *
 *   x [n, rows] -> norm -> q, k, v -> rope -> k, v into the pool -> attention -> the architecture's layer
 *   x [n, rows] -> norm -> the architecture's mixer, which continues states in the pool -> the architecture's layer
 *
 * The model's last layer computes k and v, or its mixer, for all rows, and the rest only for sampled rows.
 *
 * A stage of a pipeline has some of the layers. If the weights have no token embedding, x is the hidden states of the
 * previous stage. If they have no output head, x of all rows is the result.
 */
export function buildDecoder(parts: DecoderParts, batch: Batch): DecoderGraph {
  const { graph, config, weights, attention, mixers: ofStates, states } = parts;
  const layerCount = weights.layers.length;
  const experts = config.experts === undefined ? 0 : expertNetworkNodes(config.experts);
  const segments = Math.max(0, ...batch.segments.map(({ length }) => length));
  const mixer = (ofStates?.nodesPerSegment ?? 0) * (1 + segments);
  graph.begin(64 + layerCount * (nodesPerLayer + experts + mixer) + attention.nodeCount(batch, layerCount));
  states.begin(batch.segments);
  const builder = new DecoderBuilder(parts, batch);
  const result = builder.build();
  return {
    result,
    best: builder.best,
    writeInputs: (hidden) => builder.writeInputs(hidden),
    rebind: (other) => builder.rebind(other),
  };
}

class DecoderBuilder {
  readonly #graph: GraphBuilder;
  readonly #config: ModelConfig;
  readonly #weights: ModelWeights;
  readonly #memory: KvMemory;
  readonly #attention: Attention;
  #batch: Batch;
  readonly #matmuls: Matmuls;
  readonly #operations: LayerOperations;
  readonly #layer: Layer;
  readonly #mixer: Mixer | undefined;
  readonly #projections: AttentionProjections;
  readonly #layersKv: readonly LayerKv[];
  readonly #states: StateTables;
  /** Tokens, I32 `[rows]`, for the first stage; hidden states for other stages. */
  readonly #entry: TensorPtr;
  /** By KV group, I32 `[rows]`. */
  readonly #slots: readonly TensorPtr[];
  readonly #positions: TensorPtr;
  readonly #outputRows: TensorPtr;
  readonly #outputPositions: TensorPtr;
  readonly #bestTokens: BestTokens | undefined;
  best: TensorPtr | undefined;

  constructor(parts: DecoderParts, batch: Batch) {
    const { graph, config, weights, memory, attention, kernels, layersKv, mixers: ofStates, states } = parts;
    this.#bestTokens = parts.bestTokens;
    this.#graph = graph;
    this.#config = config;
    this.#weights = weights;
    this.#memory = memory;
    this.#attention = attention;
    this.#batch = batch;
    this.#matmuls = new Matmuls(graph, kernels);
    this.#operations = new LayerOperations({ graph, config, matmuls: this.#matmuls, mixers: ofStates });
    this.#layer = layersByArchitecture[config.architecture];
    this.#mixer = mixers[config.architecture];
    this.#layersKv = layersKv;
    this.#states = states;
    const isFirst = weights.tokenEmbedding !== undefined;
    this.#entry = isFirst
      ? graph.input(I32, batch.paddedRowCount)
      : graph.input(F32, config.embeddingLength, batch.paddedRowCount);
    this.#positions = graph.input(I32, batch.paddedRowCount);
    this.#slots = batch.slots.map(() => graph.input(I32, batch.paddedRowCount));
    this.#outputRows = graph.input(I32, Math.max(1, batch.outputRows.length));
    this.#outputPositions = graph.input(I32, Math.max(1, batch.outputRows.length));
    const { latent } = config;
    const { ropeFreqs } = weights;
    this.#projections =
      latent === undefined
        ? new GroupedQueryProjections({ graph, config, operations: this.#operations, attention, ropeFreqs })
        : new LatentProjections({ graph, config, matmuls: this.#matmuls, latent, attention }, batch);
    attention.prepare(graph, batch);
  }

  build(): TensorPtr | undefined {
    const graph = this.#graph;
    const operations = this.#operations;
    const { layers, head } = this.#weights;
    let x = this.#embed();
    for (const [index, layer] of layers.entries()) {
      let h = operations.norm(x, layer.attentionNorm);
      const kv = this.#layersKv[index]!;
      if (kv.kind === 'attention') this.#store(kv, layer, h);
      else h = this.#mix(index, layer, h);
      let rows: AttentionRows = 'all';
      if (head !== undefined && index === layers.length - 1) {
        if (this.#batch.outputCount === 0) return undefined;
        rows = 'outputs';
        h = graph.getRows(h, this.#outputRows);
        x = graph.getRows(x, this.#outputRows);
      }
      x = this.#layer(operations, layer, x, kv.kind === 'attention' ? this.#attend(kv, layer, h, rows) : h);
    }
    const result = head === undefined ? x : this.#logits(head, x);
    graph.output(result);
    if (head !== undefined && this.#bestTokens !== undefined) {
      this.best = this.#bestTokens.node(graph, result, this.#batch.outputRows.length);
      graph.output(this.best);
    }
    return result;
  }

  rebind(batch: Batch): boolean {
    if (batch.paddedRowCount !== this.#batch.paddedRowCount) return false;
    const hasOutputs = this.#weights.head !== undefined;
    if (hasOutputs && batch.outputRows.length !== this.#batch.outputRows.length) return false;
    if (!this.#attention.rebind(batch) || !this.#states.rebind(batch.segments)) return false;
    this.#batch = batch;
    return true;
  }

  writeInputs(hidden?: HiddenStates): void {
    const graph = this.#graph;
    this.#writeEntry(hidden);
    graph.write(this.#positions, this.#batch.positions);
    for (const [group, slots] of this.#slots.entries()) graph.write(slots, this.#batch.slots[group]!);
    if (this.#weights.head !== undefined && this.#batch.outputCount > 0) {
      graph.write(this.#outputRows, this.#batch.outputRows);
      graph.write(this.#outputPositions, this.#batch.outputPositions);
    }
    this.#projections.writeInputs();
    this.#attention.writeInputs(graph);
  }

  #writeEntry(hidden: HiddenStates | undefined): void {
    const { tokens, rowCount, paddedRowCount } = this.#batch;
    assert((hidden === undefined) === (this.#weights.tokenEmbedding !== undefined), 'only the first stage has tokens');
    if (hidden === undefined) {
      this.#graph.write(this.#entry, tokens);
      return;
    }
    const { embeddingLength } = this.#config;
    assert(hidden.length === rowCount * embeddingLength, 'one row of hidden states for each row of the batch');
    this.#graph.write(this.#entry, hidden);
    // Padding rows still have the values of the last step, which must not be NaN.
    const padding = new Float32Array((paddedRowCount - rowCount) * embeddingLength);
    if (padding.length > 0) this.#graph.write(this.#entry, padding, hidden.byteLength);
  }

  /** The embeddings of the tokens, or the hidden states of the previous stage. */
  #embed(): TensorPtr {
    const { tokenEmbedding } = this.#weights;
    if (tokenEmbedding === undefined) return this.#entry;
    const { embeddingScale } = this.#config;
    const x = this.#matmuls.takeRows(tokenEmbedding, this.#entry, this.#batch.paddedRowCount);
    return embeddingScale === 1 ? x : this.#graph.scale(x, embeddingScale);
  }

  #logits(head: OutputHead, x: TensorPtr): TensorPtr {
    const { finalSoftCap, logitScale } = this.#config;
    const product = this.#matmuls.multiply(head.output, this.#operations.norm(x, head.norm));
    const logits = logitScale === 1 ? product : this.#graph.scale(product, logitScale);
    return finalSoftCap === undefined ? logits : this.#graph.softCap(logits, finalSoftCap);
  }

  /** Computes the rows' K and V and writes them into the pool, before attention of this layer reads the pool. */
  #store({ group, place, window }: AttentionKv, layer: LayerWeights, h: TensorPtr): void {
    const graph = this.#graph;
    const [k, v] = this.#projections.poolRows(layer, h, { positions: this.#positions, window });
    const store = (part: KvPart, rows: TensorPtr): void =>
      graph.expand(graph.setRows(this.#memory.tokenRows(graph, place, part), rows, this.#slots[group]!));
    store(keyPart, assertDefined(k, 'attention stores K'));
    if (v !== undefined) store(valuePart, v);
  }

  #attend({ index, window }: AttentionKv, layer: LayerWeights, h: TensorPtr, rows: AttentionRows): TensorPtr {
    const positions = rows === 'all' ? this.#positions : this.#outputPositions;
    return this.#projections.attend(layer, h, { positions, window, index, rows });
  }

  /** The mixer of a layer with a state. Its states are written although no row may be sampled. */
  #mix(index: number, layer: LayerWeights, h: TensorPtr): TensorPtr {
    const mix = assertDefined(this.#mixer, 'an architecture with states has a mixer');
    const mixed = mix(this.#operations, layer, h, this.#states.layer(index));
    this.#graph.expand(mixed);
    return mixed;
  }
}
