/** Tags that are control tokens in the vocabulary: their text, spelled with other tokens, is text. */
export type ControlTags = ReadonlySet<string>;
const noTags: ControlTags = new Set();

/** A text, and where the texts of control tokens begin in it, ascending. */
export interface ControlledText {
  readonly text: string;
  readonly controls: readonly number[];
}

/** Text that has come and is not read. Keeps back what may be the start of a tag that is not complete. */
export class HeldText {
  #text = '';
  /** Where control tokens begin in the text. */
  #controls: number[] = [];
  readonly #controlTags: ControlTags;
  #hasEnded: boolean = false;

  constructor(controlTags: ControlTags = noTags) {
    this.#controlTags = controlTags;
  }

  add(text: string, controls: readonly number[] = []): void {
    for (const at of controls) this.#controls.push(this.#text.length + at);
    this.#text += text;
  }

  /** No more text comes, and the model has ended the answer. */
  end(): void {
    this.#hasEnded = true;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  get isEmpty(): boolean {
    return this.#text === '';
  }

  /** Takes all that is left. */
  takeAll(): string {
    return this.take(this.#text.length);
  }

  /** Takes the next `length` UTF-16 units. */
  take(length: number): string {
    const text = this.#text.slice(0, length);
    this.#text = this.#text.slice(length);
    if (this.#controls.length > 0) {
      this.#controls = this.#controls.filter((at) => at >= length).map((at) => at - length);
    }
    return text;
  }

  /** The length of the white space at the start. */
  spaceLength(): number {
    return /^\s*/.exec(this.#text)![0].length;
  }

  /** Takes white space at the start. */
  takeSpace(): string {
    return this.take(this.spaceLength());
  }

  peek(): string {
    return this.#text;
  }

  /** Whether the tag is at this place of the text; undefined: it may be, when more text has come. */
  startsWith(tag: string, at = 0): boolean | undefined {
    const text = this.#text.slice(at, at + tag.length);
    if (text !== '' && this.#isSpelled(tag, at)) return false;
    if (text === tag) return true;
    return at + tag.length > this.#text.length && tag.startsWith(text) ? undefined : false;
  }

  /** Takes the text before the first of the tags, and the tag. Without a tag: the text that cannot belong to one. */
  takeUntil(...tags: readonly string[]): ControlledText & { readonly tag: string | undefined } {
    const { at, tag } = this.#find(tags);
    const controls = this.#controls.filter((control) => control < at);
    const text = this.take(at);
    return { text, controls, tag: tag === undefined ? undefined : this.take(tag.length) };
  }

  /** Where the first of the tags begins, or without one, a text that may become one. */
  #find(tags: readonly string[]): { readonly at: number; readonly tag?: string } {
    const pattern = patternOf(tags);
    pattern.lastIndex = 0;
    for (let found = pattern.exec(this.#text); found !== null; found = pattern.exec(this.#text)) {
      if (!this.#isSpelled(found[0], found.index)) return { at: found.index, tag: found[0] };
      pattern.lastIndex = found.index + 1;
    }
    for (let length = heldLength(this.#text, tags); length > 0; length--) {
      const at = this.#text.length - length;
      const end = this.#text.slice(at);
      if (tags.some((tag) => tag.startsWith(end) && !this.#isSpelled(tag, at))) return { at };
    }
    return { at: this.#text.length };
  }

  /** Whether the tag is a control token, and the text at this place was spelled with others. */
  #isSpelled(tag: string, at: number): boolean {
    return this.#controlTags.has(tag) && !this.#controls.includes(at);
  }
}

const patterns = new Map<string, RegExp>();

/** Finds the first of several tags from `lastIndex` on, without a look at the text behind it, which can be long and have many more. */
function patternOf(tags: readonly string[]): RegExp {
  const key = tags.join('\n');
  let pattern = patterns.get(key);
  if (pattern === undefined) {
    pattern = new RegExp(tags.map((tag) => tag.replace(/[|[\](){}.*+?^$\\]/g, '\\$&')).join('|'), 'g');
    patterns.set(key, pattern);
  }
  return pattern;
}

/** The length of the longest end of the text that is the start of a tag. */
function heldLength(text: string, tags: readonly string[]): number {
  const longest = Math.max(...tags.map((tag) => tag.length)) - 1;
  for (let length = Math.min(longest, text.length); length > 0; length--) {
    const end = text.slice(text.length - length);
    if (tags.some((tag) => tag.startsWith(end))) return length;
  }
  return 0;
}
