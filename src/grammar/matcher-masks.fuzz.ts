import fc from 'fast-check';
import { expect, it } from 'vitest';
import { fuzzRuns } from '../../test/support/long-form.ts';
import { isAllowed } from '../core/constraint.ts';
import type { TokenId } from '../core/ids.ts';
import { Matcher } from './matcher.ts';
import { MatcherMemory } from './matcher-memory.ts';
import { buildNetwork } from './network.ts';
import { structuredGrammar } from './structured-grammar.ts';
import { utf8Of } from './utf8.ts';
import { readVocabulary } from './vocabulary.ts';

/**
 * Masks of random vocabularies, in which all plain tokens up to a length and whole subtrees are allowed at once, against each token byte by
 * byte. Tokens begin and end inside of characters, and some are no UTF-8. It does not cover control tokens.
 */
const letters = [...'aZ09 "\\{}<:\n', 'é', 'я', '漢', '字', '語', '🐦', '🐧', '\u{10ffff}', '\uffff'];
const shortToken = fc
  .tuple(fc.array(fc.constantFrom(...letters), { minLength: 1, maxLength: 5 }), fc.nat(3), fc.nat(3), fc.nat(255))
  .map(([word, from, to, other]) => {
    const bytes = utf8Of(word.join(''));
    const part = bytes.slice(Math.min(from, bytes.length - 1), Math.max(bytes.length - to, from + 1));
    return from === 3 ? Uint8Array.of(...part, other) : part;
  });
/** About as long as the longest plain tokens. */
const longToken = fc
  .tuple(
    fc.constantFrom('a', ' ', 'é', 'a0', 'aaaaaaa漢'),
    fc.integer({ min: 1, max: 40 }),
    fc.constantFrom(...letters, ''),
  )
  .map(([part, times, end]) => utf8Of([...part.repeat(times)].slice(0, times).join('') + end));
const tokensOf = fc.array(fc.oneof({ weight: 4, arbitrary: shortToken }, { weight: 1, arbitrary: longToken }), {
  minLength: 300,
  maxLength: 900,
});

const character = fc.constantFrom(
  ...[
    '.',
    '[a-z]',
    '\\w',
    '[^a]',
    '[^<]',
    '[^漢"]',
    '[\\u0400-\\uffff]',
    '[^\\u{10000}-\\u{10ffff}]',
    'a',
    '"',
    '(a|é|.a)',
  ],
);
const piecesOf = (...quantifiers: string[]): fc.Arbitrary<string> =>
  fc.tuple(character, fc.constantFrom(...quantifiers)).map((parts) => parts.join(''));
/** No count follows a repetition without an end, because such a grammar may be too ambiguous for a mask. */
const pattern = fc
  .oneof(
    fc.tuple(piecesOf('', '?'), piecesOf('{2,4}', '{0,26}', '{20,45}', '{30}'), piecesOf('', '?', '+')),
    fc.array(piecesOf('', '?', '*', '+'), { minLength: 1, maxLength: 3 }),
  )
  .map((pieces) => `^${pieces.join('')}$`);
const outputs = fc.oneof(
  fc.constantFrom(
    { json: '{"type":"string"}' },
    { json: '{"type":"object"}' },
    { json: '{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":{"type":"integer"}}' },
    { jsonObject: true as const },
  ),
  pattern.map((regex) => ({ json: JSON.stringify({ type: 'string', pattern: regex }) })),
  pattern.map((regex) => ({ regex })),
  fc.record({ minLength: fc.nat(30), maxLength: fc.integer({ min: 30, max: 60 }) }).map((lengths) => ({
    json: JSON.stringify({ type: 'string', ...lengths }),
  })),
);

it('masks have the tokens whose bytes are allowed one by one', async () => {
  await fc.assert(
    fc.asyncProperty(
      tokensOf,
      outputs,
      fc.array(fc.constantFrom(...letters), { maxLength: 30 }),
      fc.nat(3),
      async (tokens, structure, word, cut) => {
        const eos = 256 + tokens.length;
        const bytesOf = (id: number): Uint8Array =>
          id < 256 ? Uint8Array.of(id) : (tokens[id - 256] ?? new Uint8Array());
        const vocabulary = await readVocabulary({
          vocabSize: eos + 1,
          tokenBytesMax: Math.max(...tokens.map(({ length }) => length)),
          eosTokenIds: [eos],
          tokenBytes: bytesOf,
          isControl: (id) => id === eos,
        });
        const network = buildNetwork(structuredGrammar(structure), vocabulary.controlTokens);
        const matcher = new Matcher(network, vocabulary, new MatcherMemory(2 ** 24));
        const walk = (state: object | undefined, bytes: Iterable<number>): object | undefined => {
          let at = state;
          for (const byte of bytes) at = at && matcher.advance(at, byte as TokenId);
          return at;
        };
        // The longest beginning that is allowed, without its last bytes.
        const states = [matcher.start];
        for (const byte of [...('json' in structure ? utf8Of('"') : []), ...utf8Of(word.join(''))]) {
          const next = walk(states[states.length - 1], [byte]);
          if (next !== undefined) states.push(next);
        }
        const state = states[Math.max(0, states.length - 1 - cut)]!;
        const mask = matcher.allowedTokens(state, false);
        const wrong = Array.from({ length: eos }, (_, id) => id).filter(
          (id) => isAllowed(mask, id) !== (bytesOf(id).length > 0 && walk(state, bytesOf(id)) !== undefined),
        );
        expect(wrong.map((id) => [...bytesOf(id)])).toEqual([]);
      },
    ),
    { numRuns: fuzzRuns(400) },
  );
});
