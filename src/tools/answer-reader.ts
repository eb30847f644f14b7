import type { FinishReason } from '../core/request.ts';
import { type AnswerFormat, answerParser } from './formats.ts';
import type { AnswerParser, AnswerPart } from './tool.ts';

/** The name of a control token within a text, in UTF-16 units. */
export interface ControlSpan {
  readonly at: number;
  readonly length: number;
}

/** What a step adds to the text of an answer. */
export interface AnswerText {
  readonly text: string;
  readonly controls?: readonly ControlSpan[];
  /** Set if the answer has ended. */
  readonly finish?: { readonly reason: FinishReason } | undefined;
}

/** Reads an answer: content, thoughts and calls. */
export class AnswerReader {
  readonly #format: AnswerFormat;
  readonly #parser: AnswerParser | undefined;
  /** Units of a name that is left out, and that the next text has. */
  #leftOut = 0;

  /** `prompt`: the rendered conversation. */
  constructor(format: AnswerFormat, prompt: string) {
    this.#format = format;
    this.#parser = answerParser(format, prompt);
  }

  add({ finish, ...added }: AnswerText): AnswerPart[] {
    if (this.#parser === undefined) return added.text === '' ? [] : [{ kind: 'content', text: added.text }];
    const { text, controls } = this.#withoutOthers(added);
    const parts = this.#parser.add(text, controls);
    if (finish !== undefined) parts.push(...this.#parser.end(finish.reason !== 'stop'));
    return parts;
  }

  /** Without the names of control tokens that are no tags of the format. Only for the tags, the text has them. */
  #withoutOthers({ text, controls = [] }: AnswerText): { readonly text: string; readonly controls: readonly number[] } {
    const { controlTags, showsControls = false } = this.#format;
    const tags = [...(controlTags ?? [])];
    let shown = '';
    let end = Math.min(this.#leftOut, text.length);
    this.#leftOut -= end;
    const places: number[] = [];
    for (const { at, length } of controls) {
      const name = text.slice(at, at + length);
      const isTag = tags.some((tag) => tag.startsWith(name));
      shown += text.slice(end, at);
      if (isTag) places.push(shown.length);
      if (isTag || showsControls) shown += name;
      end = isTag || showsControls ? at + name.length : at + length;
    }
    this.#leftOut += Math.max(0, end - text.length);
    return { text: shown + text.slice(end), controls: places };
  }
}
