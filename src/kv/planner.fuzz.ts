import { describe, expect, test } from 'vitest';
import { fuzzRuns } from '../../test/support/long-form.ts';
import { planTokensNaively } from '../../test/support/planner-reference.ts';
import { Prng } from '../base/prng.ts';
import { type GroupValidity, planSpans } from './planner.ts';
import { SpanList } from './span-list.ts';

/**
 * Random validity of up to three groups against the naive reference. Prompts are short, so spans often meet the ends of
 * blocks and windows. More runs: KVASIR_FUZZ_RUNS; another first seed: KVASIR_FUZZ_SEED.
 */
const runs = fuzzRuns(500_000);
const firstSeed = Number(process.env.KVASIR_FUZZ_SEED ?? 1);
const tokensMax = 120;

describe('planner', () => {
  test(`the planner and the naive reference return the same set in ${runs} random states`, () => {
    const spans = new SpanList();
    const expected = new Uint8Array(tokensMax);
    const buffers = [0, 1, 2].map(() => new Int32Array(tokensMax));
    let holes = 0;
    for (let seed = firstSeed; seed < firstSeed + runs; seed++) {
      const prng = new Prng(seed);
      const tokenCount = prng.between(1, seed % 64 === 0 ? tokensMax : seed % 4 === 0 ? 32 : 12);
      const groups = buffers.slice(0, 1 + (seed % 3)).map((validTokens) => randomGroup(prng, tokenCount, validTokens));
      const computeFrom = prng.chance(0.8) ? Infinity : prng.between(0, tokenCount);
      planSpans(tokenCount, groups, spans, computeFrom);
      planTokensNaively(tokenCount, groups, expected, computeFrom);
      if (!areSame(spans, expected, tokenCount)) throw new Error(report(seed, tokenCount, groups, spans, expected));
      holes += spans.count - 1;
    }
    // A rerun of one seed has no meaningful average.
    if (runs >= 1000) expect(holes, 'holes between spans').toBeGreaterThan(runs / 20);
  });
});

/** Adjacent spans are a failure: the planner must join them. */
function areSame(spans: SpanList, expected: Uint8Array, tokenCount: number): boolean {
  let token = 0;
  for (let i = 0; i < spans.count; i++) {
    const [start, end] = [spans.start(i), spans.end(i)];
    if (end <= start || (i > 0 && start <= spans.end(i - 1))) return false;
    for (; token < start; token++) if (expected[token] === 1) return false;
    for (; token < end; token++) if (expected[token] !== 1) return false;
  }
  return token === tokenCount;
}

function report(
  seed: number,
  tokenCount: number,
  groups: readonly GroupValidity[],
  spans: SpanList,
  expected: Uint8Array,
): string {
  const reference = Array.from(expected.subarray(0, tokenCount), (mark) => (mark === 1 ? '^' : '.')).join('');
  const shown = groups.map((group) => ({
    ...group,
    validTokens: [...group.validTokens.subarray(0, group.indexCount)],
  }));
  return [
    `rerun with KVASIR_FUZZ_SEED=${seed} KVASIR_FUZZ_RUNS=1`,
    JSON.stringify(shown),
    `reference ${reference}, planner ${JSON.stringify(spans.toArray())}`,
  ].join('\n');
}

const blockSizes = [1, 2, 3, 4, 8, 16];
const kinds = ['full', 'window', 'state'] as const;

function randomGroup(prng: Prng, tokenCount: number, validTokens: Int32Array): GroupValidity {
  const blockSize = prng.pick(blockSizes);
  const indexCount = prng.between(0, Math.ceil(tokenCount / blockSize));
  const density = prng.unit();
  for (let index = 0; index < indexCount; index++) {
    const draw = prng.unit();
    validTokens[index] = draw >= density ? 0 : draw < density * 0.8 ? blockSize : prng.between(0, blockSize);
  }
  const kind = prng.pick(kinds);
  const running = prng.chance(0.8) ? [] : [1, 2].map(() => ({ position: prng.between(1, tokenCount) }));
  const window = kind === 'window' ? prng.between(1, 20) : Infinity;
  return { kind, blockSize, indexCount, validTokens, window, running };
}
