import { describeValue } from '../../base/describe-value.ts';
import { invalidParameter } from '../../core/errors.ts';
import type { EncodeOptions } from '../../tokenizer/contract.ts';

/**
 * A conversation as text in the model's chat format, which `applyChatTemplate` returns. `generate` and `tokenize` add no
 * BOS to the text and read the names of control tokens in it as control tokens, because the template wrote both.
 */
export class RenderedPrompt {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
    Object.freeze(this);
  }

  toString(): string {
    return this.text;
  }

  toJSON(): string {
    return this.text;
  }
}

/** The text of a prompt, and how it is tokenized. */
export interface PromptText {
  readonly text: string;
  readonly options: Required<EncodeOptions>;
}

/** What the caller does not choose depends on the kind of the text. Undefined: the prompt is not a text. */
export function promptText(prompt: unknown, chosen: EncodeOptions): PromptText | undefined {
  const isRendered = prompt instanceof RenderedPrompt;
  if (!isRendered && typeof prompt !== 'string') return undefined;
  const { addSpecial = !isRendered, parseSpecial = isRendered } = chosen;
  return { text: isRendered ? prompt.text : prompt, options: { addSpecial, parseSpecial } };
}

/** @throws KvasirError `invalidParameter` if the prompt is not a text. */
export function readPromptText(prompt: unknown, chosen: EncodeOptions): PromptText {
  const given = promptText(prompt, chosen);
  if (given !== undefined) return given;
  const expected = 'a string or a rendered conversation';
  throw invalidParameter({ parameter: 'text', expected, actual: describeValue(prompt) });
}
