import { assertDefined } from '../base/assert.ts';
import type { TokenId } from '../core/ids.ts';
import type { TokenLogprobs } from '../core/step.ts';
import type { OutputDelta } from '../engine/contract.ts';

interface GatheredChoice {
  text: string;
  readonly tokenIds: TokenId[];
  readonly logprobs: TokenLogprobs[];
  readonly promptLogprobs: TokenLogprobs[];
  last: OutputDelta | undefined;
}

/** Joins the deltas of each choice to one delta, for responses that are not streamed. */
export class ChoiceCollector {
  readonly #gathered: readonly GatheredChoice[];

  constructor(choiceCount: number) {
    this.#gathered = Array.from({ length: choiceCount }, () => ({
      text: '',
      tokenIds: [],
      logprobs: [],
      promptLogprobs: [],
      last: undefined,
    }));
  }

  add(delta: OutputDelta): void {
    const choice = assertDefined(
      this.#gathered[delta.index],
      `the engine returned a choice ${delta.index} that was not requested`,
    );
    choice.text += delta.text;
    choice.tokenIds.push(...delta.tokenIds);
    choice.logprobs.push(...(delta.logprobs ?? []));
    choice.promptLogprobs.push(...(delta.promptLogprobs ?? []));
    choice.last = delta;
  }

  /** The choices in order of their numbers. Every choice must have ended. */
  choices(): OutputDelta[] {
    return this.#gathered.map(({ text, tokenIds, logprobs, promptLogprobs, last }, index) => {
      const { stats, finish, logprobs: lastLogprobs } = assertDefined(last, `choice ${index} has no output`);
      return {
        index,
        text,
        tokenIds,
        stats,
        finish: assertDefined(finish, `choice ${index} has not ended`),
        ...(promptLogprobs.length === 0 ? {} : { promptLogprobs }),
        ...(lastLogprobs === undefined && logprobs.length === 0 ? {} : { logprobs }),
      };
    });
  }
}
