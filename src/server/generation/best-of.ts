import type { ChoiceOutput } from './choice-collector.ts';

/** `best_of` completions of each prompt are generated, and the best `n` of them are the response. */
export interface BestOf {
  readonly generated: number;
  readonly kept: number;
  /** The request asks for no logprobs: they are only for the choice. */
  readonly hidesLogprobs: boolean;
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
