/** Passes over logits in C give the same bits as in JavaScript. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { needs } from '../../../test/support/needs.ts';
import { expectSameBits } from '../../../test/support/same-bits.ts';
import { openDevice } from '../../ggml/device.ts';
import { loadNative } from '../../ggml/ffi.ts';
import { GraphBuilder } from '../../ggml/graph.ts';
import { F32 } from '../../ggml/types.ts';
import { BestTokens } from './best-tokens.ts';
import {
  binCount,
  type Distribution,
  type LogitsPasses,
  makeCandidates,
  nonFiniteAt,
  noToken,
  scriptPasses,
  thresholdMaxNats,
} from './logits-candidates.ts';
import { openLogitsPasses } from './logits-passes.ts';

const native = await openLogitsPasses(loadNative());

const logit = fc.oneof(
  { weight: 8, arbitrary: fc.float({ min: -60, max: 60, noNaN: true }) },
  { weight: 2, arbitrary: fc.constantFrom(0, -0, 1, 30, -Infinity) },
);
const rows = fc.array(logit, { minLength: 1, maxLength: 300 }).map((values) => Float32Array.from(values));

describe('passes in C', needs(native !== undefined, 'no C compiler'), () => {
  it('find the best token and the first non-finite logit', () => {
    const corrupt = fc.option(fc.tuple(fc.nat(), fc.constantFrom(Number.NaN, Infinity)), { nil: undefined });
    fc.assert(
      fc.property(rows, corrupt, (row, corrupted) => {
        if (corrupted !== undefined) row[corrupted[0] % row.length] = corrupted[1];
        expect(native!.best(row)).toBe(scriptPasses.best(row));
      }),
      { numRuns: 500 },
    );
    expect(native!.best(new Float32Array(50).fill(-Infinity))).toBe(noToken);
    const row = new Float32Array(1000);
    row[900] = Number.NaN;
    row[17] = Infinity;
    expect(native!.best(row)).toBe(nonFiniteAt(17));
    expect(scriptPasses.best(row)).toBe(nonFiniteAt(17));
    const long = Float32Array.from({ length: 5000 }, (_, i) => Math.sin(i * i));
    for (const end of [1023, 1024, 1025, 2049, 4100, 5000]) {
      const part = long.subarray(7, end);
      expect(native!.best(part)).toBe(scriptPasses.best(part));
    }
    // A part of a buffer, like a row of a batch.
    expect(native!.best(row.subarray(18, 899))).toBe(0);
  });

  it('find the best token of each row in a graph with any number of threads', () => {
    for (const threads of [1, 2, 3]) {
      const device = openDevice({ device: 'cpu', threads, exact: true });
      const graph = new GraphBuilder(device);
      const best = new BestTokens(native!.bestOfShares, threads);
      // Also vocabularies with fewer tokens than shares, rows without finite logits, and rows with NaN or infinity.
      const row = fc.oneof({ weight: 9, arbitrary: logit }, fc.constantFrom(Number.NaN, Infinity));
      const table = fc.tuple(fc.integer({ min: 1, max: 300 }), fc.integer({ min: 1, max: 5 })).chain(([vocab, count]) =>
        fc.array(
          fc.oneof(
            fc.array(row, { minLength: vocab, maxLength: vocab }),
            fc.constant(new Array(vocab).fill(-Infinity)),
          ),
          {
            minLength: count,
            maxLength: count,
          },
        ),
      );
      fc.assert(
        fc.property(table, (values) => {
          const logits = values.map((each) => Float32Array.from(each as number[]));
          const vocab = logits[0]!.length;
          graph.begin(8);
          const input = graph.input(F32, vocab, logits.length);
          const node = best.node(graph, input, logits.length);
          graph.output(node);
          graph.allocate();
          for (const [i, each] of logits.entries()) graph.write(input, each, i * each.byteLength);
          graph.computeNow();
          const found = graph.dataOf(node, Int32Array);
          for (const [i, each] of logits.entries()) expect(best.of(found, i, each)).toBe(scriptPasses.best(each));
        }),
        { numRuns: 100 },
      );
      graph.close();
      device.close();
    }
  });

  it('weigh, count and collect tokens', () => {
    const temperatures = fc.constantFrom(1e-30, 0.01, 0.3, 0.8, 1, 1.7, 20, 1e30);
    fc.assert(
      fc.property(
        rows,
        temperatures,
        fc.double({ min: 0.01, max: thresholdMaxNats, noNaN: true }),
        (logits, temperature, limit) => {
          const best = scriptPasses.best(logits);
          fc.pre(best >= 0);
          const from: Distribution = { logits, max: logits[best]!, temperature, thresholdNats: limit };
          expectSameOutcome(outcome(native!, from), outcome(scriptPasses, from));
        },
      ),
      { numRuns: 500 },
    );
  });
});

function outcome(passes: LogitsPasses, from: Distribution) {
  const counts = new Float64Array(binCount);
  const weightSums = new Float64Array(binCount);
  const candidates = makeCandidates(from.logits.length);
  passes.countBins(from, counts);
  const weightSum = passes.weighBins(from, weightSums);
  const collected = passes.collectCandidates(candidates, from, from.thresholdNats / 2);
  const { ids, natsBelowBest, weights, count } = candidates;
  const kept = [ids.slice(0, count), natsBelowBest.slice(0, count), weights.slice(0, count)];
  return { arrays: [counts, weightSums, ...kept], numbers: { weightSum, collected, count } };
}

function expectSameOutcome(found: ReturnType<typeof outcome>, wanted: ReturnType<typeof outcome>): void {
  expect(found.numbers).toEqual(wanted.numbers);
  for (const [i, array] of found.arrays.entries()) expectSameBits(array, wanted.arrays[i]!);
}
