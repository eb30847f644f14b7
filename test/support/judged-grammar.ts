import { expect } from 'vitest';
import { writeExactJson } from '../../src/base/exact-json.ts';
import type { Prng } from '../../src/base/prng.ts';
import { isAllowed, type OutputConstraint } from '../../src/core/constraint.ts';
import type { TokenId } from '../../src/core/ids.ts';
import { Matcher } from '../../src/grammar/matcher.ts';
import { MatcherMemory } from '../../src/grammar/matcher-memory.ts';
import { buildNetwork } from '../../src/grammar/network.ts';
import { structuredGrammar } from '../../src/grammar/structured-grammar.ts';
import { smallEos, smallSource, type smallVocabulary } from './grammar-vocabulary.ts';

type Vocabulary = Awaited<ReturnType<typeof smallVocabulary>>;

/** The matcher of a schema, and what it does not keep. Throws SchemaError, LimitError or NetworkError. */
export function matcherNow(schema: unknown, strict: boolean, vocabulary: Vocabulary) {
  const grammar = structuredGrammar({ json: writeExactJson(schema), strict });
  const network = buildNetwork(grammar, vocabulary.controlTokens);
  return { matcher: new Matcher(network, vocabulary, new MatcherMemory(2 ** 24)), notes: network.notes };
}

/** Whether the constraint allows the whole text, byte by byte. */
export function allowsText(constraint: OutputConstraint, text: string): boolean {
  let state: object | undefined = constraint.start;
  for (const byte of new TextEncoder().encode(text)) {
    if (state === undefined || !isAllowed(constraint.allowedTokens(state, false), byte)) return false;
    state = constraint.advance(state, byte as TokenId);
  }
  return state !== undefined && isAllowed(constraint.allowedTokens(state, false), smallEos);
}

/** Mostly tokens that bring the output to its end, because random JSON would go on for long. */
const closing = new Set([...'"}],:0'].map((letter) => letter.charCodeAt(0)));

/** A random output; undefined if it has not ended after 600 tokens. Fails if no token is allowed before the end. */
export function randomOutput(constraint: OutputConstraint, prng: Prng): string | undefined {
  const bytes: number[] = [];
  let state: object = constraint.start;
  for (let step = 0; step < 600; step++) {
    const mask = constraint.allowedTokens(state, false);
    if (isAllowed(mask, smallEos) && prng.chance(0.6))
      return new TextDecoder('utf-8', { fatal: true }).decode(Uint8Array.from(bytes));
    const allowed = Array.from({ length: smallEos }, (_, token) => token).filter((token) => isAllowed(mask, token));
    const ending = allowed.filter((token) => closing.has(token));
    if (allowed.length === 0) {
      expect(isAllowed(mask, smallEos)).toBe(true);
      continue;
    }
    const from = ending.length > 0 && prng.chance(step > 60 ? 0.9 : 0.4) ? ending : allowed;
    const token = from[prng.between(0, from.length - 1)]!;
    bytes.push(...smallSource.tokenBytes(token));
    state = constraint.advance(state, token as TokenId)!;
    expect(state).toBeDefined();
  }
  return undefined;
}
