import { jsonLimits } from '../base/exact-json.ts';
import { pythonToJson } from './python-values.ts';

/** Begins and ends a text. There are no escapes in it. */
export const quote = '<|"|>';

/**
 * Reads objects as Gemma 4 writes them: names without quotes, and texts between `<|"|>`. Gives their JSON. Values of JSON are read too,
 * and numbers keep their digits. Anything else without quotes is a text.
 *
 *   {city:<|"|>Rome<|"|>,days:3,tags:[<|"|>a<|"|>],deep:{is:true}}
 */
export class GemmaReader {
  readonly #text: string;
  #at = 0;
  #level = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** The JSON of the text if it is one object. */
  object(): string | undefined {
    const json = this.#dict();
    return this.#next() === '' ? json : undefined;
  }

  /** The next letter behind white space; empty at the end. */
  #next(): string {
    while (this.#at < this.#text.length && /\s/.test(this.#text[this.#at]!)) this.#at++;
    return this.#text.charAt(this.#at);
  }

  #take(letter: string): boolean {
    if (this.#next() !== letter) return false;
    this.#at++;
    return true;
  }

  #value(): string | undefined {
    const letter = this.#next();
    if (letter === '{') return this.#dict();
    if (letter === '[') return this.#list();
    return this.#quoted() ?? this.#bare();
  }

  /** A text between marks, or in quotes as in JSON. */
  #quoted(): string | undefined {
    if (this.#text.startsWith(quote, this.#at)) {
      const end = this.#text.indexOf(quote, this.#at + quote.length);
      if (end < 0) return undefined;
      const text = this.#text.slice(this.#at + quote.length, end);
      this.#at = end + quote.length;
      return JSON.stringify(text);
    }
    // An apostrophe is no quote: what follows a text in quotes is known.
    const pattern = /"(?:[^"\\]|\\[\s\S])*"|'(?:[^'\\]|\\[\s\S])*'(?=\s*[,:\]}])/y;
    pattern.lastIndex = this.#at;
    const written = pattern.exec(this.#text)?.[0];
    const json = written === undefined ? undefined : pythonToJson(written);
    if (written !== undefined && json !== undefined) this.#at += written.length;
    return json;
  }

  /** A number, a constant, or a text without quotes, which has no bracket and no comma. */
  #bare(): string | undefined {
    const pattern = /[^,[\]{}<>"]+/y;
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0];
    if (found === undefined) return undefined;
    this.#at += found.length;
    const text = found.trim();
    return constants.get(text) ?? (number.test(text) ? pythonToJson(text) : undefined) ?? JSON.stringify(text);
  }

  #list(): string | undefined {
    const items: string[] = [];
    const isWhole = this.#enclosed('[', ']', () => {
      const item = this.#value();
      if (item !== undefined) items.push(item);
      return item !== undefined;
    });
    return isWhole ? `[${items.join(', ')}]` : undefined;
  }

  #dict(): string | undefined {
    const members: string[] = [];
    const isWhole = this.#enclosed('{', '}', () => {
      const name = this.#name();
      if (name === undefined || !this.#take(':')) return false;
      const value = this.#value();
      if (value === undefined) return false;
      members.push(`${name}: ${value}`);
      return true;
    });
    return isWhole ? `{${members.join(', ')}}` : undefined;
  }

  #name(): string | undefined {
    this.#next();
    const quoted = this.#quoted();
    if (quoted !== undefined) return quoted;
    const pattern = /[^:,[\]{}<>"]+/y;
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0];
    if (found === undefined) return undefined;
    this.#at += found.length;
    return JSON.stringify(found.trim());
  }

  #enclosed(open: string, close: string, item: () => boolean): boolean {
    if (!this.#take(open) || ++this.#level > jsonLimits.levels) return false;
    while (!this.#take(close)) {
      if (!item()) return false;
      if (!this.#take(',') && this.#next() !== close) return false;
    }
    this.#level--;
    return true;
  }
}

/** `007` and `0x10` are texts: an area code is no number. */
const number = /^[+-]?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?$/;

const constants: ReadonlyMap<string, string> = new Map([
  ...['true', 'True'].map((word) => [word, 'true'] as const),
  ...['false', 'False'].map((word) => [word, 'false'] as const),
  ...['null', 'None'].map((word) => [word, 'null'] as const),
]);
