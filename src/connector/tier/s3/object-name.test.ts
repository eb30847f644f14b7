import { expect, it } from 'vitest';
import { suiteIdentity, suiteKey } from '../tier.suite.ts';
import {
  blocksPerName,
  folderOf,
  objectNameOf,
  parseObjectName,
  shortKeyAt,
  shortKeyOf,
  timeText,
} from './object-name.ts';

const keys = (count: number) => Array.from({ length: count }, (_, i) => shortKeyOf(suiteKey(i)));

it.each([1, 5, 19, 20, 64])('the name of an object with %i blocks lists them in order', (count) => {
  const name = objectNameOf(1_763_771_703_123, 'AbC-_123', keys(count));
  expect(name.split('/').every((part) => part.length > 0 && part.length <= 240)).toBe(true);
  const parsed = parseObjectName(name);
  expect(parsed?.writtenAtMs).toBe(1_763_771_703_123);
  expect(Array.from({ length: count }, (_, slot) => shortKeyAt(parsed!.shortKeys, slot))).toEqual(keys(count));
});

it('names are in the order of their times', () => {
  const times = [0, 1, 999, 1_763_771_703_123, 1_763_771_703_124, 2 ** 41];
  const names = times.map((time) => objectNameOf(time, '--------', keys(1)));
  expect(names.toSorted((a, b) => (a < b ? -1 : 1))).toEqual(names);
  for (const [i, time] of times.entries()) {
    expect(names.filter((name) => name >= timeText(time))).toEqual(names.slice(i));
  }
});

it('blocks of one digest in two groups have different short keys', () => {
  const groups = [0, 1, 2, 255, 256, 65_535].map((group) => shortKeyOf(suiteKey('a', group)));
  expect(new Set(groups).size).toBe(6);
  for (const key of groups) expect(key).toMatch(/^[\w-]{12}$/);
});

it.each([0, 10, 100, 300, 700, 880, 900, 1000, 2000])(
  'names fit into 1024 bytes with a prefix of %i characters',
  (length) => {
    const folder = folderOf('p'.repeat(length), suiteIdentity);
    const count = blocksPerName(folder);
    expect(count).toBeLessThanOrEqual(64);
    if (length <= 100) expect(count).toBe(64);
    if (length >= 1000) expect(count).toBe(0);
    if (count > 0)
      expect((folder + objectNameOf(Date.now(), '--------', keys(count))).length).toBeLessThanOrEqual(1024);
  },
);

it.each([
  ['', 'kv-'],
  ['a/b', 'a/b/kv-'],
  ['/a/', 'a/kv-'],
])('the folder of prefix `%s` begins with `%s`', (prefix, begin) => {
  expect(folderOf(prefix, suiteIdentity)).toMatch(new RegExp(`^${begin}[0-9a-f]{32}/rank0of1/$`));
});

it.each([
  '',
  'config.json',
  '00000000000g-aaaaaaaa-bbbbbbbbbbbb',
  '000000000000-aaaaaaaa-',
  '000000000000-aaaaaaaa-bbbbbbbbbbb',
  '000000000000-aaaaaaaa-bbbbbbbbbbbb.tmp',
])('`%s` is not the name of an object with blocks', (name) => {
  expect(parseObjectName(name)).toBeUndefined();
});
