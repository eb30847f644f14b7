import { type Automaton, alphabetOf } from './automaton.ts';
import type { Budget } from './budget.ts';
import { compareDecimals, type Decimal, decimalOf } from './decimal.ts';
import { characters, choice, type Expression, empty, nothing, optional, repeat, sequence, text } from './expression.ts';

/** Numbers have at most so many digits on each side of the point: a model that repeats a digit comes to an end. */
const digitsMax = 20;
const largest = 10n ** BigInt(digitsMax) - 1n;
const zero = decimalOf('0');
/** Numbers do not reach it. */
export const outOfReach = decimalOf(`1e${digitsMax}`);

const digit = characters('09');
const digits = (min: number, max: number): Expression => repeat(digit, min, max);
const wholePart = sequence(characters('19'), digits(0, digitsMax - 1));
const integerPart = choice(text('0'), wholePart);
const anyFraction = optional(sequence(text('.'), digits(1, digitsMax)));

/** Without `-0`, which serde of Rust does not read as an integer. */
export const anyInteger = choice(text('0'), sequence(optional(text('-')), wholePart));
/** With an exponent of two digits, so that it stays finite as a double. */
export const anyNumber = sequence(
  optional(text('-')),
  integerPart,
  anyFraction,
  optional(sequence(characters('e', 'E'), optional(characters('+', '-')), digits(1, 2))),
);

/** Both bounds belong to the range. */
export interface NumberBounds {
  readonly min?: Decimal | undefined;
  readonly max?: Decimal | undefined;
}

/**
 * The smallest bound above an exclusive minimum. Readers round a number to a double, which keeps the order, so it must be
 * another double.
 */
export const boundAbove = (exclusive: string): Decimal => decimalOf(String(nextAbove(Number(exclusive))));
export const boundBelow = (exclusive: string): Decimal => decimalOf(String(-nextAbove(-Number(exclusive))));

export function integerBetween({ min, max }: NumberBounds): Expression {
  if (min === undefined && max === undefined) return anyInteger;
  return signed(
    min === undefined ? -largest : integerFrom(min),
    max === undefined ? largest : -integerFrom(negated(max)),
  );
}

const negated = (value: Decimal): Decimal => ({ ...value, isNegative: !value.isNegative && value.digits !== '' });

/** The smallest integer that is not below the value. */
function integerFrom(value: Decimal): bigint {
  const { whole, fraction } = rounded({ ...value, isNegative: false }, !value.isNegative);
  if (value.isNegative) return -whole;
  return fraction === '' || whole === largest ? whole : whole + 1n;
}

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
export function numberBetween({ min, max }: NumberBounds): Expression {
  if (min === undefined && max === undefined) return anyNumber;
  if (min !== undefined && max !== undefined && compareDecimals(min, max) > 0) return nothing;
  if (min !== undefined && !min.isNegative) return positive(min, max);
  const isBelowZero = max?.isNegative === true;
  const negative = sequence(text('-'), positive(isBelowZero ? negated(max) : zero, min && negated(min)));
  return isBelowZero ? negative : choice(negative, positive(zero, max));
}

function nextAbove(value: number): number {
  if (!Number.isFinite(value)) return value;
  if (value === 0) return Number.MIN_VALUE;
  const bits = new DataView(new ArrayBuffer(8));
  bits.setFloat64(0, value);
  bits.setBigInt64(0, bits.getBigInt64(0) + (value > 0 ? 1n : -1n));
  return bits.getFloat64(0);
}

interface Rounded {
  readonly whole: bigint;
  /** The digits after the point, without trailing zeros. */
  readonly fraction: string;
}

function positive(min: Decimal, max: Decimal | undefined): Expression {
  const low = rounded(min, true);
  const high = max === undefined ? { whole: largest, fraction: '' } : rounded(max, false);
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

/** A number that is not negative, with at most `digitsMax` digits on both sides of the point. */
function rounded({ digits: all, exponent }: Decimal, isUp: boolean): Rounded {
  if (exponent > digitsMax) return { whole: largest, fraction: '' };
  const padded = exponent <= 0 ? '0'.repeat(Math.min(-exponent, digitsMax)) + all : all.padEnd(exponent, '0');
  const point = Math.max(exponent, 0);
  const tail = padded.slice(point);
  let scaled = BigInt(padded.slice(0, point) + tail.slice(0, digitsMax).padEnd(digitsMax, '0'));
  if (isUp && /[1-9]/.test(tail.slice(digitsMax))) scaled += 1n;
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

/** Numbers that doubles distinguish: all others are near to one of these, and readers take both for equal. */
export const distinctNumber = sequence(
  optional(text('-')),
  choice(
    sequence(choice(text('0'), sequence(characters('19'), digits(0, 14))), optional(text('.0'))),
    sequence(choice(text('0'), sequence(characters('19'), digits(0, 7))), optional(sequence(text('.'), digits(1, 7)))),
  ),
);

/** All texts of one value without an exponent; undefined if numbers do not reach it. */
export function textsOfValue(value: Decimal): Expression | undefined {
  const isLong = value.exponent > digitsMax || value.digits.length - value.exponent > digitsMax;
  if (isLong && value.digits !== '') return undefined;
  const { whole, fraction } = rounded({ ...value, isNegative: false }, false);
  const zeros = repeat(text('0'), 0, Infinity);
  const sign = value.digits === '' ? optional(text('-')) : text(value.isNegative ? '-' : '');
  const tail = fraction === '' ? optional(sequence(text('.'), zeros)) : sequence(text(`.${fraction}`), zeros);
  return sequence(sign, text(String(whole)), tail);
}

const lettersOfNumbers = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '.', '-'];

/**
 * The texts of all multiples of a number, without exponents: the remainder is known after each digit. Undefined if it has
 * more than `statesMax` states.
 */
export function multiplesOf(divisor: Decimal, statesMax: number, budget: Budget): Automaton | undefined {
  const scale = Math.max(0, divisor.digits.length - divisor.exponent);
  const zeros = Math.max(0, divisor.exponent - divisor.digits.length);
  const modulus = Number(divisor.digits);
  // Arithmetic with more digits would not be exact.
  if (modulus * (scale + zeros + 1) > statesMax || Math.max(scale, zeros) > 15) return undefined;
  const machine = new MultipleMachine(modulus, zeros, scale);
  const codes = lettersOfNumbers.map((letter) => letter.charCodeAt(0));
  const alphabet = alphabetOf(
    codes.map((code) => [{ first: code, last: code }]),
    budget,
  );
  const symbols = codes.map((code) => alphabet.symbols[alphabet.starts.lastIndexOf(code)]!);
  const numbers = new Map<string, number>();
  const states: MultipleState[] = [];
  const numberOf = (state: MultipleState): number => {
    const key = Object.values(state).join();
    const known = numbers.get(key);
    if (known !== undefined) return known;
    numbers.set(key, states.length);
    return states.push(state) - 1;
  };
  numberOf({ at: 'start', remainder: 0, zeros: 0, places: 0 });
  const next: number[] = [];
  for (let i = 0; i < states.length; i++) {
    budget.spendSteps(codes.length / 4);
    const row = new Array<number>(alphabet.count).fill(-1);
    for (const [letter, symbol] of symbols.entries()) {
      const target = machine.read(states[i]!, lettersOfNumbers[letter]!);
      if (target !== undefined) row[symbol] = numberOf(target);
    }
    next.push(...row);
  }
  return {
    alphabet,
    next: Int32Array.from(next),
    accepts: Uint8Array.from(states, (state) => (machine.isMultiple(state) ? 1 : 0)),
  };
}

interface MultipleState {
  readonly at: 'start' | 'sign' | 'zero' | 'whole' | 'point' | 'fraction';
  /** Of the digits before the last `zeros` zeros, by `modulus`. */
  readonly remainder: number;
  readonly zeros: number;
  /** Digits after the point, of which only the first `scale` can be other than 0. */
  readonly places: number;
}

/** Multiples of `modulus * 10 ** zerosMin`, or of `modulus / 10 ** scale`. */
class MultipleMachine {
  readonly #modulus: number;
  readonly #zerosMin: number;
  readonly #scale: number;

  constructor(modulus: number, zerosMin: number, scale: number) {
    this.#modulus = modulus;
    this.#zerosMin = zerosMin;
    this.#scale = scale;
  }

  read(state: MultipleState, letter: string): MultipleState | undefined {
    const { at } = state;
    if (letter === '-') return at === 'start' ? { ...state, at: 'sign' } : undefined;
    if (letter === '.') return at === 'zero' || at === 'whole' ? { ...state, at: 'point' } : undefined;
    const digit = Number(letter);
    if (at === 'zero') return undefined;
    if (at === 'start' || at === 'sign') {
      if (digit === 0) return { ...state, at: 'zero', zeros: this.#zerosMin };
      return { ...state, at: 'whole', remainder: digit % this.#modulus };
    }
    if (at === 'whole') return this.#append(state, digit);
    if (state.places >= this.#scale) return digit === 0 ? { ...state, at: 'fraction' } : undefined;
    return { ...this.#append(state, digit), at: 'fraction', places: state.places + 1 };
  }

  #append(state: MultipleState, digit: number): MultipleState {
    const { remainder, zeros } = state;
    if (digit === 0 && zeros < this.#zerosMin) return { ...state, zeros: zeros + 1 };
    if (digit === 0) return { ...state, remainder: (remainder * 10) % this.#modulus };
    const shifted = remainder * (10 ** (zeros + 1) % this.#modulus);
    return { ...state, remainder: (shifted + digit) % this.#modulus, zeros: 0 };
  }

  isMultiple({ at, remainder, zeros, places }: MultipleState): boolean {
    if (at === 'start' || at === 'sign' || at === 'point') return false;
    return (
      zeros === this.#zerosMin && (remainder * (10 ** (this.#scale - places) % this.#modulus)) % this.#modulus === 0
    );
  }
}
