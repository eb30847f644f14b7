/**
 * Random requests that write texts, search and end. The reference searches through all texts that a request may see. Not covered: long
 * prompts that are written in several steps, and generations as large as those of an engine.
 */
import { expect, test } from 'vitest';
import { fuzzRuns } from '../../../test/support/long-form.ts';
import { Prng } from '../../base/prng.ts';
import type { TokenId } from '../../core/ids.ts';
import { TokenBuffer } from '../../core/tokens.ts';
import type { SuffixOptions } from './options.ts';
import { ResponseCache } from './response-cache.ts';
import { SuffixFinder } from './suffix-finder.ts';

interface Output {
  readonly salt: string | undefined;
  readonly tokens: number[];
}

/** What the cache should have: the same two generations, as lists. */
class NaiveCache {
  readonly #responsesMax: number;
  readonly #tokensMax: number;
  generations: Output[][] = [[], []];

  constructor(responsesMax: number, tokensMax: number) {
    this.#responsesMax = responsesMax;
    this.#tokensMax = tokensMax;
  }

  add(output: Output): void {
    if (output.tokens.length < 2 || sizeOf([output]) > this.#tokensMax) return;
    const [younger] = this.generations;
    const isFull = younger!.length === Math.max(Math.floor(this.#responsesMax / 2), 1);
    if (isFull || sizeOf([...younger!, output]) > this.#tokensMax)
      this.generations = [[], this.#responsesMax === 1 ? [] : younger!];
    this.generations[0]!.push(output);
  }
}

/** Tokens, one more for each end, and the characters of the salts. */
const sizeOf = (outputs: readonly Output[]): number =>
  outputs.reduce((sum, { tokens }) => sum + tokens.length + 1, 0) +
  [...new Set(outputs.map(({ salt = '' }) => salt))].join('').length;

const matches = (text: readonly number[], at: number, string: readonly number[]): boolean =>
  string.every((token, i) => text[at + i] === token);

/** How often each token followed the string, the latest last. */
function followers(texts: readonly (readonly number[])[], string: readonly number[]): Map<number, number> {
  const counts = new Map<number, number>();
  for (const text of texts)
    for (let at = 0; at + string.length < text.length; at++) {
      if (!matches(text, at, string)) continue;
      const token = text[at + string.length]!;
      const count = (counts.get(token) ?? 0) + 1;
      counts.delete(token);
      counts.set(token, count);
    }
  return counts;
}

function naiveContinuation(texts: readonly (readonly number[])[], isOwn: boolean, length: number, text: number[]) {
  const start = text.slice(text.length - length);
  return (countMax: number, shareMin: number) => {
    const tokens: number[] = [];
    const shares: number[] = [];
    let product = 1;
    let isWrapped = false;
    while (tokens.length < countMax) {
      const counts = isWrapped ? new Map<number, number>() : followers(texts, [...start, ...tokens]);
      const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
      if (total === 0) {
        // The occurrence is the end of the own text, which continues with the drafts.
        if (!isOwn || tokens.length === 0) break;
        isWrapped = true;
      }
      const [token, count] =
        total > 0
          ? [...counts].reduce((best, next) => (next[1] >= best[1] ? next : best))
          : [[...text, ...tokens][text.length - repeatLength(text, start, tokens) + tokens.length]!, 1];
      product *= total > 0 ? count / total : 1;
      if (product < shareMin) break;
      tokens.push(token);
      shares.push(total > 0 ? count / total : 1);
    }
    return { tokens, shares };
  };
}

/** The distance from the occurrence that reaches the end of the text to that end. */
function repeatLength(text: number[], start: number[], tokens: number[]): number {
  for (let at = 0; at < text.length - start.length; at++)
    if (matches([...text, ...tokens], at, [...start, ...tokens])) return text.length - start.length - at;
  throw new Error('the string occurs nowhere');
}

function naiveFind(text: number[], salt: string | undefined, cache: NaiveCache, options: SuffixOptions) {
  const { suffixDecodingMaxTreeDepth: depth, suffixDecodingMaxSpecFactor: factor } = options;
  const cached = cache.generations.map((outputs) =>
    outputs.filter((output) => output.salt === salt).map(({ tokens }) => tokens),
  );
  let best = { length: 0, texts: [text], isOwn: true };
  for (const texts of [[text], ...cached]) {
    const isOwn = texts[0] === text;
    for (let length = Math.min(depth - 1, text.length); length > best.length; length--) {
      const string = text.slice(text.length - length);
      const occurs = texts.some((other) =>
        other.some((_, at) => matches(other, at, string) && !(isOwn && at + length === text.length)),
      );
      if (occurs) best = { length, texts, isOwn };
    }
  }
  const draftsOf = (used: number): number =>
    Math.max(Math.min(options.numSpeculativeTokens, Math.floor(factor * used + 1e-6), depth - used), 0);
  let used = best.length;
  for (let other = best.length - 1; other > 0; other--) if (draftsOf(other) > draftsOf(used)) used = other;
  for (; used > 0; used--) {
    if (draftsOf(used) === 0) continue;
    if (followers(best.texts, text.slice(text.length - used)).size === 0) continue;
    const find = naiveContinuation(best.texts, best.isOwn, used, text);
    const found = find(draftsOf(used), options.suffixDecodingMinTokenProb);
    return found.tokens.length === 0 ? undefined : { length: used, ...found };
  }
  return undefined;
}

test('continuations equal those of a search through all texts', () => {
  let found = 0;
  let cached = 0;
  for (let seed = 1; seed <= fuzzRuns(150); seed++) {
    const prng = new Prng(seed);
    const depth = prng.between(1, 12);
    const options: SuffixOptions = {
      method: 'suffix',
      numSpeculativeTokens: prng.between(1, 12),
      suffixDecodingMaxTreeDepth: depth,
      suffixDecodingMaxCachedRequests: prng.between(1, 6),
      suffixDecodingMaxSpecFactor: prng.pick([0.4, 1, 1, 3]),
      suffixDecodingMinTokenProb: prng.pick([0, 0.1, 0.5]),
    };
    const tokensMax = prng.pick([40, 100, 1000]);
    const cache = new ResponseCache(depth, options.suffixDecodingMaxCachedRequests, tokensMax);
    const naive = new NaiveCache(options.suffixDecodingMaxCachedRequests, tokensMax);
    const vocab = prng.pick([2, 3, 8]);
    const begin = () => {
      const prompt = Array.from({ length: prng.between(1, 10) }, () => prng.between(0, vocab - 1));
      const salt = prng.pick([undefined, '', 'a']);
      const tokens = new TokenBuffer(prompt, 1);
      return { salt, prompt: prompt.length, tokens, finder: new SuffixFinder(tokens, options, salt, cache) };
    };
    const requests = [begin(), begin(), begin()];
    for (let event = 0; event < 300; event++) {
      const index = prng.between(0, 2);
      const { salt, prompt, tokens, finder } = requests[index]!;
      const text = [...tokens.view()];
      const expected = naiveFind(text, salt, naive, options);
      if (prng.chance(0.6)) {
        const actual = finder.find();
        const plain = actual && { ...actual, tokens: [...actual.tokens], shares: [...actual.shares] };
        expect(plain, `seed ${seed}, event ${event}`).toEqual(expected);
        if (actual !== undefined) found++;
      }
      // Texts repeat.
      const again = expected !== undefined && prng.chance(0.6) ? expected.tokens : [prng.between(0, vocab - 1)];
      for (const token of again) tokens.push(token as TokenId);
      if (!prng.chance(0.05)) continue;
      const output = tokens.view(prompt);
      if (output.length < tokensMax) {
        cache.add(salt, output);
        naive.add({ salt, tokens: [...output] });
        cached++;
      }
      cache.checkInvariants();
      requests[index] = begin();
    }
  }
  expect(found).toBeGreaterThan(1000);
  expect(cached).toBeGreaterThan(100);
});
