import { expect, test } from 'vitest';
import { Prng } from '../base/prng.ts';
import { type BlockId, NULL_BLOCK } from '../core/ids.ts';
import { DIGEST_WORDS } from './block-hash.ts';
import { PrefixIndex } from './prefix-index.ts';

/** Against a map from key to pages in order of insertion. Digests collide in their first word on purpose. */
test('agrees with a map of lists', () => {
  for (let seed = 1; seed <= 20; seed++) {
    const prng = new Prng(seed);
    const pageCount = prng.between(2, 40);
    const keyCount = prng.between(1, 30);
    const words = new Uint32Array(keyCount * DIGEST_WORDS);
    for (let key = 0; key < keyCount; key++) {
      words[key * DIGEST_WORDS] = prng.between(0, 3);
      words[key * DIGEST_WORDS + prng.between(1, DIGEST_WORDS - 1)] = prng.uint32();
    }
    const index = new PrefixIndex(pageCount);
    const twin = new Map<string, BlockId[]>();
    const keyOfPage = new Map<BlockId, string>();
    for (let i = 0; i < 1000; i++) {
      const page = prng.between(1, pageCount - 1) as BlockId;
      const key = prng.between(0, keyCount - 1);
      const group = prng.between(0, 2);
      const name = [group, ...words.subarray(key * DIGEST_WORDS, (key + 1) * DIGEST_WORDS)].join();
      expect(index.find(group, words, key), `seed ${seed}`).toBe(twin.get(name)?.[0] ?? NULL_BLOCK);
      const held = keyOfPage.get(page);
      expect(index.has(page)).toBe(held !== undefined);
      if (held === undefined) {
        index.insert(page, group, words, key);
        twin.set(name, [...(twin.get(name) ?? []), page]);
        keyOfPage.set(page, name);
      } else {
        index.remove(page);
        const rest = twin.get(held)!.filter((other) => other !== page);
        twin.set(held, rest);
        keyOfPage.delete(page);
      }
      index.checkInvariants();
      expect(index.size).toBe(keyOfPage.size);
    }
  }
});
