import { KvasirError } from '../../base/errors.ts';
import type { SampledToken, SequenceFailure, SequencePlan } from '../../core/step.ts';
import type { Batch } from '../batch.ts';
import type { LogitsPasses } from './logits-candidates.ts';
import { Sampler } from './sampler.ts';

/** Sees each sampled row of logits, in place, before it is sampled. */
export type LogitsObserver = (sequence: SequencePlan, logits: Float32Array) => void;

/** What `LogitsPasses.best` says of a row of logits, where somebody knows it already. */
export type BestOfRow = (outputIndex: number, logits: Float32Array) => number;

export interface BatchSamples {
  /** Parallel to the batch's sequences; undefined where none was asked for, or where it failed. */
  readonly sampled: readonly (SampledToken | undefined)[];
  readonly failures: readonly SequenceFailure[];
}

/** Chooses the next token of each sequence of a batch whose last row is computed; the last stage of a pipeline has one. */
export class BatchSampler {
  readonly #vocabSize: number;
  readonly #sampler: Sampler;
  readonly #onLogits: LogitsObserver | undefined;

  constructor(vocabSize: number, passes: LogitsPasses | undefined, onLogits: LogitsObserver | undefined) {
    this.#vocabSize = vocabSize;
    this.#sampler = new Sampler(vocabSize, passes);
    this.#onLogits = onLogits;
  }

  /** `logits`: F32 `[vocab, outputCount]`; read, never written. */
  sample({ sequences }: Batch, logits: Float32Array, bestOfRow?: BestOfRow): BatchSamples {
    const sampled: (SampledToken | undefined)[] = sequences.map(() => undefined);
    const failures: SequenceFailure[] = [];
    for (const [sequence, { plan, outputIndex }] of sequences.entries()) {
      if (plan.sample === undefined || outputIndex === undefined) continue;
      const row = logits.subarray(outputIndex * this.#vocabSize, (outputIndex + 1) * this.#vocabSize);
      this.#onLogits?.(plan, row);
      try {
        sampled[sequence] = this.#sampler.sample(row, plan.sample, plan.tokens, bestOfRow?.(outputIndex, row));
      } catch (error) {
        // Values that overflow F16 are one prompt's fault; the engine and its other requests go on.
        if (!(error instanceof KvasirError)) throw error;
        failures.push({ sequence, error });
      }
    }
    return { sampled, failures };
  }
}
