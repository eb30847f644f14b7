/** The names under which models write the arguments of a call. */
const argumentNames = new Set(['arguments', 'parameters']);

export interface ScannedCall {
  /** The name of the function, once. */
  readonly name?: string;
  /** The next piece of the arguments, never before the name. */
  readonly arguments?: string;
}

/**
 * Reads one JSON object `{"name": ..., "arguments": {...}}` in pieces, in any order of its fields. Passes the arguments on as
 * they come, without waiting for their end.
 */
export class CallScanner {
  /** All that has been read: what the object was, if it turns out to be no call. */
  raw = '';
  #state: 'open' | 'ended' | 'invalid' = 'open';
  #depth = 0;
  #isString: boolean = false;
  #isEscaped: boolean = false;
  /** In the outer object: the key whose value is read. */
  #key: string | undefined;
  /** The text of the key or value that is read. */
  #token = '';
  #hasName: boolean = false;
  #hasArguments: boolean = false;
  /** Arguments that came before the name. */
  #held = '';
  #name: string | undefined;
  #arguments = '';

  /** `ended`: the closing brace was read. `invalid`: the text is no such object. */
  get state(): 'open' | 'ended' | 'invalid' {
    return this.#state;
  }

  get hasName(): boolean {
    return this.#hasName;
  }

  /** Reads up to the end of the object. Returns the number of UTF-16 units that belong to it. */
  add(text: string): { readonly used: number; readonly found: ScannedCall } {
    let used = 0;
    while (used < text.length && this.#state === 'open') this.#read(text[used++]!);
    this.raw += text.slice(0, used);
    return { used, found: this.#takeFound() };
  }

  #takeFound(): ScannedCall {
    const found: { name?: string; arguments?: string } = {};
    if (this.#name !== undefined) found.name = this.#name;
    if (this.#hasName && this.#arguments !== '') {
      found.arguments = this.#arguments;
      this.#arguments = '';
    }
    this.#name = undefined;
    return found;
  }

  #read(letter: string): void {
    if (this.#depth === 0) {
      if (letter === '{') this.#depth = 1;
      else if (!/\s/.test(letter)) this.#state = 'invalid';
      return;
    }
    const isOuter = this.#depth === 1;
    if (this.#isString) this.#readString(letter);
    else if (letter === '"') this.#begin(letter);
    else if (letter === '{' || letter === '[') this.#open(letter);
    else if (letter === '}' || letter === ']') this.#close(letter);
    else if (isOuter && letter === ':') this.#endKey();
    else if (isOuter && letter === ',') this.#endValue();
    else if (!isOuter || !/\s/.test(letter)) this.#append(letter);
  }

  #readString(letter: string): void {
    this.#append(letter);
    if (this.#isEscaped) this.#isEscaped = false;
    else if (letter === '\\') this.#isEscaped = true;
    else if (letter === '"') this.#isString = false;
  }

  #begin(letter: string): void {
    this.#isString = true;
    this.#append(letter);
  }

  #open(letter: string): void {
    this.#depth++;
    this.#append(letter);
  }

  #close(letter: string): void {
    if (this.#depth === 1) {
      this.#endValue();
      if (this.#state === 'open') this.#state = letter === '}' && this.#hasName ? 'ended' : 'invalid';
      if (this.#state === 'ended' && !this.#hasArguments) this.#arguments = '{}';
    } else this.#append(letter);
    this.#depth--;
  }

  #append(letter: string): void {
    this.#token += letter;
    // The name decides whether this is a call at all, so arguments wait for it. A text as the value is read whole.
    if (this.#key === undefined || !argumentNames.has(this.#key) || this.#token.startsWith('"')) return;
    this.#hasArguments = true;
    if (this.#hasName) this.#arguments += letter;
    else this.#held += letter;
  }

  #endKey(): void {
    const key = parsed(this.#token);
    if (this.#key !== undefined || typeof key !== 'string') this.#state = 'invalid';
    else this.#key = key;
    this.#token = '';
  }

  #endValue(): void {
    const [key, token] = [this.#key, this.#token];
    this.#key = undefined;
    this.#token = '';
    if (key === undefined) {
      if (token !== '') this.#state = 'invalid';
      return;
    }
    if (key === 'name') this.#endName(parsed(token));
    else if (argumentNames.has(key) && token.startsWith('"')) this.#addText(parsed(token));
  }

  #endName(name: unknown): void {
    if (typeof name !== 'string' || name === '' || this.#hasName) {
      this.#state = 'invalid';
      return;
    }
    this.#hasName = true;
    this.#name = name;
    this.#arguments = this.#held;
  }

  /** Some models write the arguments as a text that has JSON in it. */
  #addText(text: unknown): void {
    if (typeof text !== 'string') return;
    this.#hasArguments = true;
    if (this.#hasName) this.#arguments += text;
    else this.#held += text;
  }
}

function parsed(token: string): unknown {
  try {
    return JSON.parse(token) as unknown;
  } catch {
    return undefined;
  }
}
