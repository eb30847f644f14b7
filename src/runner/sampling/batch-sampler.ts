import { assert } from '../../base/assert.ts';
import { KvasirError } from '../../base/errors.ts';
import type { Sample, SequenceFailure, SequencePlan } from '../../core/step.ts';
import type { Batch, BatchSequence } from '../batch.ts';
import type { LogitsPasses } from './logits-candidates.ts';
import { brokenLogits, Sampler } from './sampler.ts';
import { sampleWithDrafts } from './verify-drafts.ts';

/** Called with each sampled row of logits, in place, before sampling. */
export type LogitsObserver = (sequence: SequencePlan, logits: Float32Array) => void;

/** The result of `LogitsPasses.best` for a row of logits, if the graph has computed it. */
export type BestOfRow = (outputIndex: number, logits: Float32Array) => number;

export interface BatchSamples {
  /** Parallel to the batch's sequences; undefined if the sequence is not sampled, or if sampling failed. */
  readonly sampled: readonly (Sample | undefined)[];
  readonly failures: readonly SequenceFailure[];
}

export interface BatchSamplerOptions {
  /** For errors. */
  readonly modelName?: string | undefined;
  readonly onLogits?: LogitsObserver;
}

/** What else a graph has computed. */
interface FurtherResults {
  readonly rowSums?: Float32Array | undefined;
  readonly bestOfRow?: BestOfRow | undefined;
}

/** Chooses the next token of each sampled sequence of a batch; only the last stage of a pipeline has one. */
export class BatchSampler {
  readonly #vocabSize: number;
  readonly sampler: Sampler;
  readonly #onLogits: LogitsObserver | undefined;
  readonly #modelName: string | undefined;

  constructor(vocabSize: number, passes: LogitsPasses | undefined, { modelName, onLogits }: BatchSamplerOptions) {
    this.#modelName = modelName;
    this.#vocabSize = vocabSize;
    this.sampler = new Sampler(vocabSize, passes, modelName);
    this.#onLogits = onLogits;
  }

  /**
   * `logits`: F32 `[vocab, outputCount]`; read, never written. `rowSums`: the sum of each row's hidden state.
   *
   * Kernels of GPUs multiply masked KV by 0, so NaN also reaches the KV of tokens that come before it in the step. A sequence with NaN
   * therefore fails in this step, before other requests find these blocks in the prefix cache.
   */
  sample(
    { sequences, positions }: Batch,
    logits: Float32Array,
    { rowSums, bestOfRow }: FurtherResults = {},
  ): BatchSamples {
    const sampled: (Sample | undefined)[] = sequences.map(() => undefined);
    const failures: SequenceFailure[] = [];
    for (let index = 0; index < sequences.length; index++) {
      const sequence = sequences[index]!;
      try {
        if (rowSums !== undefined) this.#checkRows(sequence, rowSums, positions);
        if (sequence.outputIndex === undefined) continue;
        sampled[index] = this.#sampleSequence(sequence, sequence.outputIndex, logits, bestOfRow);
      } catch (error) {
        // Values that overflow F16 end only the request whose prompt causes them.
        if (!(error instanceof KvasirError)) throw error;
        failures.push({ sequence: index, error });
      }
    }
    return { sampled, failures };
  }

  /** Throws `brokenLogits` for the first of the sequence's rows whose hidden state has NaN or infinity. */
  #checkRows({ firstRow, rowCount }: BatchSequence, rowSums: Float32Array, positions: Int32Array): void {
    for (let row = firstRow; row < firstRow + rowCount; row++) {
      const sum = rowSums[row]!;
      if (Number.isFinite(sum)) continue;
      const model = this.#modelName ?? 'without a name';
      throw brokenLogits({ model, found: `${sum} as a hidden state`, position: positions[row]! });
    }
  }

  #sampleSequence({ plan }: BatchSequence, outputIndex: number, logits: Float32Array, bestOfRow?: BestOfRow): Sample {
    const { sample } = plan;
    assert(sample !== undefined, 'a sequence with outputs is sampled');
    return sampleWithDrafts(plan, (offset, before, allowed) => {
      const index = outputIndex + offset;
      const row = logits.subarray(index * this.#vocabSize, (index + 1) * this.#vocabSize);
      this.#onLogits?.(plan, row);
      return this.sampler.sample(row, sample, before, { known: bestOfRow?.(index, row), allowed });
    });
  }
}
