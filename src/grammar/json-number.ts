import { characters, choice, type Expression, empty, nothing, optional, repeat, sequence, text } from './expression.ts';

/** Numbers have at most so many digits on each side of the point: a model that repeats a digit comes to an end. */
const digitsMax = 20;
const largest = 10n ** BigInt(digitsMax) - 1n;
/** As a double, which is one more: numbers do not reach it. */
export const largestNumber = Number(largest);

const digit = characters('09');
const digits = (min: number, max: number): Expression => repeat(digit, min, max);
const integerPart = choice(text('0'), sequence(characters('19'), digits(0, digitsMax - 1)));
const anyFraction = optional(sequence(text('.'), digits(1, digitsMax)));

export const anyInteger = sequence(optional(text('-')), integerPart);
/** With an exponent of two digits, so that it stays finite as a double. */
export const anyNumber = sequence(
  anyInteger,
  anyFraction,
  optional(sequence(characters('e', 'E'), optional(characters('+', '-')), digits(1, 2))),
);

export interface NumberBounds {
  readonly min?: number;
  readonly max?: number;
  /** The bounds do not belong to the range. */
  readonly isMinExclusive?: boolean;
  readonly isMaxExclusive?: boolean;
}

export function integerBetween(bounds: NumberBounds): Expression {
  const { min = -Infinity, max = Infinity, isMinExclusive = false, isMaxExclusive = false } = bounds;
  if (min === -Infinity && max === Infinity) return anyInteger;
  const first = clamp(isMinExclusive ? integerAbove(min) : Math.ceil(min));
  const last = clamp(isMaxExclusive ? -integerAbove(-max) : Math.floor(max));
  return signed(first, last);
}

/** Readers round integers beyond 2 ** 53 to a double, so it must be another double. */
const integerAbove = (value: number): number => Math.max(Math.floor(value) + 1, Math.ceil(nextAbove(value)));

const clamp = (value: number): bigint => {
  if (value >= largestNumber) return largest;
  return value <= -largestNumber ? -largest : BigInt(value);
};

function signed(first: bigint, last: bigint): Expression {
  if (first > last) return nothing;
  if (first >= 0n) return natural(first, last);
  const negative = sequence(text('-'), natural(last < 0n ? -last : 1n, -first));
  return last < 0n ? negative : choice(negative, natural(0n, last));
}

/** Integers from `first` to `last`, which are not negative, without leading zeros. */
function natural(first: bigint, last: bigint): Expression {
  const options: Expression[] = [];
  for (let low = first; low <= last; ) {
    const length = String(low).length;
    const end = 10n ** BigInt(length) - 1n;
    const high = end < last ? end : last;
    options.push(sameLength(String(low), String(high)));
    low = high + 1n;
  }
  return choice(...options);
}

/** Texts of digits between two texts of the same length. */
function sameLength(low: string, high: string): Expression {
  const rest = low.length - 1;
  if (rest < 0) return empty;
  if (/^0*$/.test(low) && /^9*$/.test(high)) return digits(low.length, low.length);
  const [a, b] = [Number(low[0]), Number(high[0])];
  if (a === b) return sequence(text(String(a)), sameLength(low.slice(1), high.slice(1)));
  return choice(
    sequence(text(String(a)), sameLength(low.slice(1), '9'.repeat(rest))),
    sequence(digitBetween(a + 1, b - 1), digits(rest, rest)),
    sequence(text(String(b)), sameLength('0'.repeat(rest), high.slice(1))),
  );
}

const digitBetween = (a: number, b: number): Expression => (a > b ? nothing : characters(`${a}${b}`));

/** Decimal numbers without an exponent, unless there are no bounds. */
export function numberBetween(bounds: NumberBounds): Expression {
  const { isMinExclusive = false, isMaxExclusive = false } = bounds;
  if (bounds.min === undefined && bounds.max === undefined) return anyNumber;
  // A decimal number is rounded to a double, which keeps the order. So the next double is an inclusive bound.
  const min = isMinExclusive ? nextAbove(bounds.min ?? -Infinity) : (bounds.min ?? -Infinity);
  const max = isMaxExclusive ? -nextAbove(-(bounds.max ?? Infinity)) : (bounds.max ?? Infinity);
  if (min > max) return nothing;
  if (min >= 0) return positive(min, max);
  const negative = sequence(text('-'), positive(max < 0 ? -max : 0, -min));
  return max < 0 ? negative : choice(negative, positive(0, max));
}

function nextAbove(value: number): number {
  if (!Number.isFinite(value)) return value;
  if (value === 0) return Number.MIN_VALUE;
  const bits = new DataView(new ArrayBuffer(8));
  bits.setFloat64(0, value);
  bits.setBigInt64(0, bits.getBigInt64(0) + (value > 0 ? 1n : -1n));
  return bits.getFloat64(0);
}

interface Decimal {
  readonly whole: bigint;
  /** The digits after the point, without trailing zeros. */
  readonly fraction: string;
}

function positive(min: number, max: number): Expression {
  const low = decimal(min, true);
  const high = decimal(max, false);
  if (low.whole > high.whole || (low.whole === high.whole && low.fraction > high.fraction)) return nothing;
  if (low.whole === high.whole) {
    return sequence(text(String(low.whole)), fractionBetween(low.fraction, high.fraction));
  }
  const between = low.whole + 1n <= high.whole - 1n ? natural(low.whole + 1n, high.whole - 1n) : nothing;
  return choice(
    sequence(text(String(low.whole)), fractionFrom(low.fraction)),
    sequence(between, anyFraction),
    sequence(text(String(high.whole)), fractionUpTo(high.fraction)),
  );
}

/** The shortest decimal number of a double, with at most `digitsMax` digits after the point. */
function decimal(value: number, roundUp: boolean): Decimal {
  if (value >= largestNumber) return { whole: largest, fraction: '' };
  const [mantissa = '', exponent = '0'] = value.toString().split('e');
  const [whole = '', fraction = ''] = mantissa.split('.');
  const shift = Number(exponent);
  const all = whole + fraction;
  const point = whole.length + shift;
  const padded = point < 0 ? '0'.repeat(-point) + all : all.padEnd(point, '0');
  const at = Math.max(point, 0);
  const tail = padded.slice(at);
  let scaled = BigInt((padded.slice(0, at) || '0') + tail.slice(0, digitsMax).padEnd(digitsMax, '0'));
  if (roundUp && /[1-9]/.test(tail.slice(digitsMax))) scaled += 1n;
  const unit = 10n ** BigInt(digitsMax);
  const rest = String(scaled % unit).padStart(digitsMax, '0');
  return { whole: scaled / unit, fraction: rest.replace(/0+$/, '') };
}

/** What may follow an integer so that its fraction is at least `low`. */
const fractionFrom = (low: string): Expression =>
  low === '' ? anyFraction : sequence(text('.'), digitsFrom(low, digitsMax));

const fractionUpTo = (high: string): Expression =>
  high === '' ? optional(text('.0')) : optional(sequence(text('.'), digitsUpTo(high, digitsMax)));

function fractionBetween(low: string, high: string): Expression {
  return low === '' ? fractionUpTo(high) : sequence(text('.'), digitsBetween(low, high, digitsMax));
}

/** Digits that are not below `low` as a fraction; `room`: how many there may be. */
function digitsFrom(low: string, room: number): Expression {
  if (low === '') return digits(0, room);
  const first = Number(low[0]);
  return choice(
    sequence(text(String(first)), digitsFrom(low.slice(1), room - 1)),
    sequence(digitBetween(first + 1, 9), digits(0, room - 1)),
  );
}

/** At least one digit. */
function digitsUpTo(high: string, room: number): Expression {
  const first = Number(high[0]);
  return choice(
    sequence(digitBetween(0, first - 1), digits(0, room - 1)),
    sequence(text(String(first)), restUpTo(high.slice(1), room - 1)),
  );
}

const restUpTo = (high: string, room: number): Expression => (high === '' ? empty : optional(digitsUpTo(high, room)));

function digitsBetween(low: string, high: string, room: number): Expression {
  if (low === '') return restUpTo(high, room);
  const [a, b] = [Number(low[0]), Number(high[0])];
  if (a === b) return sequence(text(String(a)), digitsBetween(low.slice(1), high.slice(1), room - 1));
  return choice(
    sequence(text(String(a)), digitsFrom(low.slice(1), room - 1)),
    sequence(digitBetween(a + 1, b - 1), digits(0, room - 1)),
    sequence(text(String(b)), restUpTo(high.slice(1), room - 1)),
  );
}
