/**
 * Finds the end of a JSON object in text that comes in pieces. It counts brackets and knows strings, and leaves it to the
 * reader of the object whether the rest is JSON: models make mistakes, and clients may understand them.
 */
export class ObjectScanner {
  #state: 'start' | 'first' | 'inside' | 'ended' | 'broken' | 'refused' = 'start';
  #depth = 0;
  #isString: boolean = false;
  #isEscaped: boolean = false;

  /**
   * `maybe`: the text so far can begin an object. `inside`: it has begun one. `ended`: the object is complete. `broken`: a
   * tag follows where the object should go on. `refused`: the text begins no object.
   */
  get state(): 'maybe' | 'inside' | 'ended' | 'broken' | 'refused' {
    return this.#state === 'start' || this.#state === 'first' ? 'maybe' : this.#state;
  }

  /** Reads up to the end of the object. Returns the number of UTF-16 units that belong to it. */
  add(text: string): number {
    let used = 0;
    while (used < text.length && this.#read(text[used]!)) used++;
    return used;
  }

  /** Whether the letter belongs to the object. */
  #read(letter: string): boolean {
    switch (this.#state) {
      case 'start':
        return this.#go(letter === '{' ? 'first' : 'refused', letter === '{');
      case 'first':
        if (isSpace(letter)) return true;
        if (letter === '}') return this.#go('ended', true);
        this.#depth = 1;
        this.#isString = true;
        return this.#go(letter === '"' ? 'inside' : 'refused', letter === '"');
      case 'inside':
        return this.#readInside(letter);
      default:
        return false;
    }
  }

  #go(state: 'first' | 'inside' | 'ended' | 'broken' | 'refused', isPart: boolean): boolean {
    this.#state = state;
    return isPart;
  }

  #readInside(letter: string): boolean {
    if (this.#isString) {
      if (this.#isEscaped) this.#isEscaped = false;
      else if (letter === '\\') this.#isEscaped = true;
      else if (letter === '"') this.#isString = false;
      return true;
    }
    if (letter === '"') this.#isString = true;
    else if (letter === '{' || letter === '[') this.#depth++;
    else if (letter === '}' || letter === ']') {
      if (--this.#depth === 0) this.#state = 'ended';
    } else if (letter === '<') return this.#go('broken', false);
    return true;
  }
}

/** White space of JSON. */
export const isSpace = (letter: string): boolean =>
  letter === ' ' || letter === '\n' || letter === '\t' || letter === '\r';
