import { expect, it } from 'vitest';
import { fuzzRuns } from '../../../../test/support/long-form.ts';
import { Prng } from '../../../base/prng.ts';
import type { BlockKey } from '../../block-key.ts';
import { suiteKey } from '../tier.suite.ts';
import { ObjectIndex } from './object-index.ts';
import { objectNameOf, shortKeyOf } from './object-name.ts';

interface Listed {
  readonly name: string;
  readonly keys: readonly BlockKey[];
  /** Without corrupt blocks. */
  readonly found: Set<BlockKey>;
}

/** The naive reference: a list of objects. It does not cover removals while a listing runs. */
it('the index finds each block in the newest object that has it', () => {
  for (let seed = 1; seed <= fuzzRuns(40); seed++) {
    const prng = new Prng(seed);
    const keys = Array.from({ length: 30 }, (_, i) => suiteKey(i, i % 3));
    const index = new ObjectIndex();
    let reference: Listed[] = [];
    let serial = 1;
    for (let step = 0; step < 150; step++) {
      const action = prng.between(0, 5);
      if (action <= 1) {
        const blocks = [...new Set(Array.from({ length: prng.between(1, 8) }, () => prng.pick(keys)))];
        const name = objectNameOf(prng.between(0, 999), `${seed}-${step}`.padEnd(8, '-'), blocks.map(shortKeyOf));
        index.add(name, blocks.length, serial, blocks);
        reference.push({ name, keys: blocks, found: new Set(blocks) });
      } else if (action === 2 && reference.length > 0) {
        // A listing has a known object again.
        const { name, keys: blocks } = prng.pick(reference);
        index.add(name, blocks.length, serial);
      } else if (action === 3) {
        const key = prng.pick(keys);
        const place = index.find(key);
        if (place !== undefined) {
          index.removeBlock(place);
          // Older copies are not found either until the next restart.
          for (const listed of reference) listed.found.delete(key);
        }
      } else if (action === 4 && reference.length > 0) {
        const gone = prng.pick(reference);
        const object = index.find(gone.keys[0]!)?.object;
        if (object?.name === gone.name) {
          index.removeObject(object);
          for (const key of gone.keys) if (newest(reference, key) === gone.name) forget(reference, key);
          reference = reference.filter((listed) => listed !== gone);
        }
      } else if (action === 5) {
        serial++;
        const seen = reference.filter(() => prng.chance(0.75));
        for (const { name, keys: blocks } of seen) index.add(name, blocks.length, serial);
        const gone = reference.filter((listed) => !seen.includes(listed));
        index.removeUnseen(serial);
        const lost = keys.filter((key) => gone.some(({ name }) => newest(reference, key) === name));
        for (const key of lost) forget(reference, key);
        reference = seen;
      }
      index.checkInvariants();
      for (const key of keys)
        expect(index.find(key)?.object.name, `seed ${seed} step ${step}`).toBe(newest(reference, key));
      expect(index.objectCount).toBe(reference.length);
      expect(index.totalBytes).toBe(reference.reduce((sum, listed) => sum + listed.keys.length, 0));
    }
  }
});

/** The index does not look for older copies of a removed block. */
function forget(reference: readonly Listed[], key: BlockKey): void {
  for (const listed of reference) listed.found.delete(key);
}

const newest = (reference: readonly Listed[], key: BlockKey): string | undefined =>
  reference
    .filter(({ found }) => found.has(key))
    .map(({ name }) => name)
    .toSorted((a, b) => (a < b ? -1 : 1))
    .at(-1);

it('an object that is removed while a listing runs does not come back from an older page', () => {
  const index = new ObjectIndex();
  const key = suiteKey('a');
  const name = objectNameOf(1, 'aaaaaaaa', [shortKeyOf(key)]);
  index.add(name, 1, 1);
  index.beginListing();
  index.removeObject(index.find(key)!.object);
  index.addListed(name, 1, 1);
  expect(index.find(key)).toBeUndefined();
  index.endListing();
  index.beginListing();
  index.addListed(name, 1, 1);
  expect(index.find(key)).toBeDefined();
});

it('an index with as many blocks as it may have forgets the objects that were not used for the longest time', () => {
  const index = new ObjectIndex(13);
  const names = Array.from({ length: 6 }, (_, i) =>
    objectNameOf(i, 'aaaaaaaa', [suiteKey(`${i} a`), suiteKey(`${i} b`), suiteKey(`${i} c`)].map(shortKeyOf)),
  );
  index.beginListing();
  for (const name of names.slice(0, 3)) index.addListed(name, 3, 1);
  index.touch(index.find(suiteKey('0 a'))!.object);
  for (const name of names.slice(3)) index.addListed(name, 3, 1);
  index.endListing();
  index.checkInvariants();
  expect([0, 1, 2, 3, 4, 5].filter((i) => index.has(suiteKey(`${i} b`)))).toEqual([0, 3, 4, 5]);
  // The next listing finds them again, and ends with the newest objects.
  for (const name of names) index.addListed(name, 3, 2);
  index.checkInvariants();
  expect(index.blockCount).toBe(12);
});
