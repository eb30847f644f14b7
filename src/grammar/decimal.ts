import { ExactNumber } from '../base/exact-json.ts';

/** The exact value of a number of JSON: `0.<digits>` times ten to the power of `exponent`. */
export interface Decimal {
  readonly isNegative: boolean;
  /** Without zeros at both ends; empty for 0. */
  readonly digits: string;
  /** Of 0: `-Infinity`. */
  readonly exponent: number;
}

/** `text`: a number as JSON writes it. */
export function decimalOf(text: string): Decimal {
  const [, sign = '', whole = '', fraction = '', exponent = '0'] = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(
    text,
  )!;
  const all = (whole + fraction).replace(/^0+/, '');
  const leading = whole.length + fraction.length - all.length;
  const digits = all.replace(/0+$/, '');
  if (digits === '') return { isNegative: false, digits, exponent: -Infinity };
  return { isNegative: sign === '-', digits, exponent: whole.length - leading + limited(Number(exponent)) };
}

/** Far beyond all numbers that are compared with it, and an exact integer. */
const exponentMax = 1e12;
const limited = (exponent: number): number => Math.min(exponentMax, Math.max(-exponentMax, exponent));

export const isNumber = (value: unknown): value is number | ExactNumber =>
  (typeof value === 'number' && Number.isFinite(value)) || value instanceof ExactNumber;

/** The text of a number in a schema, with all its digits. */
export const textOfNumber = (value: number | ExactNumber): string => (Object.is(value, -0) ? '-0' : String(value));

/** Negative, 0 or positive, as `a` is less than, equal to or greater than `b`. */
export function compareDecimals(a: Decimal, b: Decimal): number {
  if (a.isNegative !== b.isNegative) return a.isNegative ? -1 : 1;
  const difference = a.exponent === b.exponent ? compareTexts(a.digits, b.digits) : a.exponent - b.exponent;
  return a.isNegative ? -difference : difference;
}

const compareTexts = (a: string, b: string): number => (a === b ? 0 : a < b ? -1 : 1);

/** Equal for equal numbers. */
export const keyOfDecimal = ({ isNegative, digits, exponent }: Decimal): string =>
  `${isNegative ? '-' : ''}${digits}e${exponent}`;

export const isIntegral = ({ digits, exponent }: Decimal): boolean => digits.length <= exponent || digits === '';

/** Whether `a` is an integer times `b`, which is not 0. */
export function isMultipleOf(a: Decimal, b: Decimal): boolean {
  if (a.digits === '') return true;
  // a / b = (digits of a) * 10 ** shift / (digits of b), and the digits of `a` are not a multiple of 10.
  const shift = a.exponent - a.digits.length - (b.exponent - b.digits.length);
  const divisor = BigInt(b.digits);
  return shift >= 0 && (BigInt(a.digits) * powerModulo(shift, divisor)) % divisor === 0n;
}

function powerModulo(exponent: number, modulus: bigint): bigint {
  let [result, base] = [1n % modulus, 10n % modulus];
  for (let rest = exponent; rest >= 1; rest = Math.floor(rest / 2)) {
    if (rest % 2 === 1) result = (result * base) % modulus;
    base = (base * base) % modulus;
  }
  return result;
}
