/**
 * Grammars as data. Every way to describe an output (JSON schema, regular expression, GBNF, calls of tools) becomes a
 * `Grammar`, and `network.ts` compiles it.
 */
export interface Grammar {
  readonly root: Expression;
  readonly rules: ReadonlyMap<string, Expression>;
  /** What its source says and the grammar does not keep, in sentences. */
  readonly notes?: readonly string[];
}

/** Code points from `first` to `last`, both included. */
export interface CodeRange {
  readonly first: number;
  readonly last: number;
}

export type Expression =
  | { readonly kind: 'text'; readonly text: string }
  /** One character. Ranges are ascending and disjoint, and have no surrogates. */
  | { readonly kind: 'class'; readonly ranges: readonly CodeRange[] }
  | { readonly kind: 'sequence'; readonly parts: readonly Expression[] }
  | { readonly kind: 'choice'; readonly options: readonly Expression[] }
  | { readonly kind: 'repeat'; readonly part: Expression; readonly min: number; readonly max: number }
  | { readonly kind: 'rule'; readonly name: string }
  /** Any text up to and including the first `end`. */
  | { readonly kind: 'until'; readonly end: string }
  /** A control token by its name; the name as text if the vocabulary has no such control token. */
  | { readonly kind: 'token'; readonly name: string }
  /** A text that leads from the first state to one that accepts. No two edges of a state read the same character. */
  | { readonly kind: 'automaton'; readonly states: readonly AutomatonState[] }
  /** An assertion about the text before or after this place. Only in patterns: `determinize` resolves it. */
  | { readonly kind: 'look'; readonly body: Expression; readonly isBehind: boolean; readonly isNegative: boolean };

export interface AutomatonState {
  readonly accepts: boolean;
  readonly edges: readonly { readonly part: Expression; readonly target: number }[];
}

export const text = (value: string): Expression => ({ kind: 'text', text: value });
export const sequence = (...parts: readonly Expression[]): Expression => sequenceOf(parts);
export const choice = (...options: readonly Expression[]): Expression => choiceOf(options);
/** For lists of any length, which arguments cannot have. */
export const sequenceOf = (parts: readonly Expression[]): Expression =>
  parts.length === 1 ? parts[0]! : { kind: 'sequence', parts };
export const choiceOf = (options: readonly Expression[]): Expression =>
  options.length === 1 ? options[0]! : { kind: 'choice', options };
export const repeat = (part: Expression, min: number, max: number): Expression => ({ kind: 'repeat', part, min, max });
export const optional = (part: Expression): Expression => repeat(part, 0, 1);
export const rule = (name: string): Expression => ({ kind: 'rule', name });
export const until = (end: string): Expression => ({ kind: 'until', end });
export const token = (name: string): Expression => ({ kind: 'token', name });
export const empty: Expression = { kind: 'sequence', parts: [] };
/** Matches nothing, not even the empty text. */
export const nothing: Expression = { kind: 'choice', options: [] };

export const codePointMax = 0x10ffff;
const surrogates: CodeRange = { first: 0xd800, last: 0xdfff };

/** Sorts and joins ranges, and removes surrogates, which UTF-8 does not have. */
export function classOf(ranges: readonly CodeRange[]): Expression {
  return { kind: 'class', ranges: without(joined(ranges), [surrogates]) };
}

/** `class('az', '09', '_')`: each string is a character or the two ends of a range. */
export function characters(...ends: readonly string[]): Expression {
  return classOf(
    ends.map((pair) => {
      const points = [...pair].map((letter) => letter.codePointAt(0)!);
      return { first: points[0]!, last: points[points.length - 1]! };
    }),
  );
}

export const complement = (ranges: readonly CodeRange[]): CodeRange[] =>
  without([{ first: 0, last: codePointMax }], joined(ranges));

export const anyCharacter = classOf([{ first: 0, last: codePointMax }]);

const look =
  (isBehind: boolean, isNegative: boolean) =>
  (body: Expression): Expression => ({ kind: 'look', body, isBehind, isNegative });
export const lookAhead = look(false, false);
export const lookAheadNot = look(false, true);
export const lookBehind = look(true, false);
export const lookBehindNot = look(true, true);
/** `^` and `$`. */
export const atStart = lookBehindNot(anyCharacter);
export const atEnd = lookAheadNot(anyCharacter);

function joined(ranges: readonly CodeRange[]): CodeRange[] {
  const result: CodeRange[] = [];
  for (const range of [...ranges].sort((a, b) => a.first - b.first)) {
    const last = result[result.length - 1];
    if (last !== undefined && range.first <= last.last + 1) {
      result[result.length - 1] = { first: last.first, last: Math.max(last.last, range.last) };
    } else result.push(range);
  }
  return result;
}

/** The code points of `ranges` that are not in `removed`. Both are ascending and disjoint. */
export function without(ranges: readonly CodeRange[], removed: readonly CodeRange[]): CodeRange[] {
  const result: CodeRange[] = [];
  for (const range of ranges) {
    let { first } = range;
    for (const gap of removed) {
      if (gap.last < first || gap.first > range.last) continue;
      if (gap.first > first) result.push({ first, last: gap.first - 1 });
      first = gap.last + 1;
    }
    if (first <= range.last) result.push({ first, last: range.last });
  }
  return result;
}
