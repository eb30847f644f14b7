import { assert } from '../../base/assert.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import { F32, I32 } from '../../ggml/types.ts';
import type { Batch } from '../batch.ts';
import type { HiddenStates } from '../contract.ts';

/** Tokens for the first stage, hidden states for other stages, both for a prediction layer. */
export type DecoderInput = 'tokens' | 'hidden' | 'both';

/** The inputs of a decoder's graph, which every batch with as many rows and outputs fills. */
export class BatchInputs {
  /** I32 `[rows]`, if the stage reads them. */
  readonly tokens: TensorPtr | undefined;
  /** I32 `[rows]` */
  readonly positions: TensorPtr;
  /** By KV group, I32 `[rows]`. */
  readonly slots: readonly TensorPtr[];
  /** The indices of the sampled rows and their positions, I32 `[outputs]`. */
  readonly outputRows: TensorPtr;
  readonly outputPositions: TensorPtr;
  /** The indices of the rows of prompts, I32 `[prompt rows]`. */
  readonly promptRows: TensorPtr;
  /** Of a chunk by layers after its first slice: the result of its last slice, F32 `[embedding, rows]`. */
  readonly chunk: TensorPtr | undefined;
  /** F32 `[embedding, rows]`, unless the input is only tokens. */
  readonly hidden: TensorPtr | undefined;
  readonly #embeddingLength: number;

  /** `embeddingLength`: of hidden states. `needsTokens`: stages with only hidden states also read the tokens. */
  constructor(
    graph: GraphBuilder,
    batch: Batch,
    { embeddingLength }: Pick<ModelConfig, 'embeddingLength'>,
    { input, needsTokens }: { readonly input: DecoderInput; readonly needsTokens: boolean },
  ) {
    const { paddedRowCount, slice } = batch;
    const outputCount = Math.max(1, batch.outputRows.length);
    this.#embeddingLength = embeddingLength;
    this.hidden = input === 'tokens' ? undefined : graph.input(F32, embeddingLength, paddedRowCount);
    this.tokens = input === 'hidden' && !needsTokens ? undefined : graph.input(I32, paddedRowCount);
    this.positions = graph.input(I32, paddedRowCount);
    this.slots = batch.slots.map(() => graph.input(I32, paddedRowCount));
    this.outputRows = graph.input(I32, outputCount);
    this.outputPositions = graph.input(I32, outputCount);
    this.promptRows = graph.input(I32, Math.max(1, batch.promptRows.length));
    const chunkRows = paddedRowCount - batch.outputRows.length;
    this.chunk = slice !== undefined && slice.first > 0 ? graph.input(F32, embeddingLength, chunkRows) : undefined;
  }

  /** `hidden`: of the batch's rows, without padding; undefined for the first stage. */
  write(graph: GraphBuilder, batch: Batch, hidden: HiddenStates | undefined): void {
    assert((hidden === undefined) === (this.hidden === undefined), 'the first stage has no hidden states');
    if (this.tokens !== undefined) graph.write(this.tokens, batch.tokens);
    if (this.hidden !== undefined && hidden !== undefined) this.#writeHidden(graph, batch, this.hidden, hidden);
    graph.write(this.positions, batch.positions);
    for (let group = 0; group < this.slots.length; group++) graph.write(this.slots[group]!, batch.slots[group]!);
  }

  /** For a graph that uses the sampled rows. */
  writeOutputs(graph: GraphBuilder, { outputRows, outputPositions, promptRows }: Batch): void {
    graph.write(this.outputRows, outputRows);
    graph.write(this.outputPositions, outputPositions);
    if (promptRows.length > 0) graph.write(this.promptRows, promptRows);
  }

  /** `hidden`: the result of the chunk's last slice; undefined for the first slice. */
  writeChunk(graph: GraphBuilder, hidden: HiddenStates | undefined): void {
    assert((hidden === undefined) === (this.chunk === undefined), 'a slice after the first has hidden states');
    if (this.chunk !== undefined && hidden !== undefined) graph.write(this.chunk, hidden);
  }

  #writeHidden(graph: GraphBuilder, { rowCount, paddedRowCount }: Batch, input: TensorPtr, hidden: HiddenStates): void {
    const width = this.#embeddingLength;
    assert(hidden.length === width * rowCount, 'one row of hidden states for each row of the batch');
    graph.write(input, hidden);
    // Padding rows still have the values of the last step, which must not be NaN.
    const padding = new Float32Array((paddedRowCount - rowCount) * width);
    if (padding.length > 0) graph.write(input, padding, hidden.byteLength);
  }
}
