/** Text that has come and is not read. Keeps back what may be the start of a tag that is not complete. */
export class HeldText {
  #text = '';

  add(text: string): void {
    this.#text += text;
  }

  get isEmpty(): boolean {
    return this.#text === '';
  }

  /** Takes all that is left. */
  takeAll(): string {
    const text = this.#text;
    this.#text = '';
    return text;
  }

  /** Takes the next `length` UTF-16 units. */
  take(length: number): string {
    const text = this.#text.slice(0, length);
    this.#text = this.#text.slice(length);
    return text;
  }

  /** Takes white space at the start. */
  takeSpace(): string {
    return this.take(/^\s*/.exec(this.#text)![0].length);
  }

  peek(): string {
    return this.#text;
  }

  /** Whether the text starts with the tag; undefined: it may, when more text has come. */
  startsWith(tag: string): boolean | undefined {
    if (this.#text.startsWith(tag)) return true;
    return this.#text.length < tag.length && tag.startsWith(this.#text) ? undefined : false;
  }

  /** Takes the text before the first of the tags, and the tag. Without a tag: the text that cannot belong to one. */
  takeUntil(...tags: readonly string[]): { readonly text: string; readonly tag: string | undefined } {
    const found = patternOf(tags).exec(this.#text);
    if (found !== null) {
      const text = this.take(found.index);
      this.take(found[0].length);
      return { text, tag: found[0] };
    }
    return { text: this.take(this.#text.length - heldLength(this.#text, tags)), tag: undefined };
  }
}

const patterns = new Map<string, RegExp>();

/** Finds the first of several tags without a look at the text behind it, which can be long and have many more. */
function patternOf(tags: readonly string[]): RegExp {
  const key = tags.join('\n');
  let pattern = patterns.get(key);
  if (pattern === undefined) {
    pattern = new RegExp(tags.map((tag) => tag.replace(/[|[\](){}.*+?^$\\]/g, '\\$&')).join('|'));
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
