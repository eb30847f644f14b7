/**
 * Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
 * 1, 2, 3" (SC 2011). A random number is a function of (seed, counter), without a state. So a request that is preempted,
 * restarted or batched differently draws the same numbers.
 *
 * `philox.test.ts` checks it against the known-answer vectors of the authors' Random123 library.
 */
const multiplier0 = 0xd2511f53;
const multiplier1 = 0xcd9e8d57;
/** The golden ratio and sqrt(3) - 1 as 32-bit fractions: the increments of the key in each round. */
const weyl0 = 0x9e3779b9;
const weyl1 = 0xbb67ae85;
const rounds = 10;

/** Four 32-bit words from a counter of four words and a key of two, written to `out`; `out` may be any length >= 4. */
// biome-ignore lint/complexity/useMaxParams: called for each random number: words, not objects
export function philox4x32(
  counter0: number,
  counter1: number,
  counter2: number,
  counter3: number,
  key0: number,
  key1: number,
  out: Uint32Array,
): void {
  let c0 = counter0 | 0;
  let c1 = counter1 | 0;
  let c2 = counter2 | 0;
  let c3 = counter3 | 0;
  let k0 = key0 | 0;
  let k1 = key1 | 0;
  for (let round = 0; round < rounds; round++) {
    const high0 = multiplyHigh(multiplier0, c0);
    const low0 = Math.imul(multiplier0, c0);
    const high1 = multiplyHigh(multiplier1, c2);
    const low1 = Math.imul(multiplier1, c2);
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 = (k0 + weyl0) | 0;
    k1 = (k1 + weyl1) | 0;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

// Shared by all calls, which are synchronous. A bigint is split into words through memory, because shifting and masking
// would allocate new bigints.
const words = new Uint32Array(4);
const seedBytes = new DataView(new ArrayBuffer(8));

/**
 * The random number of output token `tokenIndex` (0 = the first) under `seed`: a double in [0, 1), a multiple of 2^-53.
 * `seed` is taken modulo 2^64; `tokenIndex` is a non-negative safe integer.
 */
export function uniform(seed: bigint, tokenIndex: number): number {
  seedBytes.setBigUint64(0, seed, true);
  const indexHigh = Math.floor(tokenIndex / 2 ** 32);
  philox4x32(tokenIndex, indexHigh, 0, 0, seedBytes.getUint32(0, true), seedBytes.getUint32(4, true), words);
  const high27 = words[0]! >>> 5;
  const low26 = words[1]! >>> 6;
  return (high27 * 2 ** 26 + low26) * 2 ** -53;
}

/** The upper 32 bits of the product of two unsigned 32-bit words, by halves: a double has only 53 exact bits. */
function multiplyHigh(a: number, b: number): number {
  const aLow = a & 0xffff;
  const aHigh = a >>> 16;
  const bLow = b & 0xffff;
  const bHigh = b >>> 16;
  const low = aLow * bLow;
  const middle = aHigh * bLow + (low >>> 16);
  const middle2 = aLow * bHigh + (middle % 0x10000);
  return (aHigh * bHigh + Math.floor(middle / 0x10000) + Math.floor(middle2 / 0x10000)) | 0;
}
