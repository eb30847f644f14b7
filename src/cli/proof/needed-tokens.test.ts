import { describe, expect, test } from 'vitest';
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

describe('with a full group and a window of 20 tokens, blocks of 16', () => {
  const windows = [Number.POSITIVE_INFINITY, 20];
  const blocks = (...indices: number[]) => indices.map((index) => `0-${index}`);
  const prompt = { tokenCount: 100, keys: blocks(0, 1, 2, 3, 4, 5), outputTokens: 1 };
  const minimum = (full: number[], window: number[]): number =>
    neededTokens([prompt], new Set([...blocks(...full), ...window.map((index) => `1-${index}`)]), 16, windows);

  test('only the last window is read', () => {
    expect(minimum([0, 1, 2, 3, 4, 5], [4, 5])).toBe(4);
  });

  test('a lost window block costs its tokens and the window in front of them', () => {
    // Tokens 80 to 95 read tokens 61 to 79, whose blocks are there.
    expect(minimum([0, 1, 2, 3, 4, 5], [3, 4])).toBe(4 + 16);
    // Tokens 64 to 79 are not there, and they read tokens 45 to 63, and so on.
    expect(minimum([0, 1, 2, 3, 4, 5], [])).toBe(100);
  });

  test('a lost full block costs its tokens and the window in front of them', () => {
    expect(minimum([0, 1, 3, 4, 5], [0, 1, 4, 5])).toBe(4 + 16);
    expect(minimum([0, 1, 3, 4, 5], [4, 5])).toBe(4 + 48);
  });

  test('the window of an earlier request is used', () => {
    const earlier = { ...prompt, tokenCount: 96 };
    expect(neededTokens([earlier, prompt], new Set(), 16, windows)).toBe(96 + 4);
  });
});
