import { TemplateError } from './errors.ts';
import { charge, chargeText } from './meter.ts';

/** White space as Python knows it: without U+FEFF, with the separators U+001C to U+001F. */
export const space = '[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]';
const oneSpace = new RegExp(space);

/** Without the white space, or without these characters, at the start, the end or both. */
export function strip(text: string, characters: string | undefined, where: 'start' | 'end' | 'both'): string {
  if (characters === undefined) return stripWhere(text, (letter) => oneSpace.test(letter), where);
  const set = new Set(characters);
  return stripWhere(text, (letter) => set.has(letter), where);
}

function stripWhere(text: string, isStripped: (letter: string) => boolean, where: 'start' | 'end' | 'both'): string {
  let start = 0;
  let end = text.length;
  if (where !== 'end') {
    while (start < end) {
      const letter = String.fromCodePoint(text.codePointAt(start)!);
      if (!isStripped(letter)) break;
      start += letter.length;
    }
  }
  if (where !== 'start') {
    while (end > start) {
      const letter = lastLetter(text, end);
      if (!isStripped(letter)) break;
      end -= letter.length;
    }
  }
  chargeText(start + text.length - end);
  return text.slice(start, end);
}

function lastLetter(text: string, end: number): string {
  const pair = text.slice(Math.max(0, end - 2), end);
  return /^[\ud800-\udbff][\udc00-\udfff]$/.test(pair) ? pair : text.slice(end - 1, end);
}

/** A count below 0 is no limit. */
export function splitAtSeparator(text: string, separator: string, count: number): string[] {
  const pieces = piecesOf(text, separator);
  if (count < 0 || pieces.length - 1 <= count) return pieces;
  return [...pieces.slice(0, count), pieces.slice(count).join(separator)];
}

export function splitFromEnd(text: string, separator: string, count: number): string[] {
  if (separator === '') throw new TemplateError('empty separator');
  if (count < 0) return piecesOf(text, separator);
  const pieces: string[] = [];
  let rest = text;
  while (pieces.length < count) {
    const at = rest.lastIndexOf(separator);
    if (at < 0) break;
    pieces.push(rest.slice(at + separator.length));
    rest = rest.slice(0, at);
  }
  charge(pieces.length);
  return [...pieces, rest].reverse();
}

function piecesOf(text: string, separator: string): string[] {
  if (separator === '') throw new TemplateError('empty separator');
  // As many pieces as characters.
  charge(text.length / 4);
  const pieces = text.split(separator);
  charge(pieces.length);
  return pieces;
}

const wordPattern = new RegExp(`[^${space.slice(1)}+`, 'g');

export function splitAtSpace(text: string, count: number): string[] {
  chargeText(text.length);
  const words: string[] = [];
  for (const match of text.matchAll(wordPattern)) {
    charge(1);
    if (count >= 0 && words.length === count) {
      words.push(text.slice(match.index));
      break;
    }
    words.push(match[0]);
  }
  return words;
}

export function splitFromEndAtSpace(text: string, count: number): string[] {
  if (count < 0) return splitAtSpace(text, -1);
  chargeText(text.length);
  const words = [...text.matchAll(wordPattern)];
  charge(words.length);
  if (words.length <= count) return words.map(([word]) => word);
  const first = words[words.length - count - 1]!;
  const rest = strip(text.slice(0, first.index + first[0].length), undefined, 'end');
  return [rest, ...words.slice(words.length - count).map(([word]) => word)];
}

const lineEnd = '\\n\\r\\v\\f\\x1c-\\x1e\\x85\\u2028\\u2029';
const linePattern = new RegExp(`([^${lineEnd}]*)(\\r\\n|[${lineEnd}]|$)`, 'y');

/** Python's `splitlines`. */
export function lines(text: string, keepEnds = false): string[] {
  chargeText(text.length);
  const result: string[] = [];
  linePattern.lastIndex = 0;
  while (linePattern.lastIndex < text.length) {
    const [, line = '', end = ''] = linePattern.exec(text)!;
    result.push(keepEnds ? line + end : line);
  }
  charge(result.length);
  return result;
}
