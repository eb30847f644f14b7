import type { FieldReader } from '../base/field-reader.ts';
import { type CheckedSampling, completionsMax } from '../core/sampling-parse.ts';
import type { ChoiceOutput } from './choice-collector.ts';

/** `best_of` completions of each prompt are generated, and the best `n` of them are the response. */
export interface BestOf {
  readonly generated: number;
  readonly kept: number;
  /** The request asks for no logprobs: they are only for the choice. */
  readonly hidesLogprobs: boolean;
}

export interface ChosenFrom {
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

/**
 * The completions with the highest mean logprob per token, best first, for each prompt. `choices` has those of the first prompt,
 * then those of the second, ...
 */
export function keepBest(choices: readonly ChoiceOutput[], { generated, kept, hidesLogprobs }: BestOf): ChoiceOutput[] {
  const best: ChoiceOutput[] = [];
  for (let first = 0; first < choices.length; first += generated) {
    const ranked = choices
      .slice(first, first + generated)
      .map((choice) => ({ choice, mean: meanLogprob(choice) }))
      .sort((a, b) => b.mean - a.mean);
    // The first completion of a prompt has the logprobs of the prompt for all.
    const { promptLogprobs } = choices[first]!;
    const ofPrompt = promptLogprobs === undefined ? {} : { promptLogprobs };
    for (const { choice } of ranked.slice(0, kept)) {
      const { logprobs, ...plain } = choice;
      best.push({ ...(hidesLogprobs ? plain : choice), ...ofPrompt, index: best.length });
    }
  }
  return best;
}

function meanLogprob({ logprobs = [] }: ChoiceOutput): number {
  if (logprobs.length === 0) return Number.NEGATIVE_INFINITY;
  let sum = 0;
  for (const { logprob } of logprobs) sum += logprob;
  return sum / logprobs.length;
}
