import { byName } from '../base/by-name.ts';
import {
  anyCharacter,
  type CodeRange,
  choiceOf,
  classOf,
  complement,
  type Expression,
  empty,
  type Grammar,
  repeat,
  rule,
  sequenceOf,
  text,
  token,
} from './expression.ts';
import { countMax } from './regex.ts';

/** A grammar that cannot be read. The message says what, and in which line. */
export class GbnfError extends Error {}

interface Word {
  readonly kind: 'name' | 'define' | 'text' | 'class' | 'token' | 'sign' | 'count';
  readonly value: string;
  readonly line: number;
}

const depthMax = 100;
const pattern =
  /\s+|#[^\n]*|(?<define>::=)|(?<name>[A-Za-z_][\w-]*)|(?<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?<class>\[(?:[^\]\\\n]|\\.)*\])|(?<token><[^<>\s]+>)|(?<count>\{\s*\d*\s*,?\s*\d*\s*\})|(?<sign>[|()*+?.])/uy;

/**
 * Reads GBNF, the grammars of llama.cpp, which XGrammar's EBNF looks like too:
 *
 *   root ::= "yes" | "no" reason{0,3}   # comment
 *   reason ::= [^\n]+ <end_of_turn>
 *
 * A rule ends where the next one begins. `<name>` is a control token.
 */
export function parseGbnf(source: string): Grammar {
  return new GbnfParser(words(source)).parse();
}

function words(source: string): Word[] {
  const found: Word[] = [];
  let line = 1;
  pattern.lastIndex = 0;
  while (pattern.lastIndex < source.length) {
    const start = pattern.lastIndex;
    const match = pattern.exec(source);
    if (match === null)
      throw new GbnfError(`line ${line}: unexpected ${JSON.stringify(source.slice(start, start + 10))}`);
    for (const [kind, value] of Object.entries(match.groups ?? {})) {
      if (value !== undefined) found.push({ kind: kind as Word['kind'], value, line });
    }
    line += match[0].split('\n').length - 1;
  }
  return found;
}

class GbnfParser {
  readonly #words: readonly Word[];
  #at = 0;
  #depth = 0;

  constructor(list: readonly Word[]) {
    this.#words = list;
  }

  parse(): Grammar {
    const rules = new Map<string, Expression>();
    while (this.#at < this.#words.length) {
      const name = this.#words[this.#at++]!;
      if (name.kind !== 'name' || this.#words[this.#at]?.kind !== 'define')
        throw this.#error(name, 'expected `name ::=`');
      this.#at++;
      if (rules.has(name.value)) throw this.#error(name, `the rule ${name.value} is defined twice`);
      rules.set(name.value, this.#alternatives());
    }
    if (!rules.has('root')) throw new GbnfError('there is no rule `root`');
    return { root: rule('root'), rules };
  }

  #error(word: Word | undefined, problem: string): GbnfError {
    const line = (word ?? this.#words[this.#words.length - 1])?.line ?? 1;
    return new GbnfError(
      `line ${line}: ${problem}${word === undefined ? '' : `, found \`${word.value.slice(0, 20)}\``}`,
    );
  }

  #isSign(value: string): boolean {
    const word = this.#words[this.#at];
    return word?.kind === 'sign' && word.value === value;
  }

  #alternatives(): Expression {
    if (++this.#depth > depthMax) throw this.#error(this.#words[this.#at], `more than ${depthMax} nested groups`);
    const options: Expression[] = [];
    if (this.#isSign('|')) this.#at++;
    do options.push(this.#sequence());
    while (this.#isSign('|') && this.#at++ >= 0);
    this.#depth--;
    return choiceOf(options);
  }

  #sequence(): Expression {
    const parts: Expression[] = [];
    for (;;) {
      const word = this.#words[this.#at];
      const isNextRule = word?.kind === 'name' && this.#words[this.#at + 1]?.kind === 'define';
      if (word === undefined || isNextRule || this.#isSign('|') || this.#isSign(')')) break;
      parts.push(this.#repeated(this.#element(word)));
    }
    return parts.length === 0 ? empty : sequenceOf(parts);
  }

  #element(word: Word): Expression {
    this.#at++;
    if (word.kind === 'name') return rule(word.value);
    if (word.kind === 'text') return text(unescaped(word.value.slice(1, -1)).join(''));
    if (word.kind === 'class') return characterClass(word.value.slice(1, -1), (problem) => this.#error(word, problem));
    if (word.kind === 'token') return token(word.value);
    if (word.value === '.') return anyCharacter;
    if (word.value !== '(') throw this.#error(word, 'expected a text, a class, a rule or a group');
    const inside = this.#alternatives();
    if (!this.#isSign(')')) throw this.#error(word, 'a group without its end');
    this.#at++;
    return inside;
  }

  #repeated(part: Expression): Expression {
    let result = part;
    for (;;) {
      const word = this.#words[this.#at];
      if (this.#isSign('*')) result = repeat(result, 0, Infinity);
      else if (this.#isSign('+')) result = repeat(result, 1, Infinity);
      else if (this.#isSign('?')) result = repeat(result, 0, 1);
      else if (word?.kind === 'count') result = this.#counted(result, word);
      else return result;
      this.#at++;
    }
  }

  #counted(part: Expression, word: Word): Expression {
    const [least = '', most] = word.value.slice(1, -1).split(',');
    const min = Number(least);
    const max = most === undefined ? min : most.trim() === '' ? Infinity : Number(most);
    if (max < min || min > countMax || (max !== Infinity && max > countMax)) {
      throw this.#error(word, `a repetition has at most ${countMax} times, and its maximum is not below its minimum`);
    }
    return repeat(part, min, max);
  }
}

const letters: Readonly<Record<string, string>> = byName({ n: '\n', r: '\r', t: '\t' });

/** The characters of a text or class. */
function unescaped(source: string): string[] {
  const found: string[] = [];
  const part = /\\x([0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})|\\(.)|(.)/gsu;
  for (const [, byte, short, long, control, plain] of source.matchAll(part)) {
    const code = byte ?? short ?? long;
    if (code !== undefined) found.push(String.fromCodePoint(Math.min(Number.parseInt(code, 16), 0x10ffff)));
    else if (control === undefined) found.push(plain!);
    // An escaped `-` in a class does not make a range.
    else found.push(letters[control] ?? control);
  }
  return found;
}

function characterClass(source: string, error: (problem: string) => GbnfError): Expression {
  const isNegative = source.startsWith('^');
  const body = isNegative ? source.slice(1) : source;
  const escapedDash = '\uE000';
  const items = unescaped(body.replaceAll('\\-', escapedDash));
  const codeOf = (item: string): number => (item === escapedDash ? 0x2d : item.codePointAt(0)!);
  const ranges: CodeRange[] = [];
  for (let i = 0; i < items.length; i++) {
    const first = codeOf(items[i]!);
    const isRange = items[i + 1] === '-' && i + 2 < items.length;
    const last = isRange ? codeOf(items[i + 2]!) : first;
    if (last < first) throw error('a range whose end is before its start');
    ranges.push({ first, last });
    if (isRange) i += 2;
  }
  return classOf(isNegative ? complement(ranges) : ranges);
}
