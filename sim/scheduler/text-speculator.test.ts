import { describe, expect, test, vi } from 'vitest';
import type { TokenId } from '../../src/core/ids.ts';
import { TokenBuffer } from '../../src/core/tokens.ts';
import type { KvRequest } from '../../src/kv/kv-request.ts';
import { RequestState } from '../../src/scheduler/request-state.ts';
import { chooseDrafts, type DraftChances, type StepPrices } from '../../src/scheduler/speculation/choose-drafts.ts';
import { TextIndex } from '../../src/scheduler/speculation/text-index.ts';
import { TextSpeculator } from '../../src/scheduler/speculation/text-speculator.ts';
import { emptyLoad } from '../../src/scheduler/step-load.ts';
import { makeRequest } from '../workload.ts';

const options = { method: 'ngram', numSpeculativeTokens: 8, promptLookupMin: 2, promptLookupMax: 5 } as const;
const stateOf = (tokens: number[], cacheSalt?: string) =>
  new RequestState(
    makeRequest('a', tokens, cacheSalt === undefined ? {} : { cacheSalt }),
    new TokenBuffer(tokens),
    { scheduled: { all: [] }, tables: [] } as unknown as KvRequest,
    0,
  );
const sampled = (tokens: readonly number[]) => tokens.map((token) => ({ token: token as TokenId }));
const range = (count: number) => Array.from({ length: count }, (_, i) => i);

/** A step of one request with these drafts took so many milliseconds. */
function observe(speculator: TextSpeculator, draftTokens: number, ms: number): void {
  speculator.observe(
    { ...emptyLoad(), decodes: 1, decodeContext: 100, draftTokens, draftContext: 100 * draftTokens },
    ms,
  );
}

/** Steps in which `msPerRow` is the time of a further row. */
function learnTimes(speculator: TextSpeculator, msPerRow: number): void {
  for (let i = 0; i < 50; i++) observe(speculator, i % 5, 20 + msPerRow * (i % 5));
}

describe('drafts from the own text', () => {
  test('continue the text after the last occurrence of its last tokens', () => {
    const speculator = new TextSpeculator(options);
    learnTimes(speculator, 0.5);
    const [draft] = speculator.draft([stateOf([...range(40), ...range(20)])], 100);
    expect([...draft!]).toEqual(range(28).slice(20));
  });

  test('end at the budget of the step', () => {
    const speculator = new TextSpeculator(options);
    learnTimes(speculator, 0.5);
    const [draft] = speculator.draft([stateOf([...range(40), ...range(20)])], 3);
    expect(draft).toHaveLength(3);
  });

  test('become fewer if they are rejected, and more again if they are accepted', () => {
    const speculator = new TextSpeculator(options);
    learnTimes(speculator, 2);
    const state = stateOf([...range(40), ...range(5)]);
    const countNow = (): number => speculator.draft([state], 100)[0]?.length ?? 0;
    const first = countNow();
    expect(first).toBeGreaterThan(0);
    for (let i = 0; i < 20; i++) speculator.verified(state, Int32Array.of(5), sampled([99]));
    expect(countNow()).toBe(0);
    const other = stateOf([...range(40), ...range(5)]);
    expect(speculator.draft([other], 100)[0]?.length ?? 0).toBeLessThan(first);
    for (let i = 0; i < 20; i++) {
      speculator.draft([other], 100);
      speculator.verified(other, Int32Array.from(range(40).slice(5, 13)), sampled(range(40).slice(5, 14)));
    }
    expect(speculator.draft([other], 100)[0]).toHaveLength(8);
  });

  test('are not computed if further rows take most of the time of a step', () => {
    const speculator = new TextSpeculator(options);
    learnTimes(speculator, 12);
    expect(speculator.draft([stateOf([...range(40), ...range(2)])], 100)[0]).toBeUndefined();
  });

  test('begin again when the text repeats again, without one that was tried for that', () => {
    const speculator = new TextSpeculator(options);
    learnTimes(speculator, 2);
    const state = stateOf([...range(40), ...range(5)]);
    for (let i = 0; i < 20; i++) {
      speculator.draft([state], 100);
      speculator.verified(state, Int32Array.of(5), sampled([99]));
    }
    for (let next = 5; speculator.draft([state], 100)[0] === undefined; next++) {
      expect(next).toBeLessThan(30);
      state.append(next as TokenId);
    }
  });
});

describe('drafts from earlier outputs', () => {
  const suffix = {
    method: 'suffix',
    numSpeculativeTokens: 8,
    suffixDecodingMaxTreeDepth: 24,
    suffixDecodingMaxCachedRequests: 10,
    suffixDecodingMaxSpecFactor: 1,
    suffixDecodingMinTokenProb: 0.1,
  } as const;

  /** A request with this salt has ended: its prompt was 100 to 119, its output 0 to 59. */
  function afterOne(cacheSalt?: string, cachedRequests = 10): TextSpeculator {
    const speculator = new TextSpeculator({ ...suffix, suffixDecodingMaxCachedRequests: cachedRequests });
    const ended = stateOf(
      range(20).map((token) => 100 + token),
      cacheSalt,
    );
    for (const { token } of sampled(range(60))) ended.append(token);
    speculator.ended(ended);
    learnTimes(speculator, 0.5);
    return speculator;
  }

  test('continue a text that an earlier output had, but no text that only its prompt had', () => {
    const speculator = afterOne();
    expect([...speculator.draft([stateOf([500, ...range(20)])], 100)[0]!]).toEqual(range(28).slice(20));
    expect(speculator.draft([stateOf([500, 100, 101, 102, 103, 104, 105])], 100)[0]).toBeUndefined();
  });

  test('are made only for requests with the same cache salt', () => {
    const [mine, yours, none] = ['mine', 'yours', undefined].map((salt) => stateOf([500, ...range(20)], salt));
    const expected = Int32Array.from(range(28).slice(20));
    expect(afterOne('mine').draft([mine!, yours!, none!], 100)).toEqual([expected, undefined, undefined]);
    expect(afterOne().draft([mine!, yours!, none!], 100)).toEqual([undefined, undefined, expected]);
  });

  test('are not made if no output is cached', () => {
    const speculator = afterOne(undefined, 0);
    expect(speculator.draft([stateOf([500, ...range(20)])], 100)[0]).toBeUndefined();
    // The own text is still searched.
    expect(speculator.draft([stateOf([...range(40), ...range(20)])], 100)[0]).toHaveLength(8);
  });
});

describe('a text without repetitions', () => {
  test('is searched in one of eight steps, and in each step again after matches that were right', () => {
    const find = vi.spyOn(TextIndex.prototype, 'find');
    const speculator = new TextSpeculator(options);
    const state = stateOf(range(300));
    const searchesIn = (steps: number, next: (step: number) => number): number => {
      find.mockClear();
      for (let i = 0; i < steps; i++) {
        speculator.draft([state], 100);
        // No step is measured, so nothing is drafted.
        state.append(next(i) as TokenId);
      }
      return find.mock.calls.length;
    };
    searchesIn(200, (i) => 1000 + i);
    expect(searchesIn(80, (i) => 2000 + i)).toBe(10);
    searchesIn(20, (i) => i);
    expect(searchesIn(80, (i) => 20 + i)).toBe(80);
    find.mockRestore();
  });
});

describe('the price of drafts', () => {
  const text = [...range(40), ...range(20)];
  const countNow = (speculator: TextSpeculator): number => speculator.draft([stateOf(text)], 100)[0]?.length ?? 0;

  test('is measured with few drafts first', () => {
    const speculator = new TextSpeculator(options);
    for (let i = 0; i < 10; i++) observe(speculator, 0, 20);
    const counts = range(7).map(() => {
      const drafts = countNow(speculator);
      observe(speculator, drafts, 20 + drafts / 2);
      return drafts;
    });
    expect(counts[0]).toBe(2);
    expect(counts.at(-1)).toBe(8);
    for (const [i, count] of counts.entries()) expect(count).toBeLessThanOrEqual(2 * (counts[i - 1] ?? 1));
  });

  test('does not depend on a pause in the first step', () => {
    const speculator = new TextSpeculator(options);
    observe(speculator, 0, 500);
    for (let i = 0; i < 3; i++) observe(speculator, 0, 20);
    expect(countNow(speculator)).toBe(2);
  });
});

describe('the choice of drafts', () => {
  const choose = (proposals: readonly DraftChances[], prices: Partial<StepPrices>): number[] =>
    chooseDrafts(proposals, { decodes: 3, rowsMax: 10, gainMinMs: 0, msOf: () => 10, ...prices });

  test('gives the most tokens per millisecond over all requests', () => {
    const proposals = [{ chances: [0.9, 0.8] }, { chances: [0.5, 0.1] }, { chances: [] }];
    expect(choose(proposals, { msOf: (drafts) => 10 + drafts })).toEqual([2, 1, 0]);
    expect(choose(proposals, { rowsMax: 1, msOf: (drafts) => 10 + drafts })).toEqual([1, 0, 0]);
    expect(choose(proposals, { msOf: (drafts) => 10 + 4 * drafts })).toEqual([0, 0, 0]);
  });

  test('is empty if the expected gain is below the required gain', () => {
    const chances = [0.9, 0.8, 0.7];
    const msOf = (drafts: number) => 10 + drafts;
    expect(choose([{ chances }], { decodes: 1, gainMinMs: 20, msOf })).toEqual([3]);
    expect(choose([{ chances }], { decodes: 1, gainMinMs: 22, msOf })).toEqual([0]);
  });

  test('takes further rows if the first costs most of the time of all', () => {
    const chances = [0.9, 0.85, 0.8, 0.75];
    expect(choose([{ chances }], { decodes: 1, msOf: (drafts) => (drafts === 0 ? 10 : 22) })).toEqual([4]);
  });
});
