import { expect, test } from 'vitest';
import { Prng } from '../../../base/prng.ts';
import type { BlockKey } from '../../block-key.ts';
import { saltTagOf } from '../../salt-tag.ts';
import { SaltBytes } from '../salt-bytes.ts';
import { suiteKey } from '../tier.suite.ts';
import { DiskBound, type Reservation } from './disk-bound.ts';

/**
 * The reference is a folder: what its files would be if each thread first removed the victims and then wrote the block. The fuzz
 * does not cover threads that stop between the two, and files of other processes.
 */
test('the files of a folder, and of a cache salt, never have more bytes than their bounds, with any order of stores, loads and failures', () => {
  const keys = Array.from({ length: 12 }, (_, i) => suiteKey(i));
  const tags = ['a', 'b', undefined].map(saltTagOf);
  for (let seed = 1; seed <= 30; seed++) {
    const prng = new Prng(seed);
    // All blocks of a folder have the same size.
    const bytes = prng.between(1, 100);
    const maxBytes = prng.between(bytes, 10 * bytes);
    const quotaBytes = prng.chance(0.3) ? Number.POSITIVE_INFINITY : prng.between(bytes, 6 * bytes);
    const bound = new DiskBound(maxBytes, { salts: new SaltBytes(quotaBytes) });
    const tagOf = (key: BlockKey) => tags[keys.indexOf(key) % 3];
    const files = new Map<BlockKey, number>();
    const open: Reservation[] = [];
    const bytesOnDisk = (): number => [...files.values()].reduce((sum, bytes) => sum + bytes, 0);
    const evicted: BlockKey[] = [];
    const begin = (key: BlockKey): void => {
      if (open.some((other) => other.key === key)) return;
      const reservation = bound.reserve(key, bytes, { isFull: prng.chance(0.1), saltTag: tagOf(key) });
      if (reservation === undefined) return;
      for (const victim of reservation.victims) {
        expect(victim, `seed ${seed}`).not.toBe(key);
        expect(open.some((other) => other.key === victim)).toBe(false);
      }
      open.push(reservation);
    };
    const finish = (): void => {
      if (open.length === 0) return;
      const reservation = prng.pick(open);
      open.splice(open.indexOf(reservation), 1);
      const { key, victims, isNew } = reservation;
      const remove = (): void => {
        for (const victim of victims) {
          // A known block may have lost its file while it was being stored.
          files.delete(victim);
          evicted.push(victim);
        }
      };
      if (!isNew && files.has(key)) {
        bound.alreadyStored(reservation);
      } else if (prng.chance(0.6)) {
        remove();
        files.set(key, bytes);
        bound.stored(reservation);
      } else if (prng.chance(0.5)) {
        remove();
        bound.diskFull(reservation);
      } else {
        bound.failed(reservation);
      }
    };
    const load = (key: BlockKey): void => {
      if (files.has(key)) bound.used(key, bytes, tagOf(key));
      else bound.gone(key, bound.stampOf(key));
    };
    for (let i = 0; i < 300; i++) {
      const key = prng.pick(keys);
      const what = prng.unit();
      if (what < 0.45) begin(key);
      else if (what < 0.8) finish();
      else if (what < 0.95) load(key);
      else if (files.delete(key)) bound.gone(key, bound.stampOf(key));
      bound.checkInvariants();
      expect(bytesOnDisk(), `seed ${seed}, event ${i}`).toBeLessThanOrEqual(maxBytes);
      expect(bound.totalBytes).toBeGreaterThanOrEqual(bytesOnDisk());
      for (const tag of tags.slice(0, 2)) {
        const ofSalt = [...files.keys()].filter((file) => tagOf(file) === tag).length * bytes;
        if (ofSalt > quotaBytes) expect.fail(`seed ${seed}, event ${i}: ${ofSalt} bytes of a salt`);
      }
      if (bound.overQuota().length > 0) expect.fail(`seed ${seed}, event ${i}: over the quota`);
      for (const file of files.keys()) expect(bound.has(file), `seed ${seed}: ${file}`).toBe(true);
    }
    while (open.length > 0) finish();
    bound.checkInvariants();
    expect(new Set(bound.takeEvicted()).size).toBeLessThanOrEqual(new Set(evicted).size);
    expect(bound.takeEvicted()).toEqual([]);
  }
});
