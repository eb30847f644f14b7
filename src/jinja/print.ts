import { byName } from '../base/by-name.ts';
import { charge, chargeText, joinTexts } from './meter.ts';
import {
  Dict,
  DictView,
  isList,
  Markup,
  Namespace,
  Range,
  Stream,
  type Thing,
  Tuple,
  Undefined,
  type Value,
} from './values.ts';

/** Python's `str`. */
export function print(value: Value): string {
  if (typeof value === 'string') return value;
  if (value instanceof Markup) return value.text;
  if (value instanceof Undefined) return '';
  return represent(value);
}

/** Python's `repr`. */
export function represent(value: Value): string {
  charge(1);
  if (typeof value === 'string') return quote(value);
  if (value === null) return 'None';
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (typeof value === 'bigint') return printInt(value);
  if (typeof value === 'number') return printFloat(value);
  if (isList(value)) return `[${joinTexts(', ', value.map(represent))}]`;
  if (value instanceof Tuple)
    return `(${joinTexts(', ', value.items.map(represent))}${value.items.length === 1 ? ',' : ''})`;
  if (value instanceof Dict) return `{${fieldsOf(value)}}`;
  if (value instanceof DictView) return `dict_${value.kind}([${joinTexts(', ', [...value].map(represent))}])`;
  if (value instanceof Range) return printRange(value);
  if (value instanceof Markup) return `Markup(${quote(value.text)})`;
  if (value instanceof Undefined) return 'Undefined';
  if (value instanceof Namespace) return `<Namespace ${represent(new Dict(value.values))}>`;
  if (value instanceof Stream) return `<${value.typeName} object>`;
  return (value satisfies Thing).toString();
}

const fieldsOf = (dict: Dict): string =>
  joinTexts(
    ', ',
    Array.from(dict.entries(), ([key, value]) => `${represent(key)}: ${represent(value)}`),
  );

const printRange = ({ start, stop, step }: Range): string =>
  step === 1n ? `range(${start}, ${stop})` : `range(${start}, ${stop}, ${step})`;

function printInt(value: bigint): string {
  const text = String(value);
  // Conversion takes time in proportion to the square of the digits.
  if (text.length > 20) charge(text.length);
  return text;
}

/** The fewest digits that give the same number, with an exponent below 1e-4 and from 1e16 on. */
export function printFloat(value: number): string {
  if (Number.isNaN(value)) return 'nan';
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf';
  if (Object.is(value, -0)) return '-0.0';
  const [mantissa = '', power = ''] = value.toExponential().split('e');
  const exponent = Number(power);
  if (exponent < -4 || exponent >= 16) {
    const digits = String(Math.abs(exponent)).padStart(2, '0');
    return `${mantissa}e${exponent < 0 ? '-' : '+'}${digits}`;
  }
  const text = String(value);
  return text.includes('.') ? text : `${text}.0`;
}

/** Quotes, controls, and what cannot be seen. */
const escaped = /['"\\\p{C}\p{Z}]/gu;

export function quote(text: string): string {
  chargeText(text.length);
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  const inner = text.replace(escaped, (letter) => {
    if (letter === ' ' || letter === '"' || letter === "'") return letter === mark ? `\\${letter}` : letter;
    return short[letter] ?? escapeCode(letter.codePointAt(0) ?? 0);
  });
  return `${mark}${inner}${mark}`;
}

const short: Readonly<Record<string, string>> = byName({ '\\': '\\\\', '\n': '\\n', '\r': '\\r', '\t': '\\t' });

function escapeCode(code: number): string {
  const digits = code.toString(16);
  if (code < 0x100) return `\\x${digits.padStart(2, '0')}`;
  return code < 0x10000 ? `\\u${digits.padStart(4, '0')}` : `\\U${digits.padStart(8, '0')}`;
}
