import { isNumeric, numberOf } from './compare.ts';
import { TemplateError } from './errors.ts';
import { formatNumber, padded } from './format-number.ts';
import { chargeText } from './meter.ts';
import { print, printFloat, represent } from './print.ts';
import { type Arguments, isText, typeName, type Value } from './values.ts';

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
  for (let at = 0; at < format.length; ) {
    const letter = format[at]!;
    if (letter !== '{' && letter !== '}') {
      const [plain = ''] = /^[^{}]+/.exec(format.slice(at)) ?? [];
      text += plain;
      at += plain.length;
    } else if (format[at + 1] === letter) {
      text += letter;
      at += 2;
    } else if (letter === '}') throw new TemplateError("Single '}' encountered in format string");
    else {
      const end = fieldEnd(format, at);
      text += field(format.slice(at + 1, end), argument, levels);
      at = end + 1;
    }
  }
  return text;
}

function fieldEnd(format: string, start: number): number {
  let depth = 0;
  for (let at = start; at < format.length; at++) {
    if (format[at] === '{') depth++;
    if (format[at] === '}' && --depth === 0) return at;
  }
  throw new TemplateError("expected '}' before end of string");
}

function field(source: string, argument: (name: string) => Value, levels: number): string {
  const match = /^([^!:]*(?:\[[^\]]*\][^!:]*)*)(?:!([a-z]))?(?::(.*))?$/s.exec(source);
  if (match === null) throw new TemplateError('wrong field in format string');
  const [, name = '', conversion, specification = ''] = match;
  const value = argument(name);
  const converted = conversion === undefined ? value : conversion === 's' ? print(value) : represent(value);
  return formatValue(converted, expand(specification, argument, levels - 1));
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
    const cut = precision === undefined ? text : [...text].slice(0, Number(precision)).join('');
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
