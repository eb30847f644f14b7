import { assert } from '../base/assert.ts';
import type { TokenBuffer } from '../core/tokens.ts';

/**
 * The digest of a block depends on the digest of the block before. So equal digests mean equal tokens, and equal tokens
 * in all blocks before.
 *
 *   root    = H("kvasir-kv-1" | blockSize | fingerprint | salt | adapter)
 *   block 0 = H(root    | tokens of block 0)
 *   block i = H(block i-1 | tokens of block i)
 *
 * over canonical bytes: numbers as little-endian 32-bit words, strings as their length and their UTF-16 units. The KV
 * group is not in the digest, so groups with equal block sizes share one chain. A block's *key* has both (I10). H is
 * sha256; it is a parameter because `src/kv` imports nothing from Node.
 */

/** May return the same array at every call, so the caller copies the digest before the next call. */
export type HashFunction = (bytes: Uint8Array) => Uint8Array;

/** 32-bit words of a digest. All of them are compared, because a collision would give wrong tokens. */
export const DIGEST_WORDS = 8;
const DIGEST_BYTES = DIGEST_WORDS * 4;

/** The parts of every block's digest besides tokens. */
export interface ChainRoot {
  readonly fingerprint: string;
  readonly cacheSalt: string | undefined;
  /** The digest of the LoRA adapter; undefined: none. */
  readonly adapter?: string | undefined;
}

/**
 * The digests of one request's full blocks, each computed once, when its tokens are known. Kept when the request is
 * preempted.
 */
export class HashChain {
  readonly blockSize: number;
  readonly #hash: HashFunction;
  /** [parent digest | tokens], reused for every block. */
  readonly #message: Uint8Array;
  readonly #messageWords: DataView;
  #words: Uint32Array;
  #count = 0;

  /** `capacity`: blocks that fit before the chain grows. */
  constructor(hash: HashFunction, blockSize: number, root: ChainRoot, capacity = 8) {
    assert(Number.isInteger(blockSize) && blockSize > 0, `block size ${blockSize}`);
    this.blockSize = blockSize;
    this.#hash = hash;
    this.#message = new Uint8Array(DIGEST_BYTES + blockSize * 4);
    this.#messageWords = new DataView(this.#message.buffer);
    this.#words = new Uint32Array(DIGEST_WORDS * Math.max(capacity, 1));
    this.#setParent(hash(rootBytes(blockSize, root)));
  }

  /** Blocks whose digest is known. */
  get count(): number {
    return this.#count;
  }

  /** The digests in logical order, `DIGEST_WORDS` words each; valid until the next `extend`. */
  get words(): Uint32Array {
    return this.#words;
  }

  /** Hashes the blocks that became full since the last call. Tokens are only appended. */
  extend(tokens: TokenBuffer): void {
    const full = Math.floor(tokens.length / this.blockSize);
    while (this.#count < full) {
      const start = this.#count * this.blockSize;
      for (let i = 0; i < this.blockSize; i++)
        this.#messageWords.setInt32(DIGEST_BYTES + i * 4, tokens.at(start + i), true);
      const digest = this.#hash(this.#message);
      this.#append(digest);
      this.#setParent(digest);
    }
  }

  #setParent(digest: Uint8Array): void {
    assert(digest.length === DIGEST_BYTES, `the digest has ${digest.length} bytes, expected ${DIGEST_BYTES}`);
    this.#message.set(digest);
  }

  #append(digest: Uint8Array): void {
    const at = this.#count * DIGEST_WORDS;
    if (at === this.#words.length) {
      const grown = new Uint32Array(this.#words.length * 2);
      grown.set(this.#words);
      this.#words = grown;
    }
    for (let i = 0; i < DIGEST_WORDS; i++) {
      const byte = i * 4;
      this.#words[at + i] =
        digest[byte]! | (digest[byte + 1]! << 8) | (digest[byte + 2]! << 16) | (digest[byte + 3]! << 24);
    }
    this.#count++;
  }
}

function rootBytes(blockSize: number, { fingerprint, cacheSalt, adapter }: ChainRoot): Uint8Array {
  const name = 'kvasir-kv-1';
  // A salt may be very long, so all bytes go into one array whose length is known in advance.
  const units = name.length + fingerprint.length + (cacheSalt?.length ?? 0) + (adapter?.length ?? 0);
  const words = 4 + (cacheSalt === undefined ? 0 : 1) + (adapter === undefined ? 0 : 1);
  const bytes = new Uint8Array(words * 4 + units * 2);
  const view = new DataView(bytes.buffer);
  let at = 0;
  const word = (value: number): void => {
    view.setUint32(at, value, true);
    at += 4;
  };
  const text = (value: string): void => {
    word(value.length);
    for (let i = 0; i < value.length; i++, at += 2) view.setUint16(at, value.charCodeAt(i), true);
  };
  text(name);
  word(blockSize);
  text(fingerprint);
  // No salt and an empty salt are different caches. This word says whether a salt and an adapter follow.
  word((cacheSalt === undefined ? 0 : 1) + (adapter === undefined ? 0 : 2));
  if (cacheSalt !== undefined) text(cacheSalt);
  if (adapter !== undefined) text(adapter);
  return bytes;
}
