import type { Prng } from '../src/base/prng.ts';
import { kvLoadFailed } from '../src/core/errors.ts';
import type { SequenceFailure, StepPlan } from '../src/core/step.ts';
import type { ExecutedStep } from '../src/scheduler/contract.ts';

export interface SampleFaults {
  readonly rate: number;
  /** Decides about sequences that are sampled, and about others. Undefined: the others do not fail. */
  readonly samples: Prng;
  readonly chunks: Prng | undefined;
}

/** Single requests fail, as with NaN in their tokens. Such a fault ends this request and no other (I9). */
export function withSampleFaults(
  { sequences }: StepPlan,
  result: ExecutedStep,
  { rate, samples, chunks }: SampleFaults,
): ExecutedStep {
  if (rate === 0) return result;
  const failures: SequenceFailure[] = [];
  sequences.forEach(({ sample }, sequence) => {
    const prng = sample === undefined ? chunks : samples;
    if (prng?.chance(rate) === true) failures.push({ sequence, error: kvLoadFailed() });
  });
  if (failures.length === 0) return result;
  const failed = new Set(failures.map(({ sequence }) => sequence));
  return { ...result, failures, sampled: result.sampled.map((token, i) => (failed.has(i) ? undefined : token)) };
}
