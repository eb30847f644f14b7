import { createContext, Script } from 'node:vm';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { fuzzRuns } from '../../test/support/long-form.ts';
import { type Factor, intersection, matches, trimmed } from './automaton.ts';
import { AutomatonTooLarge, Budget, grammarLimits, LimitError } from './budget.ts';
import { automatonOfPattern } from './determinize.ts';
import { parseRegex, RegexError } from './regex.ts';

/** Random patterns with assertions; JavaScript's own engine is the judge. */
const { pattern } = fc.letrec<{ pattern: string; atom: string }>((tie) => ({
  atom: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    fc.constantFrom('a', 'b', 'é', '.', '[ab]', '[^a]', '\\w', '\\S', '\\b', '\\B', '^', '$', '\\d', '-', '🐦'),
    tie('pattern').map((inside) => `(${inside})`),
    fc
      .tuple(fc.constantFrom('?=', '?!', '?:', '?<=', '?<!'), tie('pattern'))
      .map(([kind, inside]) => `(${kind}${inside})`),
  ),
  pattern: fc
    .array(
      fc
        .array(
          fc
            .tuple(tie('atom'), fc.constantFrom('', '', '', '*', '+', '?', '{2}', '{1,3}', '{0,2}', '{2,}', '*?'))
            .map(([atom, count]) => (/^(\\[bB]|\^|\$)$|^\(\?(=|!|<)/.test(atom) ? atom : atom + count)),
          { maxLength: 4 },
        )
        .map((parts) => parts.join('')),
      { minLength: 1, maxLength: 3 },
    )
    .map((options) => options.join('|')),
}));

/** Look-aheads at the start of a pattern are automata of their own. */
const begun = fc
  .tuple(fc.constantFrom('', '', '^', '^(?=.*a)', '^(?!b)(?=.*(a|-))'), pattern)
  .map((parts) => parts.join(''));

const text = fc
  .array(fc.constantFrom('a', 'b', 'é', '-', '1', ' ', '🐦', '\n'), { maxLength: 8 })
  .map((letters) => letters.join(''));

const budget = () => new Budget({ ...grammarLimits, steps: 30_000 });
const automatonOf = (source: string) => automatonOfPattern(parseRegex(source), budget(), 500);
const judge = createContext({ source: '', samples: [] as readonly string[] });
const script = new Script("samples.filter((sample) => new RegExp(source, 'u').test(sample))");
/** JavaScript's engine goes back so often with some patterns that it would not end: these are skipped. */
function foundIn(source: string, samples: readonly string[]): string[] {
  Object.assign(judge, { source, samples });
  return [...(script.runInContext(judge, { timeout: 2000 }) as string[])];
}
const isJudgeLate = (error: unknown): boolean =>
  (error as { readonly code?: unknown }).code === 'ERR_SCRIPT_EXECUTION_TIMEOUT';
/** V8 finds `\B` between the two halves of a character. */
const known = (samples: readonly string[]): string[] => samples.map((sample) => sample.replaceAll('🐦', '!'));

function skipping(run: () => void): void {
  try {
    run();
  } catch (error) {
    if (isJudgeLate(error)) return;
    if (!(error instanceof AutomatonTooLarge || error instanceof LimitError || error instanceof RegexError))
      throw error;
  }
}

it('automata match the texts that JavaScript matches', () => {
  let matched = 0;
  let refused = 0;
  fc.assert(
    fc.property(begun, fc.array(text, { minLength: 5, maxLength: 20 }), (source, given) => {
      const samples = source.includes('\\B') ? known(given) : given;
      skipping(() => {
        const automaton = automatonOf(source);
        const expected = foundIn(source, samples);
        matched += expected.length;
        refused += samples.length - expected.length;
        expect(samples.filter((sample) => automaton !== undefined && matches(automaton, sample))).toEqual(expected);
      });
    }),
    { numRuns: fuzzRuns(1000) },
  );
  expect(Math.min(matched, refused)).toBeGreaterThan(fuzzRuns(1000) / 4);
});

it('an intersection matches what all its automata match', () => {
  const factor = fc.tuple(begun, fc.boolean());
  fc.assert(
    fc.property(
      fc.array(factor, { minLength: 1, maxLength: 3 }),
      fc.array(text, { minLength: 5, maxLength: 20 }),
      (given, texts) => {
        const samples = known(texts);
        skipping(() => {
          const factors: Factor[] = [];
          for (const [source, isNegated] of given) {
            const automaton = automatonOf(source);
            if (automaton !== undefined) factors.push({ automaton, isNegated });
            else if (!isNegated) return;
          }
          if (factors.length === 0) return;
          const all = trimmed(intersection(factors, 2000, budget()));
          const found = given.map(([source]) => new Set(foundIn(source, samples)));
          const expected = samples.filter((sample) =>
            given.every(([, isNegated], i) => found[i]!.has(sample) !== isNegated),
          );
          expect(samples.filter((sample) => all !== undefined && matches(all, sample))).toEqual(expected);
        });
      },
    ),
    { numRuns: fuzzRuns(400) },
  );
});
