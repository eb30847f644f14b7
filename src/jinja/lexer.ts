import { byName } from '../base/by-name.ts';
import { TemplateSyntaxError } from './errors.ts';
import { space, strip } from './text-split.ts';

export type TokenKind = 'data' | 'begin' | 'end' | 'name' | 'string' | 'number' | 'operator' | 'eof';

export interface Token {
  readonly kind: TokenKind;
  /** Operators and names as written, texts without quotes; `begin` and `end` have the delimiter (`{{`, `%}`). */
  readonly text: string;
  readonly value?: bigint | number;
  readonly line: number;
}

/**
 * Divides a template into tokens, with the white space rules of chat templates: a newline after a block is removed (`trim_blocks`),
 * and so is the indentation before a block (`lstrip_blocks`). One pass over the source.
 */
export function tokenize(source: string): Token[] {
  return new Lexer(source).run();
}

const opening = /\{[{%#]/g;
const rawBegin = new RegExp(`\\{%[-+]?${space}*raw${space}*(?:-%\\}${space}*|%\\})`, 'y');
const rawEnd = new RegExp(`\\{%([-+]?)${space}*endraw${space}*(?:\\+%\\}|-%\\}${space}*|%\\}\\n?)`, 'y');
const commentEnd = new RegExp(`\\+#\\}|-#\\}${space}*|#\\}\\n?`, 'y');
const blockEnd = new RegExp(`\\+%\\}|-%\\}${space}*|%\\}\\n?`, 'y');
const variableEnd = new RegExp(`-\\}\\}${space}*|\\}\\}`, 'y');
const spaces = new RegExp(`${space}+`, 'y');
const float = /(?<!\.)(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?[eE][+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)/y;
const integer = /0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|0[xX](?:_?[\da-fA-F])+|[1-9](?:_?\d)*|0(?:_?0)*/y;
const name = /[\p{XID_Start}_]\p{XID_Continue}*/uy;
const string = /'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*"/sy;
const operator = /\/\/|\*\*|==|!=|>=|<=|[-+/*%~[\](){}><=.:|,;]/y;

const newline = 0x0a;
/** Python's limit. */
const digitsMax = 4300;

const closers: Readonly<Record<string, string>> = byName({ '{': '}', '(': ')', '[': ']' });

class Lexer {
  readonly #source: string;
  readonly #tokens: Token[] = [];
  #at = 0;
  #line = 1;
  /** Whether the text before this place ends with a newline or is empty. */
  #startsLine = true;

  constructor(source: string) {
    // Only one newline at the end is no part of the template.
    this.#source = source.replace(/\r\n?/g, '\n').replace(/\n$/, '');
  }

  run(): Token[] {
    while (this.#at < this.#source.length) {
      opening.lastIndex = this.#at;
      const found = opening.exec(this.#source);
      if (found === null) {
        this.#push('data', this.#source.slice(this.#at));
        this.#at = this.#source.length;
        break;
      }
      this.#tag(found.index, found[0]);
    }
    this.#push('eof', '');
    return this.#tokens;
  }

  #push(kind: TokenKind, text: string, value?: bigint | number): void {
    if (kind === 'data' && text === '') return;
    this.#tokens.push({ kind, text, line: this.#line, ...(value === undefined ? {} : { value }) });
  }

  #move(length: number): void {
    const end = this.#at + length;
    for (let at = this.#at; at < end; at++) if (this.#source.charCodeAt(at) === newline) this.#line++;
    this.#at = end;
    this.#startsLine = this.#source[this.#at - 1] === '\n';
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    return pattern.exec(this.#source)?.[0];
  }

  /** The text before a tag, and the tag. */
  #tag(start: number, delimiter: string): void {
    const after = this.#source[start + 2];
    const sign = after === '-' || after === '+' ? after : '';
    this.#text(this.#source.slice(this.#at, start), delimiter === '{{', sign);
    this.#move(start - this.#at);
    const raw = delimiter === '{%' ? this.#match(rawBegin) : undefined;
    if (raw !== undefined) {
      this.#move(raw.length);
      this.#raw();
      return;
    }
    const line = this.#line;
    if (delimiter !== '{#') this.#push('begin', delimiter);
    this.#move(2 + sign.length);
    if (delimiter === '{#') this.#comment(line);
    else this.#code(delimiter === '{{' ? variableEnd : blockEnd, delimiter === '{{' ? '}}' : '%}');
  }

  /** Text, without the white space that the tag after it removes. */
  #text(text: string, isVariable: boolean, sign: string): void {
    if (sign === '-') this.#push('data', strip(text, undefined, 'end'));
    else this.#push('data', sign === '+' || isVariable ? text : this.#withoutIndentation(text));
  }

  #withoutIndentation(text: string): string {
    const lineStart = text.lastIndexOf('\n') + 1;
    if (lineStart === 0 && !this.#startsLine) return text;
    return strip(text.slice(lineStart), undefined, 'start') === '' ? text.slice(0, lineStart) : text;
  }

  #comment(line: number): void {
    const end = this.#source.indexOf('#}', this.#at);
    if (end < 0) throw new TemplateSyntaxError('Missing end of comment tag', line);
    const before = this.#source[end - 1];
    const start = end > this.#at && (before === '-' || before === '+') ? end - 1 : end;
    this.#move(start - this.#at);
    this.#move(this.#match(commentEnd)!.length);
  }

  #raw(): void {
    const line = this.#line;
    for (let start = this.#source.indexOf('{%', this.#at); start >= 0; start = this.#source.indexOf('{%', start + 1)) {
      rawEnd.lastIndex = start;
      const end = rawEnd.exec(this.#source);
      if (end === null) continue;
      this.#text(this.#source.slice(this.#at, start), false, end[1] ?? '');
      this.#move(start - this.#at + end[0].length);
      return;
    }
    throw new TemplateSyntaxError('Missing end of raw directive', line);
  }

  /** The tokens of a statement or an expression, up to its end. */
  #code(end: RegExp, delimiter: string): void {
    const open: string[] = [];
    for (;;) {
      const closing = open.length === 0 ? this.#match(end) : undefined;
      if (closing !== undefined) {
        this.#push('end', delimiter);
        this.#move(closing.length);
        return;
      }
      if (this.#at >= this.#source.length) return;
      this.#move(this.#codeToken(open));
    }
  }

  /** Adds one token and returns its length. */
  #codeToken(open: string[]): number {
    const blank = this.#match(spaces);
    if (blank !== undefined) return blank.length;
    const number = this.#match(float);
    if (number !== undefined) this.#push('number', number, Number(number.replaceAll('_', '')));
    const whole = number ?? this.#match(integer);
    if (number === undefined && whole !== undefined) this.#push('number', whole, this.#int(whole.replaceAll('_', '')));
    if (whole !== undefined) return whole.length;
    const word = this.#match(name);
    if (word !== undefined) {
      this.#push('name', word.normalize('NFKC'));
      return word.length;
    }
    const text = this.#match(string);
    if (text !== undefined) {
      this.#push('string', unescapeText(text.slice(1, -1), this.#line));
      return text.length;
    }
    const sign = this.#match(operator);
    if (sign === undefined) {
      throw new TemplateSyntaxError(
        `unexpected char '${String.fromCodePoint(this.#source.codePointAt(this.#at)!)}'`,
        this.#line,
      );
    }
    this.#balance(sign, open);
    this.#push('operator', sign);
    return sign.length;
  }

  #int(digits: string): bigint {
    if (digits.length > digitsMax)
      throw new TemplateSyntaxError(`a number of more than ${digitsMax} digits`, this.#line);
    return BigInt(digits);
  }

  #balance(sign: string, open: string[]): void {
    const closer = closers[sign];
    if (closer !== undefined) open.push(closer);
    if (sign !== '}' && sign !== ')' && sign !== ']') return;
    const expected = open.pop();
    if (expected === sign) return;
    const wanted = expected === undefined ? '' : `, expected '${expected}'`;
    throw new TemplateSyntaxError(`unexpected '${sign}'${wanted}`, this.#line);
  }
}

const escapes = /\\(?:([\\'"abfnrtv])|(\n)|([0-7]{1,3})|x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([xuUN])|)/g;

const escapedLetters: Readonly<Record<string, string>> = byName({
  a: '\x07',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  v: '\v',
});

/** The text of a string in Python's notation. Unknown escapes stay as they are. */
function unescapeText(source: string, line: number): string {
  if (!source.includes('\\')) return source;
  return source.replace(escapes, (...match: string[]) => {
    const [all = '', letter, newline, octal, two, four, eight, broken] = match as (string | undefined)[];
    if (letter !== undefined) return escapedLetters[letter] ?? letter;
    if (newline !== undefined) return '';
    if (octal !== undefined) return String.fromCodePoint(Number.parseInt(octal, 8));
    const hex = two ?? four ?? eight;
    if (hex !== undefined) return character(Number.parseInt(hex, 16), line);
    if (broken === 'N') throw new TemplateSyntaxError('names of characters (\\N{...}) are not supported', line);
    if (broken !== undefined) throw new TemplateSyntaxError(`truncated \\${broken} escape`, line);
    return all;
  });
}

function character(code: number, line: number): string {
  if (code > 0x10ffff) throw new TemplateSyntaxError('illegal Unicode character', line);
  return String.fromCodePoint(code);
}
