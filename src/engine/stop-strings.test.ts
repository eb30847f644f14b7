import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fuzzRuns } from '../../test/support/long-form.ts';
import { StopMatcher } from './stop-strings.ts';

function run(stops: readonly string[], pieces: readonly string[], include = false) {
  const matcher = new StopMatcher(stops, include);
  const out: string[] = [];
  for (const piece of pieces) {
    const scan = matcher.push(piece);
    out.push(scan.text);
    if (scan.stop !== undefined) return { out, text: out.join(''), stop: scan.stop };
  }
  out.push(matcher.flush());
  return { out, text: out.join(''), stop: undefined };
}

describe('StopMatcher', () => {
  it('returns text at once if it cannot be the start of a stop string', () => {
    expect(run(['###'], ['hello', ' world']).out).toEqual(['hello', ' world', '']);
    expect(run([], ['#', '#']).out).toEqual(['#', '#', '']);
  });

  it('finds a stop string across pieces and removes it', () => {
    expect(run(['###'], ['a#', '#', '#b'])).toEqual({ out: ['a', '', ''], text: 'a', stop: '###' });
    expect(run(['###'], ['a#', '#', '#b'], true)).toEqual({ out: ['a', '', '###'], text: 'a###', stop: '###' });
  });

  it('returns kept text when the next piece shows that it is not a stop string', () => {
    expect(run(['abc'], ['xab', 'ab', 'd'])).toEqual({ out: ['x', 'ab', 'abd', ''], text: 'xababd', stop: undefined });
    expect(run(['abc'], ['ab']).text).toBe('ab');
  });

  it('stops at the first complete stop string, at the longest of several, without waiting for a longer one', () => {
    expect(run(['b', 'ab'], ['xab']).stop).toBe('ab');
    expect(run(['abcd', 'b'], ['xab', 'cd'])).toMatchObject({ text: 'xa', stop: 'b' });
    expect(run(['late', 'a'], ['latelate']).stop).toBe('a');
  });

  it('finds stop strings that overlap themselves', () => {
    expect(run(['aab'], ['aa', 'aab']).text).toBe('aa');
    expect(run(['\n\n'], ['a\n', 'b\n', '\n']).text).toBe('a\nb');
  });
});

/** Checks every prefix of the whole text, without a state. Does not cover the time at which text is returned. */
function naive(stops: readonly string[], text: string, include: boolean) {
  for (let end = 1; end <= text.length; end++) {
    const complete = stops.filter((stop) => text.slice(0, end).endsWith(stop)).sort((a, b) => b.length - a.length);
    const stop = complete[0];
    if (stop !== undefined) return { text: text.slice(0, include ? end : end - stop.length), stop };
  }
  return { text, stop: undefined };
}

describe('StopMatcher against the naive search over the whole text', () => {
  const letters = (lengths: object) => fc.string({ unit: fc.constantFrom('a', 'b', '🐦', '🐧'), ...lengths });
  const stops = fc.array(letters({ minLength: 1, maxLength: 5 }), { maxLength: 4 });
  const pieces = fc.array(letters({ maxLength: 4 }), { maxLength: 12 });

  it('gives the same text and stop for any division into pieces', () => {
    fc.assert(
      fc.property(stops, pieces, fc.boolean(), (stops, pieces, include) => {
        const { text, stop } = run(stops, pieces, include);
        expect({ text, stop }).toEqual(naive(stops, pieces.join(''), include));
      }),
      { numRuns: fuzzRuns(3000) },
    );
  });

  it('keeps back only the start of a stop string, and never splits a character', () => {
    fc.assert(
      fc.property(stops, pieces, (stops, pieces) => {
        const matcher = new StopMatcher(stops, false);
        let pushed = '';
        let out = '';
        for (const piece of pieces) {
          const scan = matcher.push(piece);
          pushed += piece;
          out += scan.text;
          expect(/\p{Surrogate}/u.test(scan.text)).toBe(false);
          if (scan.stop !== undefined) return;
          const held = pushed.slice(out.length);
          expect(held === '' || stops.some((stop) => stop.startsWith(held))).toBe(true);
        }
      }),
      { numRuns: fuzzRuns(2000) },
    );
  });
});
