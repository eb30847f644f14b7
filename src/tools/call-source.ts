import type { Content } from './content.ts';
import type { HeldText } from './held-text.ts';
import type { AnswerPart, Tool } from './tool.ts';

/** The functions that an answer may call, by their names. */
export type OfferedTools = ReadonlyMap<string, Tool>;

/** No name of a function is longer. A longer text is no name, so it does not have to be kept back. */
export const nameLengthMax = 256;

/**
 * The text of an answer for readers of calls. Text that a reader takes waits until it turns out to belong to a call. All
 * that belongs to none is content, as the model wrote it.
 */
export class CallSource {
  readonly held: HeldText;
  readonly tools: OfferedTools;
  readonly #content: Content;
  #parts: AnswerPart[] = [];
  #waiting = '';
  #count = 0;

  constructor(held: HeldText, content: Content, tools: OfferedTools) {
    this.held = held;
    this.#content = content;
    this.tools = tools;
  }

  /** The number of calls so far. */
  get count(): number {
    return this.#count;
  }

  /** Takes text that may belong to a call. */
  take(length: number): string {
    const text = this.held.take(length);
    this.#waiting += text;
    return text;
  }

  takeSpace(): void {
    this.#waiting += this.held.takeSpace();
  }

  /** Takes a tag if the text starts with it; undefined: it may, when more text has come. */
  takeTag(tag: string): boolean | undefined {
    const starts = this.held.startsWith(tag);
    if (starts === true) this.take(tag.length);
    return starts;
  }

  /** Text that was taken from the held text in another way. */
  wait(text: string): void {
    this.#waiting += text;
  }

  /** The text that waits belongs to a call and is not shown. */
  drop(): void {
    this.#waiting = '';
  }

  /** The text that waits belongs to no call. */
  giveBack(): void {
    this.content(this.#waiting);
    this.#waiting = '';
  }

  content(text: string, controls: readonly number[] = []): void {
    if (text !== '') this.#parts.push(...this.#content.add({ text, controls }));
  }

  /** A call of an offered tool begins. Its arguments follow. */
  begin(name: string, id?: string): void {
    this.drop();
    this.#parts.push({ kind: 'call', index: this.#count++, name, ...(id === undefined ? {} : { id }) });
  }

  arguments(text: string): void {
    if (text !== '') this.#parts.push({ kind: 'arguments', index: this.#count - 1, text });
  }

  takeParts(): AnswerPart[] {
    const parts = this.#parts;
    this.#parts = [];
    return parts;
  }
}
