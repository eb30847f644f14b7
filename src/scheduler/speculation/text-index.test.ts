import { expect, test } from 'vitest';
import { Prng } from '../../base/prng.ts';
import type { TokenId } from '../../core/ids.ts';
import { TokenBuffer } from '../../core/tokens.ts';
import { copyFrom, MATCH_LENGTH_MAX, TextIndex } from './text-index.ts';

const indexOf = (tokens: number[], min: number, max: number) => new TextIndex(new TokenBuffer(tokens), min, max);

test('the longest match is found, and the draft continues it', () => {
  const text = [1, 2, 3, 4, 9, 7, 2, 3, 5, 1, 2, 3];
  const match = indexOf(text, 1, 5).find();
  expect(match).toEqual({ next: 3, length: 3 });
  expect([...copyFrom(Int32Array.from(text), match!.next, 2)]).toEqual([4, 9]);
});

test('of equally long matches the latest is taken', () => {
  expect(indexOf([1, 2, 8, 1, 2, 9, 1, 2], 2, 2).find()).toEqual({ next: 5, length: 2 });
});

test('there is no match if the last tokens are new, or if there are too few tokens', () => {
  expect(indexOf([1, 2, 3, 1, 4, 3], 2, 5).find()).toBeUndefined();
  expect(indexOf([1, 1], 2, 5).find()).toBeUndefined();
});

test('a draft continues after the end of the text with its own tokens', () => {
  const text = [5, 1, 2, 1, 2];
  const match = indexOf(text, 2, 2).find()!;
  expect([...copyFrom(Int32Array.from(text), match.next, 5)]).toEqual([1, 2, 1, 2, 1]);
});

test('matches of growing random texts equal those of a search through the whole text', () => {
  for (let seed = 1; seed <= 20; seed++) {
    const prng = new Prng(seed);
    const [min, max] = [prng.between(1, 3), prng.between(3, 6)];
    const tokens = new TokenBuffer([0]);
    const index = new TextIndex(tokens, min, max);
    for (let i = 0; i < 2500; i++) {
      // Few values, so that there are matches, but no more candidates than the index compares.
      tokens.push(prng.between(0, min === 1 ? 500 : 30) as TokenId);
      if (prng.chance(0.2)) expect(index.find()).toEqual(searchAll([...tokens.view()], min, max));
    }
  }
});

/** The definition: the longest match of at most `max` tokens, the latest of these. */
function searchAll(text: number[], min: number, max: number) {
  const last = text.length - 1;
  const lengthAt = (end: number, limit: number): number => {
    let length = 0;
    while (length < limit && length <= end && text[end - length] === text[last - length]) length++;
    return length;
  };
  let best: { end: number; length: number } | undefined;
  for (let end = last - 1; end >= min - 1; end--) {
    const length = lengthAt(end, max);
    if (length >= min && length > (best?.length ?? 0)) best = { end, length };
  }
  return best && { next: best.end + 1, length: lengthAt(best.end, MATCH_LENGTH_MAX) };
}
