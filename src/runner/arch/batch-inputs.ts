import { assert } from '../../base/assert.ts';
import type { TensorPtr } from '../../ggml/ffi.ts';
import type { GraphBuilder } from '../../ggml/graph.ts';
import type { ModelConfig } from '../../ggml/model-config.ts';
import { F32, I32 } from '../../ggml/types.ts';
import type { Batch } from '../batch.ts';
import type { HiddenStates } from '../contract.ts';

/** The inputs of a decoder's graph, which every batch with as many rows and outputs fills. */
export class BatchInputs {
  /** Tokens, I32 `[rows]`, for the first stage; hidden states, F32 `[embedding, rows]`, for other stages. */
  readonly entry: TensorPtr;
  /** I32 `[rows]`, if the stage needs them. */
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
  readonly #hidden: Pick<ModelConfig, 'embeddingLength'> | undefined;

  /** `embeddingLength`: of hidden states. `isFirst`: of the first stage. `needsTokens`: each stage reads the tokens. */
  constructor(
    graph: GraphBuilder,
    batch: Batch,
    { embeddingLength }: Pick<ModelConfig, 'embeddingLength'>,
    { isFirst, needsTokens }: { readonly isFirst: boolean; readonly needsTokens: boolean },
  ) {
    const { paddedRowCount, slice } = batch;
    const hidden = isFirst ? undefined : { embeddingLength };
    const outputCount = Math.max(1, batch.outputRows.length);
    this.#hidden = hidden;
    this.entry =
      hidden === undefined
        ? graph.input(I32, paddedRowCount)
        : graph.input(F32, hidden.embeddingLength, paddedRowCount);
    this.tokens = isFirst ? this.entry : needsTokens ? graph.input(I32, paddedRowCount) : undefined;
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
    assert((hidden === undefined) === (this.#hidden === undefined), 'only the first stage has tokens');
    if (this.tokens !== undefined) graph.write(this.tokens, batch.tokens);
    if (hidden !== undefined) this.#writeHidden(graph, batch, hidden);
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

  #writeHidden(graph: GraphBuilder, { rowCount, paddedRowCount }: Batch, hidden: HiddenStates): void {
    const width = hidden.length / rowCount;
    assert(width === this.#hidden?.embeddingLength, 'one row of hidden states for each row of the batch');
    graph.write(this.entry, hidden);
    // Padding rows still have the values of the last step, which must not be NaN.
    const padding = new Float32Array((paddedRowCount - rowCount) * width);
    if (padding.length > 0) graph.write(this.entry, padding, hidden.byteLength);
  }
}
