import type { Prng } from '../../src/base/prng.ts';

/** The new tokens of a turn, and the number of tokens to generate. */
export interface TurnLengths {
  readonly promptLength: number;
  readonly generateLength: number;
}

/**
 * Lengths like those of ShareGPT in vLLM's `bench serve --dataset-name sharegpt`. For 1000 requests from
 * ShareGPT_V3_unfiltered_cleaned_split.json its reports count 217393 prompt tokens and, with Llama 3's tokenizer, about
 * 202000 generated tokens. It leaves out prompts above 1024 tokens, prompts above 2048 tokens with their answers, and
 * lengths below 4. The means here are those. The lognormal distribution and its deviation are our choice, because this
 * package does not contain the data set.
 */
export const shareGptLimits = { promptMean: 217, generateMean: 202, min: 4, promptMax: 1024, totalMax: 2048 } as const;
/** Mean and deviation of the lengths' logarithms, chosen so that the lengths inside the limits have the means above. */
const logPrompt = { mean: 5.04, deviation: 1.4 };
const logGenerate = { mean: 4.85, deviation: 1 };

export function drawShareGptTurn(random: Prng): TurnLengths {
  const draw = ({ mean, deviation }: typeof logPrompt): number =>
    Math.round(Math.exp(mean + deviation * normal(random)));
  for (;;) {
    const [promptLength, generateLength] = [draw(logPrompt), draw(logGenerate)];
    if (Math.min(promptLength, generateLength) < shareGptLimits.min || promptLength > shareGptLimits.promptMax)
      continue;
    if (promptLength + generateLength <= shareGptLimits.totalMax) return { promptLength, generateLength };
  }
}

/** Box and Muller's method. */
function normal(random: Prng): number {
  const radius = Math.sqrt(-2 * Math.log(1 - random.unit()));
  return radius * Math.cos(2 * Math.PI * random.unit());
}
