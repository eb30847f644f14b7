import { byName } from '../base/by-name.ts';
import { bind, intOf, parameters } from './bind.ts';
import { TemplateError } from './errors.ts';
import { padded } from './format-number.ts';
import { type FieldReaders, formatText } from './format-text.ts';
import { chargeText, joinTexts } from './meter.ts';
import { print } from './print.ts';
import * as kinds from './text-kinds.ts';
import { lines, splitAtSeparator, splitAtSpace, splitFromEnd, splitFromEndAtSpace, strip } from './text-split.ts';
import {
  type Arguments,
  characterCount,
  Dict,
  isText as hasText,
  isText,
  iterate,
  lettersOf,
  Tuple,
  textOf,
  typeName,
  type Value,
} from './values.ts';

type Method = (text: string, args: Arguments, readers: FieldReaders) => Value;

function method(list: string, run: (text: string, ...args: (Value | undefined)[]) => Value): Method {
  const expected = parameters(list);
  return (text, args) => run(text, ...bind('str', expected, args));
}

const asText = (value: Value | undefined, isOptional = false): string => {
  if (value !== undefined && isText(value)) return textOf(value);
  const given = value === undefined ? 'nothing' : typeName(value);
  throw new TemplateError(`must be str${isOptional ? ' or None' : ''}, not ${given}`);
};
const optionalText = (value: Value | undefined): string | undefined =>
  value === undefined || value === null ? undefined : asText(value, true);
const optionalInt = (value: Value | undefined, fallback: number): number =>
  value === undefined || value === null ? fallback : intOf(value);

/** The part of a text that `find` and others look at, and where it starts. In code points. */
function part(text: string, start: Value | undefined, end: Value | undefined): readonly [text: string, start: number] {
  if (start === undefined && end === undefined) return [text, 0];
  const letters = lettersOf(text);
  const place = (value: number): number => (value < 0 ? Math.max(0, letters.length + value) : value);
  const from = place(optionalInt(start, 0));
  return [letters.slice(from, place(optionalInt(end, letters.length))).join(''), from];
}

const codePointsBefore = (text: string, index: number): number => characterCount(text.slice(0, index));

function findIn(text: string, [sought, start, end]: readonly (Value | undefined)[], isLast: boolean): bigint {
  const [within, from] = part(text, start, end);
  const wanted = asText(sought);
  const found = isLast ? within.lastIndexOf(wanted) : within.indexOf(wanted);
  return BigInt(found < 0 ? -1 : from + codePointsBefore(within, found));
}

function indexIn(text: string, args: readonly (Value | undefined)[], isLast: boolean): bigint {
  const found = findIn(text, args, isLast);
  if (found < 0n) throw new TemplateError('substring not found');
  return found;
}

function affixTest(name: 'startswith' | 'endswith'): Method {
  return method('prefix start? end?', (text, affix, start, end) => {
    const [within] = part(text, start, end);
    const affixes = affix instanceof Tuple ? affix.items : [affix!];
    return affixes.some((one) => {
      if (!hasText(one))
        throw new TemplateError(`${name} first arg must be str or a tuple of str, not ${typeName(one)}`);
      return name === 'startswith' ? within.startsWith(textOf(one)) : within.endsWith(textOf(one));
    });
  });
}

function padding(align: '<' | '>' | '^'): Method {
  return method('width fill?', (text, width, fill) => {
    const filler = fill === undefined ? ' ' : asText(fill);
    if (characterCount(filler) !== 1) throw new TemplateError('The fill character must be exactly one character long');
    const columns = intOf(width!);
    // Python puts the odd character on the left if the width is odd.
    const missing = columns - characterCount(text);
    const isLeftHeavy = align === '^' && missing > 0 && missing % 2 === 1 && columns % 2 === 1;
    return isLeftHeavy
      ? filler + padded(text, { width: columns - 1, fill: filler, align })
      : padded(text, { width: columns, fill: filler, align });
  });
}

/** @throws TemplateError before a result would be too long. */
export function replaceText(text: string, old: string, replacement: string, count = Number.POSITIVE_INFINITY): string {
  const pieces = old === '' ? ['', ...lettersOf(text), ''] : splitAtSeparator(text, old, -1);
  const times = Math.min(pieces.length - 1, count < 0 ? Number.POSITIVE_INFINITY : count);
  chargeText(text.length + times * replacement.length);
  const rest = pieces.slice(times);
  return [...pieces.slice(0, times), rest.join(old)].join(replacement);
}

function join(separator: string, items: Value): string {
  const texts: string[] = [];
  for (const item of iterate(items)) {
    if (!isText(item)) {
      throw new TemplateError(`sequence item ${texts.length}: expected str instance, ${typeName(item)} found`);
    }
    texts.push(textOf(item));
  }
  return joinTexts(separator, texts);
}

function partition(text: string, separator: string, isLast: boolean): Tuple {
  if (separator === '') throw new TemplateError('empty separator');
  const at = isLast ? text.lastIndexOf(separator) : text.indexOf(separator);
  if (at < 0) return new Tuple(isLast ? ['', '', text] : [text, '', '']);
  return new Tuple([text.slice(0, at), separator, text.slice(at + separator.length)]);
}

function zeroFill(text: string, width: number): string {
  const sign = /^[-+]/.exec(text)?.[0] ?? '';
  return padded(text.slice(sign.length), { sign, width, fill: '0', align: '=' });
}

function expandTabs(text: string, size: number): string {
  let column = 0;
  let result = '';
  for (const letter of text) {
    if (letter !== '\t') {
      result += letter;
      column = letter === '\n' || letter === '\r' ? 0 : column + 1;
      continue;
    }
    const spaces = size <= 0 ? 0 : size - (column % size);
    chargeText(spaces);
    result += ' '.repeat(spaces);
    column += spaces;
  }
  return result;
}

function translate(text: string, table: Value): string {
  if (!(table instanceof Dict)) throw new TemplateError(`'${typeName(table)}' object is not subscriptable`);
  return Array.from(text, (letter) => {
    const found = table.get(BigInt(letter.codePointAt(0)!));
    if (found === undefined) return letter;
    if (found === null) return '';
    const text = typeof found === 'bigint' ? String.fromCodePoint(Number(found)) : print(found);
    chargeText(text.length);
    return text;
  }).join('');
}

const plain = (run: (text: string) => Value): Method => method('', run);

/** Python's methods of texts. */
const methods: Readonly<Record<string, Method>> = byName({
  capitalize: plain(kinds.capitalize),
  casefold: plain((text) => text.toUpperCase().toLowerCase()),
  center: padding('^'),
  count: method('sub start? end?', (text, sought, start, end) => {
    const [within] = part(text, start, end);
    const wanted = asText(sought);
    return BigInt(wanted === '' ? characterCount(within) + 1 : splitAtSeparator(within, wanted, -1).length - 1);
  }),
  endswith: affixTest('endswith'),
  expandtabs: method('tabsize?', (text, size) => expandTabs(text, optionalInt(size, 8))),
  find: method('sub start? end?', (text, ...args) => findIn(text, args, false)),
  format: formatText,
  format_map: (text, args, readers) => {
    const [map] = bind('format_map', parameters('mapping'), args);
    const named =
      map instanceof Dict ? new Map([...map.entries()].map(([key, value]) => [print(key), value])) : new Map();
    return formatText(text, { positional: [], named }, readers);
  },
  index: method('sub start? end?', (text, ...args) => indexIn(text, args, false)),
  isalnum: plain(kinds.isAlphanumeric),
  isalpha: plain(kinds.isAlphabetic),
  isascii: plain((text) => !/[^\0-\x7f]/.test(text)),
  isdecimal: plain(kinds.isDecimal),
  isdigit: plain(kinds.isDigit),
  isidentifier: plain((text) => /^[\p{XID_Start}_]\p{XID_Continue}*$/u.test(text)),
  islower: plain(kinds.isLower),
  isnumeric: plain(kinds.isNumber),
  isprintable: plain((text) => !/[^ \P{Z}]|\p{C}/u.test(text)),
  isspace: plain(kinds.isSpace),
  istitle: plain(kinds.isTitle),
  isupper: plain(kinds.isUpper),
  join: method('items', (text, items) => join(text, items!)),
  ljust: padding('<'),
  lower: plain((text) => text.toLowerCase()),
  lstrip: method('chars?', (text, chars) => strip(text, optionalText(chars), 'start')),
  partition: method('sep', (text, separator) => partition(text, asText(separator), false)),
  removeprefix: method('prefix', (text, prefix) => {
    const wanted = asText(prefix);
    return text.startsWith(wanted) ? text.slice(wanted.length) : text;
  }),
  removesuffix: method('suffix', (text, suffix) => {
    const wanted = asText(suffix);
    return text.endsWith(wanted) ? text.slice(0, text.length - wanted.length) : text;
  }),
  replace: method('old new count?', (text, old, replacement, count) =>
    replaceText(text, asText(old), asText(replacement), optionalInt(count, -1)),
  ),
  rfind: method('sub start? end?', (text, ...args) => findIn(text, args, true)),
  rindex: method('sub start? end?', (text, ...args) => indexIn(text, args, true)),
  rjust: padding('>'),
  rpartition: method('sep', (text, separator) => partition(text, asText(separator), true)),
  rsplit: method('sep? maxsplit?', (text, separator, count) => {
    const wanted = optionalText(separator);
    const times = optionalInt(count, -1);
    return wanted === undefined ? splitFromEndAtSpace(text, times) : splitFromEnd(text, wanted, times);
  }),
  rstrip: method('chars?', (text, chars) => strip(text, optionalText(chars), 'end')),
  split: method('sep? maxsplit?', (text, separator, count) => {
    const wanted = optionalText(separator);
    const times = optionalInt(count, -1);
    return wanted === undefined ? splitAtSpace(text, times) : splitAtSeparator(text, wanted, times);
  }),
  splitlines: method('keepends?', (text, keep) => lines(text, optionalInt(keep, 0) !== 0)),
  startswith: affixTest('startswith'),
  strip: method('chars?', (text, chars) => strip(text, optionalText(chars), 'both')),
  swapcase: plain(kinds.swapCase),
  title: plain(kinds.titleCase),
  translate: method('table', (text, table) => translate(text, table!)),
  upper: plain((text) => text.toUpperCase()),
  zfill: method('width', (text, width) => zeroFill(text, intOf(width!))),
});

export const textMethod = (name: string): Method | undefined =>
  Object.hasOwn(methods, name) ? methods[name] : undefined;
