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
    let at = -1;
    let found: string | undefined;
    for (const tag of tags) {
      const position = this.#text.indexOf(tag);
      if (position !== -1 && (at === -1 || position < at)) [at, found] = [position, tag];
    }
    if (found !== undefined) {
      const text = this.take(at);
      this.take(found.length);
      return { text, tag: found };
    }
    return { text: this.take(this.#text.length - heldLength(this.#text, tags)), tag: undefined };
  }
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
