import { setImmediate as nextTurn } from 'node:timers/promises';

/** The length of a piece, in UTF-16 units: about a millisecond of work. */
const PIECE_LENGTH = 64 * 1024;

/**
 * A list of small values in an answer that are made when they are written. So an answer needs the memory of what it is made from, and not
 * that of all its objects.
 */
export class LazyList<T> implements Iterable<T | RawJson<T>> {
  readonly #items: () => Iterable<T | RawJson<T>>;

  /** @param items may be called several times, and gives the same items each time */
  constructor(items: () => Iterable<T | RawJson<T>>) {
    this.#items = items;
  }

  [Symbol.iterator](): Iterator<T | RawJson<T>> {
    return this.#items()[Symbol.iterator]();
  }

  /** For lists that are known to be short: `JSON.stringify` writes them as arrays. */
  toJSON(): (T | RawJson<T>)[] {
    return Array.from(this);
  }
}

declare const valueBrand: unique symbol;

/** The JSON of a value, for values of which an answer has so many that objects would take most of the time. */
export class RawJson<T> {
  declare readonly [valueBrand]: T;
  readonly json: string;

  constructor(json: string) {
    this.json = json;
  }

  toJSON(): unknown {
    return JSON.parse(this.json);
  }
}

/** A list in an answer. */
export type JsonList<T> = readonly T[] | LazyList<T>;

/** The items of several lists. */
export const joinedList = <T>(...lists: readonly JsonList<T>[]): LazyList<T> =>
  new LazyList(function* () {
    for (const list of lists) yield* list;
  });

/** The JSON of a value in pieces, so that its writer can yield to the event loop and wait for its reader. */
export function* jsonPieces(value: unknown): Generator<string, void, void> {
  let piece = '';
  for (const part of partsOf(value)) {
    piece += part;
    if (piece.length < PIECE_LENGTH) continue;
    yield piece;
    piece = '';
  }
  if (piece !== '') yield piece;
}

/** The whole JSON, made with a turn of the event loop after each piece. Undefined if it is longer than `lengthMax`. */
export async function jsonInTurns(value: object, lengthMax: number): Promise<string | undefined> {
  const pieces: string[] = [];
  let length = 0;
  for (const piece of jsonPieces(value)) {
    if (pieces.length > 0) await nextTurn();
    pieces.push(piece);
    length += piece.length;
    if (length > lengthMax) return undefined;
  }
  return pieces.join('');
}

/** The first of the pieces if it is the only one, else all of them. */
export function firstOrAll(
  pieces: Generator<string, void, void>,
): { readonly only: string } | { readonly only?: never; readonly pieces: Iterable<string> } {
  const first = pieces.next().value ?? '';
  const second = pieces.next();
  if (second.done === true) return { only: first };
  const { value } = second;
  return {
    pieces: (function* () {
      yield first;
      yield value;
      yield* pieces;
    })(),
  };
}

/** Only lists of objects and lazy lists can be long. */
function* partsOf(value: unknown): Generator<string, void, void> {
  if (value instanceof RawJson) {
    yield value.json;
  } else if (value instanceof LazyList) {
    let separator = '[';
    for (const item of value) {
      yield separator + (item instanceof RawJson ? item.json : JSON.stringify(item));
      separator = ',';
    }
    yield separator === '[' ? '[]' : ']';
  } else if (Array.isArray(value) && typeof value[0] === 'object') {
    for (const [i, item] of value.entries()) {
      yield i === 0 ? '[' : ',';
      yield* partsOf(item);
    }
    yield ']';
  } else if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
    let separator = '{';
    for (const [name, field] of Object.entries(value)) {
      if (field === undefined) continue;
      yield `${separator}${JSON.stringify(name)}:`;
      yield* partsOf(field);
      separator = ',';
    }
    yield separator === '{' ? '{}' : '}';
  } else {
    yield JSON.stringify(value);
  }
}

/** A text in pieces, for JSON that exists already. */
export function* textPieces(text: string): Generator<string, void, void> {
  let end = 0;
  for (let start = 0; start < text.length; start = end) {
    end = Math.min(start + PIECE_LENGTH, text.length);
    // A surrogate pair stays together: it is one character of UTF-8.
    if (end < text.length && isHighSurrogate(text.charCodeAt(end - 1))) end--;
    yield text.slice(start, end);
  }
}

const isHighSurrogate = (unit: number): boolean => unit >= 0xd800 && unit < 0xdc00;
