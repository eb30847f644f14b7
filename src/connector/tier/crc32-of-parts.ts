import { assert } from '../../base/assert.ts';

/**
 * The CRC32 of bytes from the CRC32s of their parts, for bytes that are read and checked part by part. The method is that of
 * zlib's `crc32_combine`: the CRC32 of `a` followed by `b` is `crc(a)`, moved by the length of `b`, plus `crc(b)`. Moving is
 * linear, so 32 numbers describe it for a length: what each bit becomes.
 */
export class Crc32OfParts {
  readonly #moves = new Map<number, Uint32Array>();
  #crc = 0;

  /** Forgets all parts. */
  begin(): void {
    this.#crc = 0;
  }

  /** Adds the next part by its CRC32. Parts of the same length cost least. */
  add(crc: number, length: number): void {
    assert(Number.isSafeInteger(length) && length >= 0, `a part of ${length} bytes`);
    assert(crc >>> 0 === crc, `${crc} is not a CRC32`);
    this.#crc = (apply(this.#moveBy(length), this.#crc) ^ crc) >>> 0;
  }

  /** The CRC32 of all parts since `begin`. */
  get value(): number {
    return this.#crc;
  }

  #moveBy(length: number): Uint32Array {
    let move = this.#moves.get(length);
    if (move === undefined) {
      move = moveBy(length);
      // One length is usual, and the length of the last part.
      if (this.#moves.size >= movesMax) this.#moves.clear();
      this.#moves.set(length, move);
    }
    return move;
  }
}

const movesMax = 16;
/** zlib's polynomial, with reflected bits. */
const polynomial = 0xedb88320;

/** What each bit of a CRC becomes when `length` zero bytes follow. */
function moveBy(length: number): Uint32Array {
  let power: Uint32Array = oneBit();
  for (let doubling = 0; doubling < 3; doubling++) power = product(power, power);
  let move: Uint32Array = Uint32Array.from({ length: 32 }, (_, bit) => (1 << bit) >>> 0);
  for (let rest = length; rest > 0; rest = Math.floor(rest / 2)) {
    if (rest % 2 === 1) move = product(power, move);
    power = product(power, power);
  }
  return move;
}

const oneBit = (): Uint32Array =>
  Uint32Array.from({ length: 32 }, (_, bit) => (bit === 0 ? polynomial : (1 << (bit - 1)) >>> 0));

const product = (a: Uint32Array, b: Uint32Array): Uint32Array => b.map((column) => apply(a, column));

function apply(move: Uint32Array, crc: number): number {
  let sum = 0;
  for (let bit = 0; crc !== 0; bit++, crc >>>= 1) if ((crc & 1) !== 0) sum ^= move[bit]!;
  return sum >>> 0;
}
