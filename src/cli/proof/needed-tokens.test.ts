import { expect, test } from 'vitest';
import { neededTokens } from './needed-tokens.ts';

const request = (tokenCount: number, keys: string, outputTokens = 1) => ({ tokenCount, keys: [...keys], outputTokens });
const needed = (available: string, ...requests: ReturnType<typeof request>[]) =>
  neededTokens(requests, new Set(available), 16);

test('without stored blocks the whole prompt is computed, and every generated token but the last', () => {
  expect(needed('', request(70, 'abcd'))).toBe(70);
  expect(needed('', request(70, 'abcd', 10))).toBe(79);
  expect(needed('', request(70, 'abcd', 0))).toBe(70);
});

test('a hole needs the tokens of its block, at any position', () => {
  const prompt = request(70, 'abcd');
  expect(needed('abcd', prompt)).toBe(6);
  for (const available of ['bcd', 'acd', 'abc']) expect(needed(available, prompt)).toBe(6 + 16);
  expect(needed('b', prompt)).toBe(6 + 48);
});

test('a block that two prompts share is computed once', () => {
  const [one, two] = [request(40, 'ab'), request(50, 'abc')];
  expect(needed('ac', one, two)).toBe(16 + 8 + 2);
  expect(needed('a', one, two)).toBe(32 + 8 + 2);
});

test('the last token is always computed, because its logits are needed', () => {
  expect(needed('ab', request(32, 'ab'))).toBe(1);
  expect(needed('a', request(32, 'ab'))).toBe(16);
  expect(needed('a', request(32, 'ab'), request(32, 'ab'))).toBe(17);
});
