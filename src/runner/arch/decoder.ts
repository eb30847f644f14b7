import { assert, assertDefined } from '../../base/assert.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import { I32 } from '../../ggml/types.ts';
import type { AdapterStore } from '../adapters/adapter-store.ts';
import { GraphAdapters } from '../adapters/graph-adapters.ts';
import type { Attention, AttentionRows } from '../attention/attention.ts';
import type { Batch } from '../batch.ts';
import type { HiddenStates } from '../contract.ts';
import type { AttentionKv, LayerKv } from '../kv-groups.ts';
import { type KvMemory, type KvPart, partCount } from '../kv-memory.ts';
import { type MatmulKernels, Matmuls, nodesPerToken } from '../matmul/matmuls.ts';
import type { Mixers } from '../mixer/mixers.ts';
import type { HeadRotation } from '../operations/head-rotation.ts';
import type { BestTokens } from '../sampling/best-tokens.ts';
import type { StateTables } from '../states/layer-states.ts';
import type { EmbeddingWeights, ModelWeights, OutputHead } from '../weights.ts';
import type { AttentionProjections } from './attention-projections.ts';
import { BatchInputs, type DecoderInput } from './batch-inputs.ts';
import { expertNetworkNodes } from './expert-network.ts';
import { GroupedQueryProjections } from './grouped-query-attention.ts';
import { LatentProjections } from './latent-attention.ts';
import { LayerOperations } from './layer-operations.ts';
import type { LayerWeights } from './layer-weights.ts';
import { layerOf, mixerOf } from './layers.ts';
import { TokenInputs } from './token-inputs.ts';

/** The largest number of tensors that one layer adds besides attention and experts, with views and reshapes. */
const nodesPerLayer = 60;
/** Two reshapes of each matmul. */
const nodesPerLayerByRow = 24;

/** The parts from which all graphs of one runner are built. */
export interface DecoderParts {
  readonly graph: GraphBuilder;
  readonly config: ModelConfig;
  readonly weights: ModelWeights;
  /** The pool of the same layers as `weights`, with the rows of each KV group. */
  readonly memories: readonly KvMemory[];
  /** Where the KV or the state of each of these layers is. */
  readonly layersKv: readonly LayerKv[];
  readonly states: StateTables;
  /** Of a model with states. */
  readonly mixers: Mixers | undefined;
  readonly attention: Attention;
  readonly kernels: MatmulKernels;
  readonly headRotation: HeadRotation | undefined;
  /** Undefined if ggml cannot call Kvasir's functions. */
  readonly bestTokens: BestTokens | undefined;
  readonly adapters: AdapterStore;
  /** Whether the runner needs `DecoderGraph.rowSums`, to find rows with NaN. */
  readonly checksRows: boolean;
}

export interface DecoderGraph {
  readonly graph: GraphBuilder;
  /**
   * Of the last stage: logits, F32 `[vocab, outputRows]`; undefined if no row is sampled. Of other stages: hidden
   * states, F32 `[embedding, rows]`. Padding rows come last.
   */
  readonly result: TensorPtr | undefined;
  /** With logits: the best token of each row, which `BestTokens` reads. */
  readonly best: TensorPtr | undefined;
  /** Of `Batch.hiddenRows`, F32 `[embedding, rows]`. Padding rows come last. */
  readonly hidden: TensorPtr | undefined;
  /** Of the last stage: the hidden states of the prompt rows after the last norm, F32 `[embedding, prompt rows]`. */
  readonly promptHidden: TensorPtr | undefined;
  /**
   * With `DecoderParts.checksRows`, if a sequence has several rows: the sum of each row's hidden state in front of the last layer that is
   * computed for all rows, F32 `[1, rows]`.
   */
  readonly rowSums: TensorPtr | undefined;
  /** Of a slice before the last one: the hidden states of its rows, F32 `[embedding, rows]`. */
  readonly chunkHidden: TensorPtr | undefined;
  /**
   * `hidden`: of the batch's rows, without padding; undefined for the first stage. `chunk`: the result of the slice
   * before this one.
   */
  writeInputs(hidden?: HiddenStates, chunk?: HiddenStates): void;
  /** Other batches need the same graph, so it can be computed again. */
  readonly isReusable: boolean;
  /** Whether the batch has as many rows and outputs as the graph, and nothing else that needs another one. */
  fits(batch: Batch): boolean;
  /** Binds the allocated graph to another batch that fits, if it is reusable. */
  rebind(batch: Batch): void;
}

/**
 * A decoder of any architecture. `layers.ts` has the part of a layer that follows.
 *
 *   x [n, rows] -> norm -> q, k, v -> rope -> k, v into the pool -> attention -> the architecture's layer
 *   x [n, rows] -> norm -> the architecture's mixer, which continues states in the pool -> the architecture's layer
 *   x [n, rows] -> norm -> the architecture's layer, if the layer is only a network
 *
 * The last layer with KV of its own or a mixer computes these for all rows. The rest, and layers after it, are computed only for
 * sampled rows, unless the batch has rows of prompts.
 *
 * If the batch has a chunk by layers, the layers outside of the slice compute the other rows, which are sampled.
 *
 * A stage of a pipeline has some of the layers. If the weights have no token embedding, x is the hidden states of the
 * previous stage. If they have no output head, x of all rows is the result.
 */
export function buildDecoder(parts: DecoderParts, batch: Batch): DecoderGraph {
  const { graph, config, weights, attention, mixers, states, kernels } = parts;
  const layerCount = weights.layers.length;
  const byRow = kernels.byRow === undefined ? 0 : nodesPerLayerByRow;
  const byToken = kernels.byRow === undefined ? 0 : 3 * nodesPerToken * batch.paddedRowCount;
  const experts = config.experts === undefined ? 0 : expertNetworkNodes(config.experts) + byToken;
  const segments = Math.max(0, ...batch.segments.map(({ length }) => length));
  const mixer = (mixers?.nodesPerSegment ?? 0) * (1 + segments);
  const added = attention.nodeCount(batch, layerCount) + GraphAdapters.nodeCount(parts.adapters, batch);
  graph.begin(64 + layerCount * (nodesPerLayer + byRow + experts + mixer) + added);
  states.begin(batch.segments);
  const builder = new DecoderBuilder(parts, batch);
  const result = builder.build();
  return {
    graph,
    result,
    best: builder.best,
    hidden: builder.hidden,
    promptHidden: builder.promptHidden,
    chunkHidden: builder.chunkHidden,
    rowSums: builder.rowSums,
    writeInputs: (hidden, chunk) => builder.writeInputs(hidden, chunk),
    isReusable: attention.rebind !== undefined && !states.isFixed && batch.promptRows.length === 0,
    fits: (other) => builder.fits(other),
    rebind: (other) => builder.rebind(other),
  };
}

/** The logits from the products of the output head with hidden states after the last norm. */
export function logitsOf(graph: GraphBuilder, config: ModelConfig, product: TensorPtr): TensorPtr {
  const { finalSoftCap, logitScale } = config;
  const logits = logitScale === 1 ? product : graph.scale(product, logitScale);
  return finalSoftCap === undefined ? logits : graph.softCap(logits, finalSoftCap);
}

function inputOf({ tokenEmbedding, entry }: ModelWeights): DecoderInput {
  if (tokenEmbedding === undefined) return 'hidden';
  return entry === undefined ? 'tokens' : 'both';
}

class DecoderBuilder {
  readonly #parts: DecoderParts;
  #batch: Batch;
  readonly #inputs: BatchInputs;
  readonly #matmuls: Matmuls;
  /** Undefined: no row has an adapter. */
  readonly #adapters: GraphAdapters | undefined;
  readonly #operations: LayerOperations;
  readonly #projections: AttentionProjections;
  readonly #tokenInputs: TokenInputs | undefined;
  best: TensorPtr | undefined;
  hidden: TensorPtr | undefined;
  promptHidden: TensorPtr | undefined;
  chunkHidden: TensorPtr | undefined;
  rowSums: TensorPtr | undefined;
  /** I32 `[1]`: 0. */
  #firstType: TensorPtr | undefined;
  /** For layers that compute only the sampled rows, by KV group. */
  readonly #outputSlots: TensorPtr[] = [];

  constructor(parts: DecoderParts, batch: Batch) {
    const { graph, config, weights, attention, kernels, mixers, headRotation, adapters } = parts;
    this.#parts = parts;
    this.#batch = batch;
    this.#inputs = new BatchInputs(graph, batch, config, {
      input: inputOf(weights),
      needsTokens: weights.tokenInputs !== undefined,
    });
    this.#adapters = batch.adapters.length === 0 ? undefined : new GraphAdapters(graph, adapters, batch);
    const matmuls = new Matmuls(graph, kernels, this.#adapters);
    const operations = new LayerOperations({ graph, config, matmuls, mixers });
    const { latent } = config;
    this.#matmuls = matmuls;
    this.#operations = operations;
    this.#tokenInputs =
      weights.tokenInputs && new TokenInputs({ graph, config, operations, matmuls, weights: weights.tokenInputs });
    this.#projections =
      latent === undefined
        ? new GroupedQueryProjections(
            { graph, config, operations, attention, ropeFreqs: weights.ropeFreqs, headRotation },
            batch,
          )
        : new LatentProjections({ graph, config, matmuls, latent, attention, headRotation }, batch);
    attention.prepare(graph, batch);
  }

  build(): TensorPtr | undefined {
    const { graph, config, weights, layersKv, bestTokens } = this.#parts;
    const operations = this.#operations;
    const { layers, head } = weights;
    const layerEnd = layerOf(config.architecture);
    const { slice } = this.#batch;
    const lastOfAllRows = this.#lastOfAllRows();
    let x = this.#embed();
    this.#tokenInputs?.compute(this.#inputs.tokens, this.#batch.paddedRowCount);
    let rows: AttentionRows = 'all';
    /** No later layer needs the rows that are not sampled. */
    let isSampledOnly = false;
    for (const [index, layer] of layers.entries()) {
      if (slice !== undefined && !isSampledOnly) {
        rows = index >= slice.first && index < slice.end ? 'all' : 'outputs';
        // Without decodes nothing but the slice is computed.
        if (rows === 'outputs' && this.#batch.outputCount === 0) continue;
        if (index === 0 && rows === 'outputs') x = this.#outputRowsOf(x);
        if (index === slice.first && index > 0) x = this.#withChunk(x);
        this.#multiplyRows(rows);
      }
      let h = operations.norm(x, layer.attentionNorm);
      const kv = layersKv[index]!;
      if (kv.kind === 'state') h = this.#mix(index, layer, h);
      else if (kv.kind === 'attention' && kv.isShared !== true) this.#store(kv, layer, h, rows);
      if (index >= lastOfAllRows && rows === 'all') {
        this.#sumRows(x);
        if (this.#batch.outputCount === 0) {
          // Inputs are allocated only if something of the graph needs them.
          graph.expand(x);
          return undefined;
        }
        isSampledOnly = true;
        rows = 'outputs';
        this.#multiplyRows(rows);
        h = graph.getRows(h, this.#inputs.outputRows);
        x = graph.getRows(x, this.#inputs.outputRows);
      }
      const attended = kv.kind === 'attention' ? this.#attend(kv, layer, h, rows) : h;
      x = layerEnd(operations, layer, { x, attended, tokenInput: this.#tokenInputOf(index, rows) });
      if (index + 1 === slice?.end && index + 1 < layers.length) x = this.#withoutChunk(x);
    }
    if (slice !== undefined && this.#batch.outputCount === 0) return undefined;
    if (head !== undefined && this.#batch.hiddenRows === 'all') {
      this.hidden = operations.norm(x, head.norm);
      graph.output(this.hidden);
    }
    if (head !== undefined && this.#batch.promptRows.length > 0) {
      this.promptHidden = operations.norm(graph.getRows(x, this.#inputs.promptRows), head.norm);
      graph.output(this.promptHidden);
    }
    if (head !== undefined && rows === 'all') {
      this.#sumRows(x);
      if (this.#batch.outputCount === 0) return undefined;
      x = graph.getRows(x, this.#inputs.outputRows);
    }
    const result = head === undefined ? x : this.#logits(head, x);
    graph.output(result);
    if (head !== undefined && bestTokens !== undefined) {
      this.best = bestTokens.node(graph, result, this.#batch.outputRows.length);
      graph.output(this.best);
    }
    return result;
  }

  #sumRows(x: TensorPtr): void {
    const { checksRows, graph } = this.#parts;
    if (!checksRows || this.#batch.sequences.every(({ rowCount }) => rowCount === 1)) return;
    this.rowSums = graph.sumRows(x);
    graph.output(this.rowSums);
  }

  /** The rows that the next matmuls have. */
  #multiplyRows(rows: AttentionRows): void {
    if (this.#adapters !== undefined) this.#adapters.rows = rows;
  }

  fits(batch: Batch): boolean {
    if (batch.paddedRowCount !== this.#batch.paddedRowCount) return false;
    const hasOutputs = this.#parts.weights.head !== undefined;
    if (hasOutputs && batch.outputRows.length !== this.#batch.outputRows.length) return false;
    const { slice } = this.#batch;
    if (batch.slice?.first !== slice?.first || batch.slice?.end !== slice?.end) return false;
    if (this.#adapters === undefined ? batch.adapters.length > 0 : !this.#adapters.fits(batch)) return false;
    if (batch.hiddenRows !== this.#batch.hiddenRows) return false;
    if (batch.promptRows.length > 0 || this.#batch.promptRows.length > 0) return false;
    return this.#parts.attention.fits?.(batch) ?? true;
  }

  rebind(batch: Batch): void {
    const { attention, states } = this.#parts;
    assert(attention.rebind !== undefined && this.fits(batch), 'a graph that fits the batch');
    attention.rebind(batch);
    states.rebind(batch.segments);
    this.#batch = batch;
  }

  writeInputs(hidden?: HiddenStates, chunk?: HiddenStates): void {
    const { graph, weights, attention } = this.#parts;
    this.#inputs.write(graph, this.#batch, hidden);
    this.#inputs.writeChunk(graph, chunk);
    this.#adapters?.writeInputs(this.#batch);
    if (weights.head !== undefined && (this.#batch.outputCount > 0 || this.#batch.promptRows.length > 0))
      this.#inputs.writeOutputs(graph, this.#batch);
    if (this.#firstType !== undefined) graph.write(this.#firstType, new Int32Array(1));
    this.#projections.writeInputs?.(this.#batch);
    attention.writeInputs(graph);
  }

  /** The last layer that writes K, V or states: from it on, only the sampled rows are computed, unless others are a result too. */
  #lastOfAllRows(): number {
    const { layersKv, weights } = this.#parts;
    const { slice, promptRows, hiddenRows } = this.#batch;
    // A chunk by layers leaves the graph after its slice, unless no layer follows.
    const isEnd = weights.head !== undefined && (slice === undefined || slice.end === weights.layers.length);
    if (!isEnd || promptRows.length > 0 || hiddenRows === 'all') return Number.POSITIVE_INFINITY;
    const writes = (kv: LayerKv): boolean => kv.kind === 'state' || (kv.kind === 'attention' && kv.isShared !== true);
    return layersKv.findLastIndex(writes);
  }

  /** The embeddings of the tokens, or the hidden states of the previous stage. */
  #embed(): TensorPtr {
    const { graph, config, weights } = this.#parts;
    const { tokens, hidden } = this.#inputs;
    if (weights.tokenEmbedding === undefined)
      return assertDefined(hidden, 'a stage without embeddings has hidden states');
    const ofRows = assertDefined(tokens, 'a stage with embeddings has tokens');
    const embedded = this.#matmuls.takeRows(weights.tokenEmbedding, ofRows, this.#batch.paddedRowCount);
    const x = this.#adapters?.embed(ofRows, embedded) ?? embedded;
    const scaled = config.embeddingScale === 1 ? x : graph.scale(x, config.embeddingScale);
    if (weights.embedding !== undefined) return this.#withPlaces(weights.embedding, scaled);
    if (weights.entry === undefined || hidden === undefined) return scaled;
    const { embeddingNorm, hiddenNorm, projection } = weights.entry;
    const embedding = this.#operations.norm(scaled, embeddingNorm);
    const joined = graph.concat(embedding, this.#operations.norm(hidden, hiddenNorm), 'columns');
    return this.#matmuls.multiply(projection, joined);
  }

  /** Adds the embeddings of the first type of tokens and of the positions, as far as the model has them; then the norm. */
  #withPlaces({ types, positions, norm }: EmbeddingWeights, tokens: TensorPtr): TensorPtr {
    const { graph } = this.#parts;
    let x = tokens;
    if (types !== undefined) {
      this.#firstType = graph.input(I32, 1);
      x = graph.add(x, graph.getRows(types, this.#firstType));
    }
    if (positions !== undefined) x = graph.add(graph.getRows(positions, this.#inputs.positions), x);
    return this.#operations.layerNorm(x, norm);
  }

  #logits(head: OutputHead, x: TensorPtr): TensorPtr {
    const { graph, config } = this.#parts;
    const output = assertDefined(head.output, 'a model that makes text has an output head');
    const normed = this.#operations.norm(x, head.norm);
    if (this.#batch.hiddenRows === 'outputs') {
      this.hidden = normed;
      graph.output(normed);
    }
    this.#multiplyRows('outputs');
    return logitsOf(graph, config, this.#matmuls.multiply(output, normed));
  }

  /** Computes the rows' K and V and writes them into the pool, before attention of this layer reads the pool. */
  #store({ group, place }: AttentionKv, layer: LayerWeights, h: TensorPtr, rows: AttentionRows): void {
    const { graph, memories } = this.#parts;
    const memory = memories[group]!;
    const { positions, outputPositions, slots } = this.#inputs;
    const parts = this.#projections.poolRows(layer, h, { positions: rows === 'all' ? positions : outputPositions });
    assert(parts.length === partCount(memory.layout), 'the parts of the pool');
    const slotsOfRows = rows === 'all' ? slots[group]! : this.#outputSlotsOf(group);
    for (const [part, values] of parts.entries()) {
      graph.expand(graph.setRows(memory.tokenRows(graph, place, part as KvPart), values, slotsOfRows));
    }
  }

  /** The layer's own embedding of the tokens, for the rows that the layer computes. */
  #tokenInputOf(index: number, rows: AttentionRows): TensorPtr | undefined {
    const { weights } = this.#parts;
    const { slice, outputRows, paddedRowCount } = this.#batch;
    if (rows === 'all') return this.#tokenInputs?.ofRows(weights.firstLayer + index, paddedRowCount);
    // Outside of a slice, the sampled rows are the first ones.
    return slice === undefined
      ? this.#tokenInputs?.ofSomeRows(weights.firstLayer + index, this.#inputs.outputRows)
      : this.#tokenInputs?.ofRows(weights.firstLayer + index, outputRows.length);
  }

  /** The sampled rows, which come before the rows of a chunk by layers. */
  #outputRowsOf(x: TensorPtr): TensorPtr {
    const { graph } = this.#parts;
    return graph.view2d(x, graph.columnCountOf(x), this.#batch.outputRows.length, graph.strideOf(x, 1), 0);
  }

  #outputSlotsOf(group: number): TensorPtr {
    const { graph } = this.#parts;
    const slots = this.#inputs.slots[group]!;
    const count = this.#batch.outputRows.length;
    this.#outputSlots[group] ??= graph.view2d(slots, count, 1, count * I32.typeSize, 0);
    return this.#outputSlots[group];
  }

  /** Appends the rows of the chunk, as its last slice has left them. */
  #withChunk(x: TensorPtr): TensorPtr {
    const { graph } = this.#parts;
    const chunk = assertDefined(this.#inputs.chunk, 'a slice after the first has hidden states');
    return this.#batch.outputCount === 0 ? chunk : graph.concat(x, chunk, 'rows');
  }

  /** The result of a slice is read; the other rows go on. */
  #withoutChunk(x: TensorPtr): TensorPtr {
    const { graph } = this.#parts;
    const { outputRows, paddedRowCount } = this.#batch;
    const stride = graph.strideOf(x, 1);
    const chunkRows = paddedRowCount - outputRows.length;
    const chunk = graph.view2d(x, graph.columnCountOf(x), chunkRows, stride, outputRows.length * stride);
    this.chunkHidden = graph.contiguous(chunk);
    graph.output(this.chunkHidden);
    return this.#outputRowsOf(x);
  }

  #attend({ index }: AttentionKv, layer: LayerWeights, h: TensorPtr, rows: AttentionRows): TensorPtr {
    const positions = rows === 'all' ? this.#inputs.positions : this.#inputs.outputPositions;
    return this.#projections.attend(layer, h, { positions, index, rows });
  }

  /** The mixer of a layer with a state. Its states are written although no row may be sampled. */
  #mix(index: number, layer: LayerWeights, h: TensorPtr): TensorPtr {
    const { graph, config, states } = this.#parts;
    const mix = assertDefined(mixerOf(config.architecture), 'an architecture with states has a mixer');
    const mixed = mix(this.#operations, layer, h, states.layer(index));
    graph.expand(mixed);
    return mixed;
  }
}
