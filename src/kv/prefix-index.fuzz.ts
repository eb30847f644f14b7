import { expect, test } from 'vitest';
import { fuzzRuns } from '../../test/support/long-form.ts';
import { Prng } from '../base/prng.ts';
import { type BlockId, blockIndex, groupIndex, NULL_BLOCK } from '../core/ids.ts';
import { DIGEST_WORDS } from './block-hash.ts';
import { PrefixIndex } from './prefix-index.ts';

/**
 * The reference is a map from keys to blocks in the order of insertion. Many digests have equal first words on purpose.
 */
test('the prefix index returns the same blocks as a map of lists', () => {
  for (let seed = 1; seed <= fuzzRuns(20); seed++) {
    const prng = new Prng(seed);
    const blockCount = prng.between(2, 40);
    const keyCount = prng.between(1, 30);
    const words = new Uint32Array(keyCount * DIGEST_WORDS);
    for (let key = 0; key < keyCount; key++) {
      words[key * DIGEST_WORDS] = prng.between(0, 3);
      words[key * DIGEST_WORDS + prng.between(1, DIGEST_WORDS - 1)] = prng.uint32();
    }
    const index = new PrefixIndex(blockCount);
    const reference = new Map<string, BlockId[]>();
    const keyOfBlock = new Map<BlockId, string>();
    for (let i = 0; i < 1000; i++) {
      const block = prng.between(1, blockCount - 1) as BlockId;
      const key = blockIndex(prng.between(0, keyCount - 1));
      const group = groupIndex(prng.between(0, 2));
      const name = [group, ...words.subarray(key * DIGEST_WORDS, (key + 1) * DIGEST_WORDS)].join();
      expect(index.find(group, words, key), `seed ${seed}`).toBe(reference.get(name)?.[0] ?? NULL_BLOCK);
      const indexed = keyOfBlock.get(block);
      expect(index.has(block)).toBe(indexed !== undefined);
      if (indexed === undefined) {
        index.insert(block, group, words, key);
        reference.set(name, [...(reference.get(name) ?? []), block]);
        keyOfBlock.set(block, name);
      } else {
        expect(index.hasTwin(block)).toBe(reference.get(indexed)!.length > 1);
        expect(`${index.groupOf(block)},${index.digestOf(block).join()}`).toBe(indexed);
        index.remove(block);
        const rest = reference.get(indexed)!.filter((other) => other !== block);
        reference.set(indexed, rest);
        keyOfBlock.delete(block);
      }
      index.checkInvariants();
      expect(index.size).toBe(keyOfBlock.size);
    }
  }
});
