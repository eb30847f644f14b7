import { byName } from '../base/by-name.ts';
import { bind, chargeReading, intOf, parameters } from './bind.ts';
import { sorted } from './compare.ts';
import type { Filter } from './compile-expression.ts';
import { TemplateError } from './errors.ts';
import { escapeHtml, escapeText } from './escape.ts';
import { fixed } from './format-number.ts';
import { formatPercent } from './format-percent.ts';
import { chargeText, joinTexts } from './meter.ts';
import { floatOf } from './numbers-of-text.ts';
import { operate } from './operators.ts';
import { print, represent } from './print.ts';
import { replaceText, textMethod } from './text-methods.ts';
import { lines, splitAtSpace } from './text-split.ts';
import {
  type Arguments,
  characterCount,
  Dict,
  isList,
  isText,
  isTrue,
  iterable,
  lengthOf,
  lettersOf,
  listOf,
  Markup,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from './values.ts';
import { wrapLine } from './wrap-text.ts';
import { writeJson } from './write-json.ts';

/** A filter with these parameters after the value (`bind.ts`). */
export function filter(list: string, run: (value: Value, ...args: (Value | undefined)[]) => Value): Filter {
  const expected = parameters(list);
  return (value, args) => {
    chargeReading(value);
    return run(value, ...bind('filter', expected, args));
  };
}

/** Text or markup of any value. */
const asText = (value: Value): string | Markup => (value instanceof Markup ? value : print(value));

/** A method of texts, for any value. */
function methodOf(value: Value, name: string, positional: readonly Value[]): Value {
  const text = asText(value);
  chargeText(textOf(text).length / 4);
  const result = textMethod(name)!(textOf(text), { positional, named: new Map() }, noReaders);
  return text instanceof Markup && typeof result === 'string' ? new Markup(result) : result;
}

const noReaders = { attribute: () => null, item: () => null };
const likeMethod = (name: string): Filter => filter('', (value) => methodOf(value, name, []));

const isGiven = (value: Value | undefined): value is Value => value !== undefined;

function replace(value: Value, old: Value, replacement: Value, count: Value | undefined): Value {
  const times = count === undefined || count === null ? -1 : intOf(count);
  return replaceText(print(value), print(old), print(replacement), times);
}

function indent(value: Value, width: Value | undefined, first: Value | undefined, blank: Value | undefined): Value {
  // The newline at the end is lost again, and makes an empty text one line.
  const text = print(operate('+', value, '\n'));
  const indentation = isGiven(width) ? (isText(width) ? textOf(width) : ' '.repeat(checkedWidth(width))) : '    ';
  const all = lines(text);
  chargeText(text.length + all.length * indentation.length);
  const indentsBlank = isGiven(blank) && isTrue(blank);
  const rest = all.map((line, i) => (i > 0 && (line !== '' || indentsBlank) ? indentation + line : line));
  const result = (isGiven(first) && isTrue(first) ? indentation : '') + rest.join('\n');
  return value instanceof Markup ? new Markup(result) : result;
}

function checkedWidth(width: Value): number {
  const columns = Math.max(0, intOf(width));
  chargeText(columns);
  return columns;
}

const wordStart = /[^-\s({[<]+/g;

/** Words begin after white space, `-` and opening brackets. */
const title = (text: string): string =>
  text.replace(wordStart, (word) => {
    const [first = ''] = word;
    return first.toUpperCase() + word.slice(first.length).toLowerCase();
  });

function truncate(value: Value, [length, killWords, end, leeway]: readonly (Value | undefined)[]): Value {
  const size = isGiven(length) ? intOf(length) : 255;
  const ending = isGiven(end) ? print(end) : '...';
  const slack = isGiven(leeway) && leeway !== null ? intOf(leeway) : 5;
  const kept = size - characterCount(ending);
  if (kept < 0) throw new TemplateError(`expected length >= ${characterCount(ending)}, got ${size}`);
  if (lengthOf(value) <= size + slack) return value;
  if (!isText(value)) throw new TemplateError(`'${typeName(value)}' object has no attribute 'rsplit'`);
  const cut = lettersOf(textOf(value)).slice(0, kept).join('');
  if (isGiven(killWords) && isTrue(killWords)) return cut + ending;
  const lastSpace = cut.lastIndexOf(' ');
  return (lastSpace < 0 ? cut : cut.slice(0, lastSpace)) + ending;
}

function wordWrap(value: Value, [width, breakLong, wrapWith, breakHyphens]: readonly (Value | undefined)[]): Value {
  const style = {
    width: isGiven(width) ? intOf(width) : 79,
    breaksLongWords: !isGiven(breakLong) || isTrue(breakLong),
    breaksAtHyphens: !isGiven(breakHyphens) || isTrue(breakHyphens),
  };
  const separator = isGiven(wrapWith) && wrapWith !== null ? print(wrapWith) : '\n';
  const wrapped = lines(print(value)).map((line) => wrapLine(line, style).join(separator));
  return joinTexts(separator, wrapped);
}

function format(value: Value, { positional, named }: Arguments): Value {
  if (positional.length > 0 && named.size > 0) {
    throw new TemplateError("can't handle positional and keyword arguments at the same time");
  }
  return formatPercent(print(value), named.size > 0 ? new Dict(named) : new Tuple(positional));
}

function stripTags(value: Value): Value {
  const text = withoutTags(withoutTags(print(value), '<!--', '-->'), '<', '>');
  return splitAtSpace(text, -1)
    .join(' ')
    .replace(/&(lt|gt|amp|#34|quot|#39);/g, (all, name: string) => entities[name] ?? all);
}

function withoutTags(text: string, open: string, close: string): string {
  chargeText(text.length);
  let rest = '';
  for (let at = 0; ; ) {
    const start = text.indexOf(open, at);
    const end = start < 0 ? -1 : text.indexOf(close, start);
    if (end < 0) return rest + text.slice(at);
    rest += text.slice(at, start);
    at = end + close.length;
  }
}

const entities: Readonly<Record<string, string>> = byName({
  lt: '<',
  gt: '>',
  amp: '&',
  '#34': '"',
  quot: '"',
  '#39': "'",
});

function quoteUrl(value: Value, isQuery: boolean): string {
  const text = print(value);
  chargeText(text.length);
  const quoted = encodeURIComponent(text).replace(
    /[!'()*]/g,
    (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return isQuery ? quoted.replaceAll('%20', '+') : quoted.replaceAll('%2F', '/');
}

function urlEncode(value: Value): Value {
  if (isText(value) || !(value instanceof Dict || isList(value) || value instanceof Tuple))
    return quoteUrl(value, false);
  const pairs = value instanceof Dict ? [...value.entries()] : listOf(value).map((pair) => listOf(pair));
  return pairs.map(([name, item]) => `${quoteUrl(name!, true)}=${quoteUrl(item!, true)}`).join('&');
}

function xmlAttributes(value: Value, hasSpace: Value | undefined): Value {
  if (!(value instanceof Dict)) throw new TemplateError('xmlattr needs a mapping');
  const items: string[] = [];
  for (const [name, item] of value.entries()) {
    if (item === null || item instanceof Undefined) continue;
    if (/[ \t\n\r\f\v/>=]/.test(print(name)))
      throw new TemplateError(`Invalid character in attribute name: ${represent(name)}`);
    items.push(`${escapeHtml(name).text}="${escapeHtml(item).text}"`);
  }
  const text = items.join(' ');
  return text !== '' && (hasSpace === undefined || isTrue(hasSpace)) ? ` ${text}` : text;
}

function fileSize(value: Value, binary: Value | undefined): Value {
  const bytes = floatOf(value);
  const [base, suffix] = isGiven(binary) && isTrue(binary) ? [1024, 'iB'] : [1000, 'B'];
  if (bytes === 1) return '1 Byte';
  if (bytes < base) return `${Math.trunc(bytes)} Bytes`;
  const letters = suffix === 'B' ? 'kMGTPEZY' : 'KMGTPEZY';
  const place = Math.min(Math.floor(Math.log(bytes) / Math.log(base)), letters.length);
  const power =
    bytes >= base ** (place + 1) && place < letters.length ? place + 1 : bytes < base ** place ? place - 1 : place;
  return `${fixed(bytes / base ** power, 1)} ${letters[power - 1]}${suffix}`;
}

/** Dicts are shown with sorted keys. */
function pretty(value: Value): Value {
  if (value instanceof Dict) {
    const keys = [...value.keys()];
    return new Dict(sorted(keys, (key) => print(key), false).map((key) => [key, pretty(value.get(key)!)]));
  }
  if (isList(value)) return value.map(pretty);
  return value;
}

function toJson(value: Value, [ensureAscii, indentation, separators, sortKeys]: readonly (Value | undefined)[]): Value {
  const indent =
    !isGiven(indentation) || indentation === null
      ? undefined
      : isText(indentation)
        ? textOf(indentation)
        : ' '.repeat(checkedWidth(indentation));
  const given = isGiven(separators) && separators !== null ? [...iterable(separators)].map(print) : undefined;
  const [itemSeparator = ', ', keySeparator = ': '] = given ?? [indent === undefined ? ', ' : ','];
  return writeJson(value, {
    ensureAscii: isGiven(ensureAscii) && isTrue(ensureAscii),
    indent,
    itemSeparator,
    keySeparator,
    sortKeys: isGiven(sortKeys) && isTrue(sortKeys),
  });
}

const words = /[\p{L}\p{N}\p{M}_]+/gu;

export const textFilters: Readonly<Record<string, Filter>> = byName({
  capitalize: likeMethod('capitalize'),
  center: filter('width?', (value, width) => methodOf(value, 'center', [width ?? 80n])),
  e: filter('', escapeHtml),
  escape: filter('', escapeHtml),
  filesizeformat: filter('binary?', fileSize),
  forceescape: filter('', (value) => escapeText(print(value))),
  format,
  indent: filter('width? first? blank?', indent),
  lower: likeMethod('lower'),
  pprint: filter('', (value) => represent(pretty(value))),
  replace: filter('old new count?', (value, old, replacement, count) => replace(value, old!, replacement!, count)),
  safe: filter('', (value) => new Markup(print(value))),
  string: filter('', asText),
  striptags: filter('', stripTags),
  title: filter('', (value) => title(print(value))),
  tojson: filter('ensure_ascii? indent? separators? sort_keys?', (value, ...args) => toJson(value, args)),
  trim: filter('chars?', (value, chars) => methodOf(value, 'strip', isGiven(chars) ? [chars] : [])),
  truncate: filter('length? killwords? end? leeway?', (value, ...args) => truncate(value, args)),
  upper: likeMethod('upper'),
  urlencode: filter('', urlEncode),
  wordcount: filter('', (value) => BigInt(print(value).match(words)?.length ?? 0)),
  wordwrap: filter('width? break_long_words? wrapstring? break_on_hyphens?', (value, ...args) => wordWrap(value, args)),
  xmlattr: filter('autospace?', xmlAttributes),
});
