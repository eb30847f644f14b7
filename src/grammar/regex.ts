import {
  type CodeRange,
  choice,
  classOf,
  codePointMax,
  complement,
  type Expression,
  empty,
  repeat,
  sequence,
  text,
} from './expression.ts';

/** A pattern that is not supported. The message says what, and where. */
export class RegexError extends Error {}

/** One alternative of a pattern, and whether `^` and `$` bind it to the start and the end of the text. */
export interface RegexBranch {
  readonly body: Expression;
  readonly isAtStart: boolean;
  readonly isAtEnd: boolean;
}

export const countMax = 1_000_000;
const depthMax = 100;

/** Reads a regular expression: the regular part of the syntax that JavaScript and Python share. */
export function parseRegex(pattern: string): RegexBranch[] {
  return new RegexParser(pattern).parse();
}

/** The whole output matches the pattern, as in Python's `re.fullmatch`. */
export const wholeRegex = (pattern: string): Expression => choice(...parseRegex(pattern).map(({ body }) => body));

const range = (first: number, last: number): CodeRange => ({ first, last });
const codeOf = (letter: string): number => letter.codePointAt(0)!;
const digits = [range(0x30, 0x39)];
const wordLetters = [range(0x30, 0x39), range(0x41, 0x5a), range(0x5f, 0x5f), range(0x61, 0x7a)];
const asciiSpaces = [range(9, 13), range(32, 32)];
/** What `\s` matches in JavaScript. A positive `\s` allows only those of ASCII, a negative one excludes all. */
const spaces = [
  ...asciiSpaces,
  ...[0xa0, 0x1680, 0x202f, 0x205f, 0x3000, 0xfeff].map((code) => range(code, code)),
  range(0x2000, 0x200a),
  range(0x2028, 0x2029),
];
const lineEnds = [range(10, 10), range(13, 13), range(0x2028, 0x2029)];
const controls: Readonly<Record<string, number>> = { n: 10, r: 13, t: 9, f: 12, v: 11, 0: 0 };

/** The code points of `\d`, `\W`, ... */
function escapedClass(letter: string): CodeRange[] | undefined {
  if (letter === 'd') return digits;
  if (letter === 'w') return wordLetters;
  if (letter === 's') return asciiSpaces;
  if (letter === 'D') return complement(digits);
  if (letter === 'W') return complement(wordLetters);
  return letter === 'S' ? complement(spaces) : undefined;
}

class RegexParser {
  readonly #letters: readonly string[];
  #at = 0;
  #depth = 0;

  constructor(pattern: string) {
    this.#letters = [...pattern];
  }

  parse(): RegexBranch[] {
    const branches: RegexBranch[] = [];
    do {
      const isAtStart = this.#take('^');
      const body = this.#sequence();
      const isAtEnd = this.#take('$');
      branches.push({ body, isAtStart, isAtEnd });
    } while (this.#take('|'));
    if (this.#at < this.#letters.length) {
      const found = this.#letters[this.#at]!;
      throw this.#error(
        found === '^' || found === '$' ? `\`${found}\` inside of a pattern` : `an unexpected \`${found}\``,
      );
    }
    return branches;
  }

  #take(letter: string): boolean {
    if (this.#letters[this.#at] !== letter) return false;
    this.#at++;
    return true;
  }

  #error(problem: string): RegexError {
    return new RegexError(`${problem} at position ${this.#at}`);
  }

  #sequence(): Expression {
    const parts: Expression[] = [];
    for (;;) {
      const letter = this.#letters[this.#at];
      if (letter === undefined || letter === '|' || letter === ')' || letter === '$' || letter === '^') break;
      parts.push(this.#quantified(this.#atom(letter)));
    }
    return parts.length === 0 ? empty : sequence(...parts);
  }

  #atom(letter: string): Expression {
    this.#at++;
    if (letter === '(') return this.#group();
    if (letter === '[') return this.#bracket();
    if (letter === '.') return classOf(complement(lineEnds));
    if (letter === '\\') return this.#escape();
    if (letter === '*' || letter === '+' || letter === '?')
      throw this.#error(`\`${letter}\` without anything to repeat`);
    return text(letter);
  }

  #group(): Expression {
    if (++this.#depth > depthMax) throw this.#error(`more than ${depthMax} nested groups`);
    if (this.#take('?')) {
      const kind = this.#letters[this.#at++];
      const isNamed = kind === 'P' || (kind === '<' && !['=', '!'].includes(this.#letters[this.#at] ?? ''));
      if (kind === '=' || kind === '!' || (kind === '<' && !isNamed)) throw this.#error('a lookaround');
      if (isNamed) while (this.#at < this.#letters.length && this.#letters[this.#at++] !== '>');
      else if (kind !== ':') throw this.#error('a flag');
    }
    const options = [this.#sequence()];
    while (this.#take('|')) options.push(this.#sequence());
    const found = this.#letters[this.#at];
    if (found === '^' || found === '$') throw this.#error(`\`${found}\` inside of a group`);
    if (!this.#take(')')) throw this.#error('a group without its end');
    this.#depth--;
    return choice(...options);
  }

  #escape(): Expression {
    const letter = this.#letters[this.#at++];
    if (letter === undefined) throw this.#error('a `\\` at the end');
    const ranges = escapedClass(letter);
    return ranges === undefined ? text(String.fromCodePoint(this.#escapedCode(letter))) : classOf(ranges);
  }

  #escapedCode(letter: string): number {
    const control = controls[letter];
    if (control !== undefined) return control;
    if (letter === 'x') return this.#hexadecimal(2);
    if (letter === 'u') return this.#unicodeEscape();
    if (/[1-9k]/.test(letter)) throw this.#error('a back reference');
    if (letter === 'b' || letter === 'B') throw this.#error(`\`\\${letter}\``);
    if (letter === 'p' || letter === 'P') throw this.#error('a Unicode property');
    if (/[A-Za-z]/.test(letter)) throw this.#error(`an unknown escape \`\\${letter}\``);
    return codeOf(letter);
  }

  #unicodeEscape(): number {
    if (!this.#take('{')) {
      const code = this.#hexadecimal(4);
      if (code < 0xd800 || code > 0xdfff) return code;
      const isPair = code < 0xdc00 && this.#take('\\') && this.#take('u');
      const low = isPair ? this.#hexadecimal(4) : 0;
      if (low < 0xdc00 || low > 0xdfff) throw this.#error('a lone surrogate');
      return ((code - 0xd800) << 10) + (low - 0xdc00) + 0x10000;
    }
    let value = '';
    while (this.#at < this.#letters.length && this.#letters[this.#at] !== '}') value += this.#letters[this.#at++];
    const code = Number.parseInt(value, 16);
    if (
      !this.#take('}') ||
      !/^[0-9a-fA-F]{1,6}$/.test(value) ||
      code > codePointMax ||
      (code >= 0xd800 && code < 0xe000)
    )
      throw this.#error('a wrong `\\u{...}`');
    return code;
  }

  #hexadecimal(length: number): number {
    const value = this.#letters.slice(this.#at, this.#at + length).join('');
    if (value.length !== length || !/^[0-9a-fA-F]+$/.test(value)) throw this.#error('a wrong hexadecimal escape');
    this.#at += length;
    return Number.parseInt(value, 16);
  }

  #bracket(): Expression {
    const isNegative = this.#take('^');
    const ranges: CodeRange[] = [];
    for (;;) {
      const letter = this.#letters[this.#at];
      if (letter === undefined) throw this.#error('a `[` without its `]`');
      if (letter === ']') break;
      this.#at++;
      this.#bracketItem(letter, ranges);
    }
    this.#at++;
    return classOf(isNegative ? complement(ranges) : ranges);
  }

  #bracketItem(letter: string, ranges: CodeRange[]): void {
    const first = letter === '\\' ? this.#bracketEscape() : codeOf(letter);
    if (typeof first !== 'number') {
      ranges.push(...first);
      return;
    }
    const isRange = this.#letters[this.#at] === '-' && ![']', undefined].includes(this.#letters[this.#at + 1]);
    if (!isRange) {
      ranges.push(range(first, first));
      return;
    }
    this.#at++;
    const end = this.#letters[this.#at++]!;
    const last = end === '\\' ? this.#bracketEscape() : codeOf(end);
    if (typeof last !== 'number' || last < first) throw this.#error('a range whose end is before its start');
    ranges.push(range(first, last));
  }

  #bracketEscape(): number | CodeRange[] {
    const letter = this.#letters[this.#at++];
    if (letter === undefined) throw this.#error('a `\\` at the end');
    return escapedClass(letter) ?? (letter === 'b' ? 8 : this.#escapedCode(letter));
  }

  #quantified(part: Expression): Expression {
    const letter = this.#letters[this.#at];
    const counts = letter === '{' ? this.#counts() : undefined;
    let result = part;
    if (letter === '*') result = repeat(part, 0, Infinity);
    else if (letter === '+') result = repeat(part, 1, Infinity);
    else if (letter === '?') result = repeat(part, 0, 1);
    else if (counts !== undefined) result = repeat(part, counts.min, counts.max);
    else return part;
    if (letter !== '{') this.#at++;
    // A lazy quantifier matches the same texts.
    this.#take('?');
    if (['*', '+', '{'].includes(this.#letters[this.#at] ?? '')) throw this.#error('a repeated quantifier');
    return result;
  }

  /** Reads `{2}`, `{2,}`, `{,3}` and `{2,3}`. Another `{` is a character. */
  #counts(): { readonly min: number; readonly max: number } | undefined {
    const rest = this.#letters.slice(this.#at, this.#at + 24).join('');
    const found = /^\{(\d*)(,?)(\d*)\}/.exec(rest);
    if (found === null || (found[1] === '' && found[3] === '')) {
      throw this.#error('a `{` that begins no repetition (write `\\{`)');
    }
    this.#at += found[0].length;
    const min = Number(found[1] || 0);
    const max = found[2] === '' ? min : found[3] === '' ? Infinity : Number(found[3]);
    if (max < min || min > countMax || (max !== Infinity && max > countMax)) {
      throw this.#error(`a repetition of ${min} to ${max} (the limit is ${countMax})`);
    }
    return { min, max };
  }
}
