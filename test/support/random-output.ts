import { expect } from 'vitest';
import type { Prng } from '../../src/base/prng.ts';
import { isAllowed } from '../../src/core/constraint.ts';
import type { TokenId } from '../../src/core/ids.ts';
import type { Matcher } from '../../src/grammar/matcher.ts';
import { smallEos, smallSource } from './grammar-vocabulary.ts';

/** Mostly tokens that bring the output to its end, because random JSON would go on for long. */
const closing = new Set([...'"}],:0'].map((letter) => letter.charCodeAt(0)));

/** An output that a grammar allows; undefined: it did not end in 600 tokens. */
export function randomOutput(matcher: Matcher, prng: Prng): string | undefined {
  const bytes: number[] = [];
  let state: object = matcher.start;
  for (let step = 0; step < 600; step++) {
    const mask = matcher.allowedTokens(state, false);
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
    state = matcher.advance(state, token as TokenId)!;
    expect(state).toBeDefined();
  }
  return undefined;
}
