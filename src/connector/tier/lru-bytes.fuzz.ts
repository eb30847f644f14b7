import { expect, test } from 'vitest';
import { Prng } from '../../base/prng.ts';
import { LruBytes } from './lru-bytes.ts';

/** Against a list in order of use. */
test('agrees with a list', () => {
  for (let seed = 1; seed <= 30; seed++) {
    const prng = new Prng(seed);
    const lru = new LruBytes<number>();
    let twin: { name: number; bytes: number }[] = [];
    for (let i = 0; i < 300; i++) {
      const name = prng.between(0, 9);
      const known = twin.find((entry) => entry.name === name);
      const others = twin.filter((entry) => entry.name !== name);
      if (prng.chance(0.4)) {
        const bytes = prng.between(0, 100);
        lru.set(name, bytes);
        twin = [...others, { name, bytes }];
      } else if (prng.chance(0.5)) {
        expect(lru.touch(name), `seed ${seed}`).toBe(known !== undefined);
        if (known !== undefined) twin = [...others, known];
      } else {
        expect(lru.delete(name), `seed ${seed}`).toBe(known !== undefined);
        twin = others;
      }
      lru.checkInvariants();
      expect([...lru.names()], `seed ${seed}`).toEqual(twin.map((entry) => entry.name));
      expect(lru.totalBytes).toBe(twin.reduce((sum, { bytes }) => sum + bytes, 0));
      expect(lru.count).toBe(twin.length);
    }
  }
});
