import { crc32 } from 'node:zlib';
import type { BlockKey } from '../block-key.ts';

/** 65,536 blocks in 256 KiB. In a set of strings, each block would need 174 bytes. */
const bucketCount = 1 << 13;
const bucketSize = 8;
const none = 0;

/**
 * Blocks that have left host memory, so that a tier below probably has them. It has about the newest 64,000 of them, in memory that does not grow.
 *
 *     key --> 32-bit hash --> bucket --> [newest hash | ... | oldest hash]
 *
 * Each bucket forgets its oldest block, so a few blocks are forgotten early. Another block with the same hash is taken for a block that has
 * left: of a million other blocks, about 15. Then a request waits for a look-up in vain.
 */
export class LeftHost {
  #hashes: Uint32Array | undefined;

  add(key: BlockKey): void {
    this.#hashes ??= new Uint32Array(bucketCount * bucketSize);
    const hash = hashOf(key);
    const begin = beginOf(hash);
    const bucket = this.#hashes.subarray(begin, begin + bucketSize);
    const known = bucket.indexOf(hash);
    const place = known < 0 ? bucket.indexOf(none) : known;
    // The newer ones move by one place.
    bucket.copyWithin(1, 0, place < 0 ? bucketSize - 1 : place);
    bucket[0] = hash;
  }

  has(key: BlockKey): boolean {
    return this.#placeOf(key) !== undefined;
  }

  /** No tier has the block. */
  delete(key: BlockKey): void {
    const place = this.#placeOf(key);
    if (place !== undefined) this.#hashes![place] = none;
  }

  #placeOf(key: BlockKey): number | undefined {
    if (this.#hashes === undefined) return undefined;
    const hash = hashOf(key);
    const begin = beginOf(hash);
    for (let place = begin; place < begin + bucketSize; place++) if (this.#hashes[place] === hash) return place;
    return undefined;
  }
}

const hashOf = (key: BlockKey): number => crc32(key) || none + 1;
const beginOf = (hash: number): number => (hash % bucketCount) * bucketSize;
