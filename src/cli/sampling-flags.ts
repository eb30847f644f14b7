import type { Command } from 'commander';
import { withoutUndefined } from '../base/field-reader.ts';
import type { SamplingOptions } from '../core/sampling.ts';
import { unsetSampling } from '../core/sampling-parse.ts';
import type { ModelInfo } from '../engine/contract.ts';
import { integerFrom, numberFlag, repeated } from './args.ts';

/** The flags of sampling as commander returns them. */
export interface SamplingFlags {
  readonly maxTokens?: number;
  readonly minTokens?: number;
  readonly temperature?: number;
  readonly topK?: number;
  readonly topP?: number;
  readonly minP?: number;
  readonly repetitionPenalty?: number;
  readonly presencePenalty?: number;
  readonly frequencyPenalty?: number;
  readonly seed?: number;
  readonly stop?: readonly string[];
  readonly ignoreEos: boolean;
}

/** Adds the flags of sampling, except the largest number of tokens, whose default depends on the command. */
export function addSamplingFlags(command: Command): Command {
  return command
    .option('--min-tokens <n>', 'smallest number of output tokens', integerFrom(0))
    .option(
      '--temperature <t>',
      '0 selects the most probable token in each step (default: the one that the file recommends, else 0.7)',
      numberFlag,
    )
    .option('--top-k <k>', 'sample from the k most probable tokens', integerFrom(-1))
    .option('--top-p <p>', 'sample from the most probable tokens whose probabilities sum to p', numberFlag)
    .option(
      '--min-p <p>',
      'exclude tokens whose probability is below p times the largest (default: 0.05 if the file recommends no sampling)',
      numberFlag,
    )
    .option(
      '--repetition-penalty <x>',
      'above 1: tokens of the prompt and of the output become less probable',
      numberFlag,
    )
    .option('--presence-penalty <x>', 'subtracted once from the logit of each token of the output', numberFlag)
    .option('--frequency-penalty <x>', 'subtracted from the logit for each occurrence in the output', numberFlag)
    .option('--seed <n>', 'seed of the randomness; an equal seed gives an equal text (default: random)', integerFrom(0))
    .option('--stop <text>', 'stop string: the text ends before it; can be given several times', repeated)
    .option('--ignore-eos', 'continue after the end-of-sequence token', false);
}

/** Absent flags have the values that the model's publisher recommends, or Kvasir's (`unsetSampling`). */
export function samplingOptionsOf(flags: SamplingFlags, model: Pick<ModelInfo, 'samplingDefaults'>): SamplingOptions {
  const { maxTokens, minTokens, temperature, topK, topP, minP, stop, ignoreEos } = flags;
  const { repetitionPenalty, presencePenalty, frequencyPenalty } = flags;
  const penalties = { repetitionPenalty, presencePenalty, frequencyPenalty };
  const seed = flags.seed === undefined ? undefined : BigInt(flags.seed);
  const given = withoutUndefined({
    maxTokens,
    minTokens,
    temperature,
    topK,
    topP,
    minP,
    ...penalties,
    seed,
    stop,
    ignoreEos,
  });
  return { ...unsetSampling(model.samplingDefaults), ...given };
}
