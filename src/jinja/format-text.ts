import { isNumeric, numberOf } from './compare.ts';
import { TemplateError } from './errors.ts';
import { formatNumber, padded } from './format-number.ts';
import { charge, chargeText, checkLength } from './meter.ts';
import { print, printFloat, represent } from './print.ts';
import { type Arguments, isText, lettersOf, typeName, type Value } from './values.ts';

/** Reads fields and attributes of a value: `{0.name[key]}`. */
export interface FieldReaders {
  attribute(value: Value, name: string): Value;
  item(value: Value, key: Value): Value;
}

/** Python's `str.format`. */
export function formatText(format: string, args: Arguments, readers: FieldReaders): string {
  chargeText(format.length);
  let automatic = 0;
  const argument = (name: string): Value => {
    const [first = ''] = /^[^.[]*/.exec(name) ?? [];
    const value = /^\d*$/.test(first)
      ? args.positional[first === '' ? automatic++ : Number(first)]
      : args.named.get(first);
    if (value === undefined) throw new TemplateError(`no argument '${first}' for the format string`);
    return readPath(value, name.slice(first.length), readers);
  };
  return expand(format, argument, 2);
}

function readPath(start: Value, path: string, readers: FieldReaders): Value {
  let value = start;
  for (const [, name, key] of path.matchAll(/\.([^.[]+)|\[([^\]]+)\]/g)) {
    if (name !== undefined) value = readers.attribute(value, name);
    else if (key !== undefined) value = readers.item(value, /^\d+$/.test(key) ? BigInt(key) : key);
  }
  return value;
}

/** `levels`: a format may have fields in its specification, which have no further ones. */
function expand(format: string, argument: (name: string) => Value, levels: number): string {
  if (levels < 0) throw new TemplateError('Max string recursion exceeded');
  let text = '';
  let at = 0;
  for (let start = nextBrace(format, at); start >= 0; start = nextBrace(format, at)) {
    charge(1);
    text += format.slice(at, start);
    if (format[start + 1] === format[start]) {
      text += format[start];
      at = start + 2;
      continue;
    }
    if (format[start] === '}') throw new TemplateError("Single '}' encountered in format string");
    const end = fieldEnd(format, start);
    text += field(format.slice(start + 1, end), argument, levels);
    checkLength(text.length);
    at = end + 1;
  }
  return text + format.slice(at);
}

const brace = /[{}]/g;

function nextBrace(format: string, at: number): number {
  brace.lastIndex = at;
  return brace.exec(format)?.index ?? -1;
}

function fieldEnd(format: string, start: number): number {
  let depth = 0;
  for (let at = start; at < format.length; at++) {
    if (format[at] === '{') depth++;
    if (format[at] === '}' && --depth === 0) return at;
  }
  throw new TemplateError("expected '}' before end of string");
}

/** `name!conversion:specification`. Brackets in the name may contain any character. */
function field(source: string, argument: (name: string) => Value, levels: number): string {
  let end = 0;
  for (let isInBrackets = false; end < source.length; end++) {
    const letter = source[end]!;
    if (letter === '[') isInBrackets = true;
    else if (letter === ']') isInBrackets = false;
    else if (!isInBrackets && (letter === '!' || letter === ':')) break;
  }
  const value = argument(source.slice(0, end));
  const conversion = source[end] === '!' ? source[end + 1] : undefined;
  const rest = source.slice(conversion === undefined ? end : end + 2);
  if (conversion !== undefined && !'rsa'.includes(conversion))
    throw new TemplateError(`Unknown conversion specifier ${conversion}`);
  if (rest !== '' && rest[0] !== ':') throw new TemplateError("expected ':' after conversion specifier");
  const converted = conversion === undefined ? value : conversion === 's' ? print(value) : represent(value);
  return formatValue(converted, expand(rest.slice(1), argument, levels - 1));
}

const specificationPattern = /^(?:(.)?([<>=^]))?([-+ ])?(#)?(0)?(\d+)?([,_])?(?:\.(\d+))?([a-zA-Z%])?$/su;

/** Python's `format(value, specification)`. */
function formatValue(value: Value, specification: string): string {
  if (specification === '') return print(value);
  const match = specificationPattern.exec(specification);
  if (match === null) throw new TemplateError(`Invalid format specifier '${specification}'`);
  const [, fill, align, sign, alternate, zero, width = '0', separator, precision, type] = match;
  const filler = fill ?? (zero === undefined ? ' ' : '0');
  const layout = { fill: filler, width: Number(width) };
  if (!isNumeric(value) || (typeof value === 'boolean' && type === undefined)) {
    const isPlain = isText(value) || typeof value === 'boolean';
    if (!isPlain) throw new TemplateError(`unsupported format string passed to ${typeName(value)}.__format__`);
    if (type !== undefined && type !== 's') throw unknownCode(type, value);
    const text = print(value);
    const cut = precision === undefined ? text : lettersOf(text).slice(0, Number(precision)).join('');
    return padded(cut, { ...layout, align: (align as '<' | undefined) ?? '<' });
  }
  const isFloat = typeof value === 'number';
  if (type !== undefined && !(isFloat ? 'eEfFgGn%' : 'dboxXceEfFgGn%').includes(type)) throw unknownCode(type, value);
  const [shownSign, digits] = number(numberOf(value), type, {
    precision: precision === undefined ? undefined : Number(precision),
    sign: sign === '-' ? '' : sign,
    isAlternate: alternate !== undefined,
    separator,
  });
  const place = (align as '<' | undefined) ?? (zero === undefined ? '>' : '=');
  return padded(digits, { ...layout, sign: shownSign, align: place });
}

interface Style {
  readonly precision: number | undefined;
  readonly sign: string | undefined;
  readonly isAlternate: boolean;
  readonly separator: string | undefined;
}

function number(value: bigint | number, type: string | undefined, style: Style): readonly [string, string] {
  if (type === 'c') return ['', String.fromCodePoint(Number(value))];
  const isShortest = typeof value === 'number' && type === undefined && style.precision === undefined;
  if (isShortest) {
    const text = printFloat(Math.abs(value));
    return [value < 0 || Object.is(value, -0) ? '-' : (style.sign ?? ''), text];
  }
  const fallback = typeof value === 'number' ? 'g' : 'd';
  return formatNumber(value, { ...style, type: type === undefined || type === 'n' ? fallback : type });
}

const unknownCode = (type: string, value: Value): TemplateError =>
  new TemplateError(`Unknown format code '${type}' for object of type '${typeName(value)}'`);
