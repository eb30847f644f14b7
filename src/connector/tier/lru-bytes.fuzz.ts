import { expect, test } from 'vitest';
import { Prng } from '../../base/prng.ts';
import { LruBytes } from './lru-bytes.ts';

/** The reference is a list in the order of use. It does not cover `checkInvariants` after a bug. */
test('LruBytes equals a list in the order of use', () => {
  for (let seed = 1; seed <= 30; seed++) {
    const prng = new Prng(seed);
    const lru = new LruBytes<number>();
    let reference: { name: number; bytes: number }[] = [];
    for (let i = 0; i < 300; i++) {
      const name = prng.between(0, 9);
      const known = reference.find((entry) => entry.name === name);
      const others = reference.filter((entry) => entry.name !== name);
      if (prng.chance(0.4)) {
        const bytes = prng.between(0, 100);
        lru.set(name, bytes);
        reference = [...others, { name, bytes }];
      } else if (prng.chance(0.5)) {
        expect(lru.touch(name), `seed ${seed}`).toBe(known !== undefined);
        if (known !== undefined) reference = [...others, known];
      } else {
        expect(lru.delete(name), `seed ${seed}`).toBe(known !== undefined);
        reference = others;
      }
      lru.checkInvariants();
      expect(lru.bytesOf(name), `seed ${seed}`).toBe(reference.find((entry) => entry.name === name)?.bytes);
      expect([...lru.names()], `seed ${seed}`).toEqual(reference.map((entry) => entry.name));
      expect(lru.totalBytes).toBe(reference.reduce((sum, { bytes }) => sum + bytes, 0));
      expect(lru.count).toBe(reference.length);
    }
  }
});
