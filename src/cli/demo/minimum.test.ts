import { expect, test } from 'vitest';
import type { BlockKey } from '../../connector/block-key.ts';
import { minimumOf } from './minimum.ts';

const key = (name: string): BlockKey => name as BlockKey;
const keys = (...names: string[]): BlockKey[] => names.map(key);
const lost = (...names: string[]): ReadonlySet<BlockKey> => new Set(keys(...names));

test('a hole costs its block, wherever it is', () => {
  const prompt = { tokenCount: 70, keys: keys('a', 'b', 'c', 'd') };
  expect(minimumOf([prompt], lost(), 16)).toBe(0);
  for (const name of ['a', 'b', 'd']) expect(minimumOf([prompt], lost(name), 16)).toBe(16);
  expect(minimumOf([prompt], lost('a', 'c', 'd'), 16)).toBe(48);
});

test('a block that two prompts share is computed once', () => {
  const one = { tokenCount: 40, keys: keys('a', 'b') };
  const two = { tokenCount: 50, keys: keys('a', 'b', 'c') };
  expect(minimumOf([one, two], lost('b'), 16)).toBe(16);
  expect(minimumOf([one, two], lost('b', 'c'), 16)).toBe(32);
});

test('the last token is computed anyway: its logits are wanted', () => {
  expect(minimumOf([{ tokenCount: 32, keys: keys('a', 'b') }], lost('b'), 16)).toBe(15);
});
