import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { smallEos, smallSource, smallVocabulary } from '../../test/support/grammar-vocabulary.ts';
import { fuzzRuns } from '../../test/support/long-form.ts';
import { isAllowed } from '../core/constraint.ts';
import type { TokenId } from '../core/ids.ts';
import { characters, choice, type Expression, repeat, rule, sequence, text, until } from './expression.ts';
import { Matcher } from './matcher.ts';
import { MatcherMemory } from './matcher-memory.ts';
import { buildNetwork } from './network.ts';
import { NetworkError } from './network-error.ts';
import { utf8Of } from './utf8.ts';

/**
 * Random grammars against a matcher that tries all ways to read a text. It does not cover grammars that begin with themselves
 * (they are refused) and texts of more than a few characters.
 */
type Rules = ReadonlyMap<string, Expression>;

/** All positions at which a match that starts at `start` can end. */
function ends(expression: Expression, bytes: Uint8Array, start: number, rules: Rules): Set<number> {
  switch (expression.kind) {
    case 'text': {
      const wanted = utf8Of(expression.text);
      return new Set(wanted.every((byte, i) => bytes[start + i] === byte) ? [start + wanted.length] : []);
    }
    case 'class': {
      const found = new Set<number>();
      for (let length = 1; length <= 4; length++) {
        const letters = [...new TextDecoder().decode(bytes.subarray(start, start + length))];
        const code = letters[0]?.codePointAt(0) ?? -1;
        const isWhole = letters.length === 1 && utf8Of(letters[0]!).length === length && start + length <= bytes.length;
        if (isWhole && expression.ranges.some(({ first, last }) => first <= code && code <= last))
          found.add(start + length);
      }
      return found;
    }
    case 'sequence': {
      let from = new Set([start]);
      for (const part of expression.parts) from = new Set([...from].flatMap((at) => [...ends(part, bytes, at, rules)]));
      return from;
    }
    case 'choice':
      return new Set(expression.options.flatMap((option) => [...ends(option, bytes, start, rules)]));
    case 'repeat': {
      const { part, min, max } = expression;
      let from = new Set([start]);
      const found = new Set(min === 0 ? [start] : []);
      for (let count = 1; count <= Math.min(max, min + bytes.length + 1) && from.size > 0; count++) {
        from = new Set([...from].flatMap((at) => [...ends(part, bytes, at, rules)]));
        if (count >= min) for (const at of from) found.add(at);
      }
      return found;
    }
    case 'rule':
      return ends(rules.get(expression.name)!, bytes, start, rules);
    case 'until': {
      const wanted = utf8Of(expression.end);
      for (let at = start; at + wanted.length <= bytes.length; at++) {
        if (wanted.every((byte, i) => bytes[at + i] === byte)) return new Set([at + wanted.length]);
      }
      return new Set();
    }
    case 'token':
    case 'automaton':
    case 'look':
      return new Set();
  }
}

const leaf: fc.Arbitrary<Expression> = fc.oneof(
  fc.constantFrom('a', 'b', 'ab', 'é', '').map(text),
  fc.constantFrom(characters('ac'), characters('b'), characters('aé')),
  fc.constantFrom('ab', 'aab', 'é').map(until),
);
const { expression } = fc.letrec<{ expression: Expression }>((tie) => ({
  expression: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    leaf,
    fc.array(tie('expression'), { maxLength: 3 }).map((parts) => sequence(...parts)),
    fc.array(tie('expression'), { minLength: 1, maxLength: 3 }).map((options) => choice(...options)),
    fc
      .tuple(tie('expression'), fc.nat(3), fc.constantFrom(0, 1, 2, 9, Infinity))
      .map(([part, min, more]) => repeat(part, min, min + more)),
    // A rule that contains itself, behind a letter.
    tie('expression').map((inside) => sequence(text('a'), repeat(rule('r'), 0, 1), inside)),
  ),
}));
const word = fc.array(fc.constantFrom('a', 'b', 'c', 'é'), { maxLength: 6 }).map((letters) => letters.join(''));

describe('the matcher', () => {
  it('accepts what a matcher that tries everything accepts, and its masks name the tokens that it accepts', async () => {
    const vocabulary = await smallVocabulary();
    fc.assert(
      fc.property(expression, expression, fc.array(word, { maxLength: 5 }), (root, inside, words) => {
        const rules = new Map([['r', sequence(text('b'), inside)]]);
        let matcher: Matcher;
        try {
          // Little memory: the caches are emptied again and again.
          matcher = new Matcher(buildNetwork({ root, rules }, new Map()), vocabulary, new MatcherMemory(20_000));
        } catch (error) {
          expect(error).toBeInstanceOf(NetworkError);
          return;
        }
        for (const sample of words) {
          const bytes = utf8Of(sample);
          let state: object | undefined = matcher.start;
          for (let i = 0; state !== undefined; i++) {
            const mask = matcher.allowedTokens(state, false);
            const isEnd = ends(root, bytes.subarray(0, i), 0, rules).has(i);
            expect(isAllowed(mask, smallEos)).toBe(isEnd);
            for (let token = 0; token < smallSource.vocabSize - 1; token++) {
              const isPossible = smallSource.tokenBytes(token).length > 0;
              const next = isPossible ? matcher.advance(state, token as TokenId) : undefined;
              expect(isAllowed(mask, token)).toBe(next !== undefined);
            }
            if (i === bytes.length) break;
            state = matcher.advance(state, bytes[i] as TokenId);
            if (state === undefined) expect(ends(root, bytes, 0, rules).has(bytes.length)).toBe(false);
          }
        }
      }),
      { numRuns: fuzzRuns(200) },
    );
  });
});
