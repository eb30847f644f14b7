import fc from 'fast-check';
import { expect, it } from 'vitest';
import { fuzzRuns } from '../../test/support/long-form.ts';
import { isAllowed } from '../core/constraint.ts';
import type { TokenId } from '../core/ids.ts';
import { Matcher, MatcherMemory } from './matcher.ts';
import { buildNetwork } from './network.ts';
import { structuredGrammar } from './structured-grammar.ts';
import { utf8Of } from './utf8.ts';
import { readVocabulary } from './vocabulary.ts';

/**
 * Masks of a large vocabulary, in which whole subtrees are allowed at once, against each token byte by byte. Tokens begin and end inside of
 * characters, and some are no UTF-8.
 */
const eos = 3000;
const letters = [...'aZ09 "\\{}:\n', 'é', 'я', '漢', '字', '語', '🐦', '🐧', '\u{10ffff}', '\uffff'];
const tokens = fc.sample(
  fc
    .tuple(fc.array(fc.constantFrom(...letters), { minLength: 1, maxLength: 5 }), fc.nat(3), fc.nat(3), fc.nat(255))
    .map(([word, from, to, other]) => {
      const bytes = utf8Of(word.join(''));
      const part = bytes.slice(Math.min(from, bytes.length - 1), Math.max(bytes.length - to, from + 1));
      return from === 3 ? Uint8Array.of(...part, other) : part;
    }),
  { numRuns: eos - 256, seed: 5 },
);
const bytesOf = (id: number): Uint8Array => (id < 256 ? Uint8Array.of(id) : (tokens[id - 256] ?? new Uint8Array()));

const pattern = fc.constantFrom(
  '.*',
  '^[^a]*$',
  '^\\w*$',
  '^[\\u0400-\\uffff]+$',
  '^[^漢"]*$',
  '^.{2,4}$',
  '^[^\\u{10000}-\\u{10ffff}]*$',
);
const outputs = fc.oneof(
  fc.constantFrom({ json: '{"type":"string"}' }, { json: '{"type":"object"}' }, { jsonObject: true as const }),
  pattern.map((regex) => ({ json: JSON.stringify({ type: 'string', pattern: regex }) })),
  pattern.map((regex) => ({ regex })),
  fc.record({ minLength: fc.nat(3), maxLength: fc.integer({ min: 3, max: 40 }) }).map((lengths) => ({
    json: JSON.stringify({ type: 'string', ...lengths }),
  })),
);

it('masks have the tokens whose bytes are allowed one by one', async () => {
  const vocabulary = await readVocabulary({
    vocabSize: eos + 1,
    tokenBytesMax: 24,
    eosTokenIds: [eos],
    tokenBytes: bytesOf,
    isControl: (id) => id === eos,
  });
  fc.assert(
    fc.property(outputs, fc.array(fc.constantFrom(...letters), { maxLength: 6 }), fc.nat(3), (structure, word, cut) => {
      const network = buildNetwork(structuredGrammar(structure), vocabulary.controlTokens);
      const matcher = new Matcher(network, vocabulary, new MatcherMemory(2 ** 24));
      const start = [...('json' in structure ? utf8Of('"') : []), ...utf8Of(word.join(''))];
      const walk = (state: object | undefined, bytes: Iterable<number>): object | undefined => {
        let at = state;
        for (const byte of bytes) at = at && matcher.advance(at, byte as TokenId);
        return at;
      };
      const state = walk(matcher.start, start.slice(0, start.length - cut));
      if (state === undefined) return;
      const mask = matcher.allowedTokens(state, false);
      const wrong = Array.from({ length: eos }, (_, id) => id).filter(
        (id) => isAllowed(mask, id) !== (bytesOf(id).length > 0 && walk(state, bytesOf(id)) !== undefined),
      );
      expect(wrong.map((id) => [...bytesOf(id)])).toEqual([]);
    }),
    { numRuns: fuzzRuns(60) },
  );
});
