import { assertDefined } from '../../base/assert.ts';
import { type LogprobList, PackedLogprobs } from '../../core/packed-logprobs.ts';
import type { SamplingOptions } from '../../core/sampling.ts';
import { TokenBuffer } from '../../core/tokens.ts';
import type { AnsweredDelta } from '../../engine/early-end.ts';
import type { ControlSpan } from '../../tools/answer-reader.ts';

/** What a renderer needs of the output of a choice: a part of it in a delta, or all of it. */
export interface ChoiceOutput extends Omit<AnsweredDelta, 'tokenIds' | 'logprobs' | 'promptLogprobs'> {
  readonly tokenIds: ArrayLike<number>;
  readonly logprobs?: LogprobList;
  readonly promptLogprobs?: LogprobList;
}

interface GatheredChoice {
  readonly text: GatheredText;
  readonly controls: ControlSpan[];
  readonly tokenIds: TokenBuffer;
  readonly logprobs: PackedLogprobs | undefined;
  readonly promptLogprobs: PackedLogprobs | undefined;
  last: AnsweredDelta | undefined;
}

/** Joins the deltas of each choice to one output, for responses that are not streamed. Logprobs are kept in a few bytes. */
export class ChoiceCollector {
  readonly #gathered: readonly GatheredChoice[];

  constructor(choiceCount: number, { logprobs, promptLogprobs }: SamplingOptions = {}) {
    this.#gathered = Array.from({ length: choiceCount }, () => ({
      text: new GatheredText(),
      controls: [],
      tokenIds: new TokenBuffer([], 16),
      logprobs: logprobs === undefined ? undefined : new PackedLogprobs(logprobs),
      promptLogprobs: promptLogprobs === undefined ? undefined : new PackedLogprobs(promptLogprobs),
      last: undefined,
    }));
  }

  add(delta: AnsweredDelta): void {
    const choice = assertDefined(
      this.#gathered[delta.index],
      `the engine returned a choice ${delta.index} that was not requested`,
    );
    for (const { at, length } of delta.controls ?? []) choice.controls.push({ at: choice.text.length + at, length });
    choice.text.add(delta.text);
    for (const token of delta.tokenIds) choice.tokenIds.push(token);
    choice.logprobs?.pushAll(delta.logprobs ?? []);
    choice.promptLogprobs?.pushAll(delta.promptLogprobs ?? []);
    choice.last = delta;
  }

  /** The choices in order of their numbers. Every choice must have ended. */
  choices(): ChoiceOutput[] {
    return this.#gathered.map(({ text, controls, tokenIds, logprobs, promptLogprobs, last }, index) => {
      const { stats, finish } = assertDefined(last, `choice ${index} has no output`);
      return {
        index,
        text: text.all(),
        ...(controls.length === 0 ? {} : { controls }),
        tokenIds: tokenIds.view(),
        stats,
        finish: assertDefined(finish, `choice ${index} has not ended`),
        ...(promptLogprobs === undefined || promptLogprobs.length === 0 ? {} : { promptLogprobs }),
        ...(logprobs === undefined ? {} : { logprobs }),
      };
    });
  }
}

const PIECES_AT_ONCE = 256;

/** A text in pieces. V8 would keep two objects for each piece that is appended to a string. */
class GatheredText {
  length = 0;
  #text = '';
  #pieces: string[] = [];

  add(piece: string): void {
    if (piece === '') return;
    this.length += piece.length;
    this.#pieces.push(piece);
    if (this.#pieces.length === PIECES_AT_ONCE) this.#join();
  }

  all(): string {
    this.#join();
    return this.#text;
  }

  #join(): void {
    this.#text += this.#pieces.join('');
    this.#pieces = [];
  }
}
