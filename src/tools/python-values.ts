import { byName } from '../base/by-name.ts';
import { jsonLimits } from '../base/exact-json.ts';

/**
 * Reads values as Python writes them, and as JSON does: numbers, strings, lists, tuples, dicts, `True` and `true`. Gives
 * their JSON. Numbers keep their digits.
 */
export class PythonReader {
  readonly #text: string;
  #at: number;
  #level = 0;

  constructor(text: string, at = 0) {
    this.#text = text;
    this.#at = at;
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#text.length;
  }

  /** The next letter behind white space; empty at the end. */
  next(): string {
    while (this.#at < this.#text.length && /\s/.test(this.#text[this.#at]!)) this.#at++;
    return this.#text.charAt(this.#at);
  }

  /** Whether the next letter is this one. Reads it then. */
  take(letter: string): boolean {
    if (this.next() !== letter) return false;
    this.#at++;
    return true;
  }

  /** Reads what a sticky expression matches. */
  match(pattern: RegExp): string | undefined {
    this.next();
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0];
    if (found !== undefined) this.#at += found.length;
    return found;
  }

  /** JSON; undefined: there is no value. */
  value(): string | undefined {
    const letter = this.next();
    if (letter === '"' || letter === "'") {
      const text = this.#string(letter);
      return text === undefined ? undefined : JSON.stringify(text);
    }
    if (letter === '[') return this.#list('[', ']');
    if (letter === '(') return this.#list('(', ')');
    if (letter === '{') return this.#dict();
    const word = this.match(/[A-Za-z_]\w*/y);
    if (word !== undefined) return words.get(word);
    return this.#number();
  }

  #list(open: string, close: string): string | undefined {
    const items: string[] = [];
    const isWhole = this.#enclosed(open, close, () => {
      const item = this.value();
      if (item !== undefined) items.push(item);
      return item !== undefined;
    });
    return isWhole ? `[${items.join(', ')}]` : undefined;
  }

  #dict(): string | undefined {
    const members: string[] = [];
    const isWhole = this.#enclosed('{', '}', () => {
      const key = this.value();
      if (key === undefined || /^[[{]/.test(key) || !this.take(':')) return false;
      const item = this.value();
      if (item === undefined) return false;
      members.push(`${key.startsWith('"') ? key : `"${key}"`}: ${item}`);
      return true;
    });
    return isWhole ? `{${members.join(', ')}}` : undefined;
  }

  /** Items with commas between them; a comma may follow the last. */
  #enclosed(open: string, close: string, item: () => boolean): boolean {
    if (!this.take(open) || ++this.#level > jsonLimits.levels) return false;
    while (!this.take(close)) {
      if (!item()) return false;
      if (!this.take(',') && this.next() !== close) return false;
    }
    this.#level--;
    return true;
  }

  #number(): string | undefined {
    const written = this.match(
      /[+-]?(?:0[xX][\da-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)/y,
    );
    if (written === undefined || written.length > numberLengthMax) return undefined;
    const sign = written.startsWith('-') ? '-' : '';
    const digits = written.replace(/^[+-]/, '').replaceAll('_', '');
    if (/^0[xob]/i.test(digits)) return sign + BigInt(digits);
    const [, whole = '', fraction, exponent = ''] = /^(\d*)(?:\.(\d*))?(.*)$/.exec(digits)!;
    const integer = whole.replace(/^0+(?=\d)/, '') || '0';
    return `${sign}${integer}${fraction === undefined ? '' : `.${fraction || '0'}`}${exponent}`;
  }

  #string(quote: string): string | undefined {
    const triple = quote.repeat(3);
    const end = this.#text.startsWith(triple, this.#at) ? triple : quote;
    let at = this.#at + end.length;
    let value = '';
    while (!this.#text.startsWith(end, at)) {
      const letter = this.#text[at];
      if (letter === undefined) return undefined;
      if (letter !== '\\') {
        value += letter;
        at++;
        continue;
      }
      escapePattern.lastIndex = at;
      const sequence = escapePattern.exec(this.#text)?.[0] ?? letter;
      value += unescaped(sequence);
      at += sequence.length;
    }
    this.#at = at + end.length;
    return value;
  }
}

const numberLengthMax = 1000;
const words: ReadonlyMap<string, string> = new Map([
  ...['True', 'true'].map((word) => [word, 'true'] as const),
  ...['False', 'false'].map((word) => [word, 'false'] as const),
  ...['None', 'null'].map((word) => [word, 'null'] as const),
]);

const escapePattern = /\\(?:x[\da-fA-F]{2}|u[\da-fA-F]{4}|U[\da-fA-F]{8}|[0-7]{1,3}|[\s\S])/y;
const letters: Readonly<Record<string, string>> = byName({
  ...{ n: '\n', t: '\t', r: '\r', b: '\b', f: '\f', v: '\v', a: '\x07' },
  ...{ '\\': '\\', "'": "'", '"': '"', '/': '/', '\n': '' },
});

/** As in Python, an unknown escape stands for itself. */
function unescaped(sequence: string): string {
  const code = sequence.slice(1);
  if (/^[xuU]./.test(code)) {
    const point = Number.parseInt(code.slice(1), 16);
    return point <= 0x10ffff ? String.fromCodePoint(point) : sequence;
  }
  if (/^[0-7]/.test(code)) return String.fromCharCode(Number.parseInt(code, 8));
  return Object.hasOwn(letters, code) ? letters[code]! : sequence;
}

/** The JSON of a text that is one value of Python; undefined: it is something else. */
export function pythonToJson(text: string): string | undefined {
  const reader = new PythonReader(text);
  const json = reader.value();
  return json === undefined || reader.next() !== '' ? undefined : json;
}
