import { byName } from '../base/by-name.ts';
import { TemplateError } from './errors.ts';
import { chargeText } from './meter.ts';
import { characterCount } from './values.ts';

/** How a number is written by `%` and by `format`. */
export interface NumberStyle {
  /** `d`, `b`, `o`, `x`, `X`, `e`, `f`, `g`, their upper cases and `%`. */
  readonly type: string;
  /** Digits after the point; for `g` all digits. Default 6. */
  readonly precision?: number | undefined;
  /** What positive numbers begin with. */
  readonly sign?: string | undefined;
  /** The form with a prefix (`0x`). */
  readonly isAlternate?: boolean | undefined;
  /** Between groups of three digits. */
  readonly separator?: string | undefined;
}

const precisionMax = 100;

/** The sign and the digits of a number. */
export function formatNumber(value: bigint | number, style: NumberStyle): readonly [sign: string, digits: string] {
  const isNegative = value < 0 || Object.is(value, -0);
  const sign = isNegative ? '-' : (style.sign ?? '');
  const digits = 'dboxXc'.includes(style.type) ? intDigits(value, style) : floatDigits(Math.abs(Number(value)), style);
  return [sign, digits];
}

const radixes: Readonly<Record<string, number>> = byName({ d: 10, b: 2, o: 8, x: 16, X: 16 });

function intDigits(value: bigint | number, { type, isAlternate = false, separator = '' }: NumberStyle): string {
  const whole = BigInt(typeof value === 'number' ? Math.trunc(value) : value);
  const digits = (whole < 0n ? -whole : whole).toString(radixes[type]);
  if (type === 'd') return grouped(digits, separator);
  const prefix = isAlternate ? `0${type}` : '';
  return prefix + (type === 'X' ? digits.toUpperCase() : digits);
}

function floatDigits(value: number, style: NumberStyle): string {
  const { type, precision = 6, separator = '' } = style;
  if (!Number.isFinite(value)) return type === type.toUpperCase() && type !== '%' ? upperWord(value) : word(value);
  if (precision > precisionMax) throw new TemplateError(`a precision above ${precisionMax} is not supported`);
  if (type === '%') return `${fixed(value * 100, precision)}%`;
  const lower = type.toLowerCase();
  const digits =
    lower === 'f'
      ? fixed(value, precision)
      : lower === 'e'
        ? scientific(value, precision)
        : general(value, precision, style);
  const [whole = '', ...rest] = digits.split('.');
  const text = [lower === 'f' ? grouped(whole, separator) : whole, ...rest].join('.');
  return type === lower ? text : text.toUpperCase();
}

const word = (value: number): string => (Number.isNaN(value) ? 'nan' : 'inf');
const upperWord = (value: number): string => word(value).toUpperCase();

const grouped = (digits: string, separator: string): string =>
  separator === '' ? digits : digits.replace(/\B(?=(\d{3})+(?!\d))/g, separator);

/** With so many digits after the point. Ties are rounded to even, as in Python; `toFixed` rounds them up. */
export function fixed(value: number, precision: number): string {
  if (value >= 1e21) {
    const digits = BigInt(value).toString();
    return precision === 0 ? digits : `${digits}.${'0'.repeat(precision)}`;
  }
  const text = value.toFixed(precision);
  const exact = value.toFixed(precisionMax);
  const rest = exact.slice(exact.indexOf('.') + 1 + precision);
  if (precision >= precisionMax || !/^50*$/.test(rest)) return text;
  const below = exact.slice(0, exact.indexOf('.') + 1 + precision).replace(/\.$/, '');
  return Number(below.at(-1)) % 2 === 0 ? below : text;
}

function scientific(value: number, precision: number): string {
  const [mantissa = '', power = '0'] = value.toExponential(precision).split('e');
  return `${mantissa}e${power[0] === '-' ? '-' : '+'}${power.replace(/^[-+]/, '').padStart(2, '0')}`;
}

function general(value: number, precision: number, { isAlternate = false }: NumberStyle): string {
  const digits = Math.max(1, precision);
  const exponent = value === 0 ? 0 : Number(value.toExponential(digits - 1).split('e')[1]);
  const isScientific = exponent < -4 || exponent >= digits;
  const text = isScientific ? scientific(value, digits - 1) : fixed(value, digits - 1 - exponent);
  if (isAlternate || !text.includes('.')) return text;
  return text.replace(/\.?0+(?=e|$)/, '');
}

export interface Padding {
  readonly width: number;
  /** One character. */
  readonly fill?: string;
  /** Where the text is; `=`: on the right, with its sign on the left. */
  readonly align: '<' | '>' | '^' | '=';
  readonly sign?: string;
}

/** The text between fill characters. */
export function padded(text: string, { sign = '', width, fill = ' ', align }: Padding): string {
  const missing = width - characterCount(text) - sign.length;
  if (missing <= 0) return sign + text;
  chargeText(width);
  if (align === '=') return sign + fill.repeat(missing) + text;
  const left = align === '<' ? 0 : align === '>' ? missing : Math.floor(missing / 2);
  return fill.repeat(left) + sign + text + fill.repeat(missing - left);
}
