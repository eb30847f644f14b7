import { describe, expect, test } from 'vitest';
import { Prng } from '../base/prng.ts';
import { type GroupValidity, planSpans } from './planner.ts';
import { planTokensNaively } from './planner-twin.ts';
import { SpanList } from './span-list.ts';

/** Random validity of up to three groups against the twin. More runs: KVASIR_FUZZ_RUNS; another start: KVASIR_FUZZ_SEED. */
const runs = Number(process.env.KVASIR_FUZZ_RUNS ?? 20_000);
const firstSeed = Number(process.env.KVASIR_FUZZ_SEED ?? 1);

describe('planner', () => {
  test(`the same minimal set as the twin in ${runs} random states`, () => {
    const spans = new SpanList();
    for (let seed = firstSeed; seed < firstSeed + runs; seed++) {
      const prng = new Prng(seed);
      const tokenCount = prng.between(1, prng.chance(0.1) ? 120 : 40);
      const groups = Array.from({ length: prng.between(1, 3) }, () => randomGroup(prng, tokenCount));
      planSpans(tokenCount, groups, spans);
      const expected = planTokensNaively(tokenCount, groups);
      const seen = new Array<boolean>(tokenCount).fill(false);
      let last = -1;
      for (const { start, end } of spans.toArray()) {
        // Spans that touch would be one span: the pass must not cut what belongs together.
        if (start <= last || end <= start)
          throw new Error(`seed ${seed}: spans overlap or touch: ${JSON.stringify(spans.toArray())}`);
        last = end;
        seen.fill(true, start, end);
      }
      if (seen.some((value, token) => value !== expected[token])) {
        const show = (set: boolean[]) => set.map((value) => (value ? '^' : '.')).join('');
        throw new Error(
          `rerun with KVASIR_FUZZ_SEED=${seed} KVASIR_FUZZ_RUNS=1\n${JSON.stringify(groups)}\nplanner ${show(seen)}\ntwin    ${show(expected)}`,
        );
      }
    }
    expect(spans.count).toBeGreaterThan(0);
  });
});

function randomGroup(prng: Prng, tokenCount: number): GroupValidity {
  const blockSize = prng.pick([1, 2, 3, 4, 8, 16]);
  const blockCount = prng.between(0, Math.ceil(tokenCount / blockSize));
  const validTo = new Int32Array(blockCount);
  const density = prng.unit();
  for (let block = 0; block < blockCount; block++) {
    if (!prng.chance(density)) continue;
    validTo[block] = prng.chance(0.8) ? blockSize : prng.between(0, blockSize);
  }
  const kind = prng.pick(['full', 'window', 'state'] as const);
  return { kind, blockSize, blockCount, validTo, window: kind === 'window' ? prng.between(1, 20) : Infinity };
}
