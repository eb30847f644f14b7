import type { FieldReader } from '../../../base/field-reader.ts';
import { type CheckedSampling, completionsMax } from '../../../core/sampling-parse.ts';
import type { BestOf } from '../../generation/best-of.ts';

interface ChosenFrom {
  /** With `n` for the completions that are generated. */
  readonly params: CheckedSampling;
  readonly bestOf?: BestOf;
}

/** Reads `best_of` after `n`, as in OpenAI's API: at least `n`, and not in a stream. */
export function readBestOf(reader: FieldReader, params: CheckedSampling, stream: boolean): ChosenFrom {
  const kept = params.n ?? 1;
  const generated = reader.integer('best_of', { min: 1, max: completionsMax }) ?? kept;
  if (generated < kept) throw reader.invalid('best_of', `at least n (${kept})`);
  if (generated === kept) return { params };
  if (stream) throw reader.invalid('best_of', 'equal to n in a stream');
  const { logprobs = 0 } = params;
  return {
    params: { ...params, n: generated, logprobs },
    bestOf: { generated, kept, hidesLogprobs: params.logprobs === undefined },
  };
}
