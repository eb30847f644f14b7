import { byName } from '../base/by-name.ts';
import {
  atEnd,
  atStart,
  type CodeRange,
  choice,
  choiceOf,
  classOf,
  codePointMax,
  complement,
  type Expression,
  empty,
  lookAhead,
  lookAheadNot,
  lookBehind,
  lookBehindNot,
  repeat,
  sequence,
  sequenceOf,
  text,
} from './expression.ts';
import { propertyRanges } from './unicode-property.ts';

/** A pattern that is not supported. The message says what, and where. */
export class RegexError extends Error {}

export const countMax = 1_000_000;
const depthMax = 100;

export interface RegexOptions {
  /** The text must not match, so `\s` has all characters that any reader takes for a space. */
  readonly isNegated?: boolean;
  /** Called once for each `\p{...}`, which takes about 20 ms to read. */
  onProperty?(name: string): void;
}

/**
 * Reads a regular expression: the regular part of the syntax that JavaScript and Python share, and `\p{...}` of JavaScript.
 * @throws RegexError
 */
export const parseRegex = (pattern: string, options: RegexOptions = {}): Expression =>
  new RegexParser(pattern, options).parse();

/** One alternative of a pattern, and whether `^` and `$` bind it to the start and the end of the text. */
export interface RegexBranch {
  readonly body: Expression;
  readonly isAtStart: boolean;
  readonly isAtEnd: boolean;
}

/** The alternatives of a pattern; undefined if it has assertions at other places than their ends. */
export function branchesOf(pattern: Expression): readonly RegexBranch[] | undefined {
  const branches = (pattern.kind === 'choice' ? pattern.options : [pattern]).map(branchOf);
  return branches.some(({ body }) => hasAssertion(body)) ? undefined : branches;
}

function branchOf(option: Expression): RegexBranch {
  const parts = option.kind === 'sequence' ? [...option.parts] : [option];
  const isAtStart = parts[0] === atStart;
  if (isAtStart) parts.shift();
  const isAtEnd = parts[parts.length - 1] === atEnd;
  if (isAtEnd) parts.pop();
  return { body: sequenceOf(parts), isAtStart, isAtEnd };
}

function hasAssertion(expression: Expression): boolean {
  if (expression.kind === 'look') return true;
  if (expression.kind === 'sequence') return expression.parts.some(hasAssertion);
  if (expression.kind === 'choice') return expression.options.some(hasAssertion);
  return expression.kind === 'repeat' && hasAssertion(expression.part);
}

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
const controls: Readonly<Record<string, number>> = byName({ n: 10, r: 13, t: 9, f: 12, v: 11, 0: 0 });

/** The code points of `\d`, `\W`, ... */
function escapedClass(letter: string, isNegated: boolean): CodeRange[] | undefined {
  if (letter === 'd') return digits;
  if (letter === 'w') return wordLetters;
  if (letter === 's') return isNegated ? spaces : asciiSpaces;
  if (letter === 'D') return complement(digits);
  if (letter === 'W') return complement(wordLetters);
  return letter === 'S' ? complement(isNegated ? asciiSpaces : spaces) : undefined;
}

const word = classOf(wordLetters);
const wordEdge = choice(sequence(lookBehind(word), lookAheadNot(word)), sequence(lookBehindNot(word), lookAhead(word)));
const noWordEdge = choice(
  sequence(lookBehind(word), lookAhead(word)),
  sequence(lookBehindNot(word), lookAheadNot(word)),
);
const assertions: Readonly<Record<string, (body: Expression) => Expression>> = {
  '=': lookAhead,
  '!': lookAheadNot,
  '<=': lookBehind,
  '<!': lookBehindNot,
};

class RegexParser {
  readonly #letters: readonly string[];
  readonly #onProperty: (name: string) => void;
  #isNegated: boolean;
  #at = 0;
  #depth = 0;

  constructor(pattern: string, { isNegated = false, onProperty = () => undefined }: RegexOptions) {
    this.#letters = [...pattern];
    this.#isNegated = isNegated;
    this.#onProperty = onProperty;
  }

  parse(): Expression {
    const pattern = this.#alternatives();
    const found = this.#letters[this.#at];
    if (found !== undefined) throw this.#error(`an unexpected \`${found}\``);
    return pattern;
  }

  #alternatives(): Expression {
    const options = [this.#sequence()];
    while (this.#take('|')) options.push(this.#sequence());
    return choiceOf(options);
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
      if (letter === undefined || letter === '|' || letter === ')') break;
      parts.push(this.#quantified(this.#atom(letter)));
    }
    return parts.length === 0 ? empty : sequenceOf(parts);
  }

  #atom(letter: string): Expression {
    this.#at++;
    if (letter === '(') return this.#group();
    if (letter === '[') return this.#bracket();
    if (letter === '.') return classOf(complement(lineEnds));
    if (letter === '\\') return this.#escape();
    if (letter === '^') return atStart;
    if (letter === '$') return atEnd;
    if (letter === '*' || letter === '+' || letter === '?')
      throw this.#error(`\`${letter}\` without anything to repeat`);
    return text(letter);
  }

  #group(): Expression {
    if (++this.#depth > depthMax) throw this.#error(`more than ${depthMax} nested groups`);
    const kind = this.#take('?') ? this.#groupKind() : ':';
    const wasNegated = this.#isNegated;
    if (kind.endsWith('!')) this.#isNegated = !wasNegated;
    const inside = this.#alternatives();
    this.#isNegated = wasNegated;
    if (!this.#take(')')) throw this.#error('a group without its end');
    this.#depth--;
    return assertions[kind]?.(inside) ?? inside;
  }

  /** Behind `(?`: a key of `assertions`, or a colon for other groups. */
  #groupKind(): string {
    const letter = this.#letters[this.#at++] ?? '';
    if (letter === ':' || letter === '=' || letter === '!') return letter;
    const next = this.#letters[this.#at] ?? '';
    if (letter === '<' && (next === '=' || next === '!')) {
      this.#at++;
      return letter + next;
    }
    if (letter !== 'P' && letter !== '<') throw this.#error('a flag');
    while (this.#at < this.#letters.length && this.#letters[this.#at++] !== '>');
    return ':';
  }

  #escape(): Expression {
    const letter = this.#letters[this.#at++];
    if (letter === undefined) throw this.#error('a `\\` at the end');
    if (letter === 'b' || letter === 'B') return letter === 'b' ? wordEdge : noWordEdge;
    const ranges = this.#escapedClass(letter);
    return ranges === undefined ? text(String.fromCodePoint(this.#escapedCode(letter))) : classOf(ranges);
  }

  #escapedClass(letter: string): readonly CodeRange[] | undefined {
    if (letter !== 'p' && letter !== 'P') return escapedClass(letter, this.#isNegated);
    const end = this.#take('{') ? this.#letters.indexOf('}', this.#at) : -1;
    const name = this.#letters.slice(this.#at, Math.max(end, this.#at)).join('');
    this.#onProperty(name);
    const ranges = propertyRanges(name);
    if (ranges === undefined) throw this.#error(`an unknown Unicode property`);
    this.#at = end + 1;
    return letter === 'p' ? ranges : complement(ranges);
  }

  #escapedCode(letter: string): number {
    const control = controls[letter];
    if (control !== undefined) return control;
    if (letter === 'x') return this.#hexadecimal(2);
    if (letter === 'u') return this.#unicodeEscape();
    if (/[1-9k]/.test(letter)) throw this.#error('a back reference');
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
    const wasNegated = this.#isNegated;
    if (isNegative) this.#isNegated = !wasNegated;
    const ranges: CodeRange[] = [];
    for (;;) {
      const letter = this.#letters[this.#at];
      if (letter === undefined) throw this.#error('a `[` without its `]`');
      if (letter === ']') break;
      this.#at++;
      this.#bracketItem(letter, ranges);
    }
    this.#at++;
    this.#isNegated = wasNegated;
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

  #bracketEscape(): number | readonly CodeRange[] {
    const letter = this.#letters[this.#at++];
    if (letter === undefined) throw this.#error('a `\\` at the end');
    return this.#escapedClass(letter) ?? (letter === 'b' ? 8 : this.#escapedCode(letter));
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
