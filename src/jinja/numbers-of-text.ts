import { byName } from '../base/by-name.ts';
import { intOf } from './bind.ts';
import { isNumeric, numberOf } from './compare.ts';
import { TemplateError } from './errors.ts';
import { strip } from './text-split.ts';
import { isText, textOf, typeName, Undefined, type Value } from './values.ts';

/** Python's `int` of a text: digits with a sign, in this base; undefined if it is not an integer. */
function parseWhole(text: string, base: number): bigint | undefined {
  const match = /^([-+]?)(0[xob])?([\da-z]+(?:_[\da-z]+)*)$/i.exec(strip(text, undefined, 'both'));
  if (match === null) return undefined;
  const [, sign, prefix = '', digits = ''] = match;
  const bases: Readonly<Record<string, number>> = byName({ '0x': 16, '0o': 8, '0b': 2 });
  const named = bases[prefix.toLowerCase()];
  const isPrefix = named !== undefined && (base === 0 || base === named);
  const radix = base === 0 ? (named ?? 10) : base;
  let value = 0n;
  for (const digit of (isPrefix ? digits : prefix + digits).replaceAll('_', '').toLowerCase()) {
    const amount = Number.parseInt(digit, 36);
    if (!(amount < radix)) return undefined;
    value = value * BigInt(radix) + BigInt(amount);
  }
  return sign === '-' ? -value : value;
}

/** Python's `float` of a text; undefined if it is not a number. */
function parseNumber(text: string): number | undefined {
  // Python reads more digits, to the same infinity.
  if (text.length > 4300) return undefined;
  const plain = strip(text, undefined, 'both').toLowerCase();
  const special = /^([-+]?)(inf|infinity|nan)$/.exec(plain);
  if (special !== null)
    return (special[1] === '-' ? -1 : 1) * (special[2] === 'nan' ? Number.NaN : Number.POSITIVE_INFINITY);
  return /^[-+]?(\d+(_\d+)*\.?(\d+(_\d+)*)?|\.\d+(_\d+)*)(e[-+]?\d+)?$/.test(plain)
    ? Number(plain.replaceAll('_', ''))
    : undefined;
}

export function toInt(value: Value, fallback: Value = 0n, base: Value = 10n): Value {
  if (value instanceof Undefined) return value.fail();
  if (isText(value)) {
    const text = textOf(value);
    // Python refuses more digits too.
    const whole = text.length > 4300 ? undefined : parseWhole(text, intOf(base));
    if (whole !== undefined) return whole;
  }
  const number = toFloat(value, null);
  return typeof number === 'number' && Number.isFinite(number)
    ? isNumeric(value) && typeof value !== 'number'
      ? numberOf(value)
      : BigInt(Math.trunc(number))
    : fallback;
}

export function toFloat(value: Value, fallback: Value = 0): Value {
  if (value instanceof Undefined) return value.fail();
  if (isText(value)) return parseNumber(textOf(value)) ?? fallback;
  return isNumeric(value) ? Number(value) : fallback;
}

/** Python's `float`. @throws TemplateError if the value is neither a number nor a text with one */
export function floatOf(value: Value): number {
  const number = toFloat(value, null);
  if (typeof number === 'number') return number;
  if (isText(value)) throw new TemplateError('could not convert string to float');
  throw new TemplateError(`float() argument must be a string or a real number, not '${typeName(value)}'`);
}
