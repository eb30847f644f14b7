import { describe, expect, test } from 'vitest';
import { fullAttention, neededTokens, type ReferenceGroup } from './needed-tokens.ts';

describe('with full attention and blocks of 16', () => {
  const request = (tokenCount: number, keys: string, outputTokens = 1) => ({ tokenCount, keys, outputTokens });
  const needed = (available: string, ...requests: ReturnType<typeof request>[]) =>
    neededTokens(
      requests.map(({ keys, ...sizes }) => ({ ...sizes, keys: [[...keys]], available: new Set(available) })),
      fullAttention(16),
    );

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
});

/** A prompt of 100 tokens; `available`: the indices of the available blocks in each group. */
function promptOf(groups: readonly ReferenceGroup[], available: readonly (readonly number[])[], tokenCount = 100) {
  const keys = groups.map(({ blockSize }, group) =>
    Array.from({ length: Math.floor(tokenCount / blockSize) }, (_, index) => `${group}-${index}`),
  );
  const there = available.flatMap((indices, group) => indices.map((index) => `${group}-${index}`));
  return { tokenCount, keys, outputTokens: 1, available: new Set(there) };
}

describe('with a full group and a window of 20 tokens, blocks of 16', () => {
  const groups: readonly ReferenceGroup[] = [
    { kind: 'full', blockSize: 16 },
    { kind: 'window', window: 20, blockSize: 16 },
  ];
  const minimum = (...available: number[][]): number => neededTokens([promptOf(groups, available)], groups);

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
    const earlier = promptOf(groups, [], 96);
    expect(neededTokens([earlier, promptOf(groups, [])], groups)).toBe(96 + 4);
  });
});

describe('with a full group with blocks of 16, and states with checkpoints every 32 tokens', () => {
  const groups: readonly ReferenceGroup[] = [
    { kind: 'full', blockSize: 16 },
    { kind: 'state', blockSize: 32 },
  ];
  const minimum = (...available: number[][]): number => neededTokens([promptOf(groups, available)], groups);

  test('only the last checkpoint is read', () => {
    expect(minimum([0, 1, 2, 3, 4, 5], [2])).toBe(4);
  });

  test('without the last checkpoint, tokens are computed from the checkpoint before', () => {
    expect(minimum([0, 1, 2, 3, 4, 5], [0, 1])).toBe(4 + 32);
    expect(minimum([0, 1, 2, 3, 4, 5], [0])).toBe(4 + 64);
    expect(minimum([0, 1, 2, 3, 4, 5], [])).toBe(100);
  });

  test('a lost full block needs the state before it', () => {
    // Block 2 begins after a checkpoint, block 3 in the middle between two.
    expect(minimum([0, 1, 3, 4, 5], [0, 1, 2])).toBe(4 + 16);
    expect(minimum([0, 1, 2, 4, 5], [0, 1, 2])).toBe(4 + 32);
    expect(minimum([0, 1, 2, 4, 5], [2])).toBe(4 + 64);
  });

  test('the checkpoints of an earlier request are used', () => {
    expect(neededTokens([promptOf(groups, [], 70), promptOf(groups, [])], groups)).toBe(70 + 36);
  });
});

test('a request uses the blocks that were available to it, and those that earlier requests have computed', () => {
  const groups = fullAttention(16);
  const [none, all] = [promptOf(groups, []), promptOf(groups, [[0, 1, 2, 3, 4, 5]])];
  expect(neededTokens([all, none], groups)).toBe(4 + 100);
  expect(neededTokens([none, none], groups)).toBe(100 + 4);
});
