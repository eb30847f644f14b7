import fc from 'fast-check';
import { expect, test } from 'vitest';
import { fuzzRuns } from '../../../test/support/long-form.ts';
import { uniform } from '../../base/philox.ts';
import { tokenCount, tokenId } from '../../core/ids.ts';
import type { SamplingParams } from '../../core/sampling.ts';
import { parseSamplingParams } from '../../core/sampling-parse.ts';
import type { SampleRequest } from '../../core/step.ts';
import { TokenBuffer } from '../../core/tokens.ts';
import { Sampler } from './sampler.ts';

/**
 * The reference: plain arrays, full sorts, the definitions as written. The reference sums in sorted order, and the
 * sampler by id and by bins. So a draw or a threshold within `margin` of a border is undecided and not compared.
 * Not covered: vocabularies larger than 400, speed.
 */
const margin = 1e-11;

interface Choice {
  readonly token: number;
  readonly isDecided: boolean;
}

function editedLogits(logits: Float32Array, request: SampleRequest, tokens: readonly number[]): number[] {
  const { params, promptLength } = request;
  const row = Array.from(logits);
  for (const [token, bias] of params.logitBias) row[token] = Math.fround(row[token]! + bias);
  const output = tokens.slice(promptLength);
  if (output.length < params.minTokens) {
    for (const token of [...request.eosTokenIds, ...params.stopTokenIds]) row[token] = -Infinity;
  }
  for (const token of new Set(tokens)) {
    let logit = row[token]!;
    logit = logit > 0 ? logit / params.repetitionPenalty : logit * params.repetitionPenalty;
    const count = output.filter((other) => other === token).length;
    logit -= params.frequencyPenalty * count + (count > 0 ? params.presencePenalty : 0);
    row[token] = Math.fround(logit);
  }
  return row.some((logit) => logit > -Infinity) ? row : Array.from(logits);
}

function naiveChoice(row: readonly number[], params: SamplingParams, outputLength: number): Choice {
  const max = Math.max(...row);
  if (params.temperature === 0) return { token: row.indexOf(max), isDecided: true };
  const byRank = row
    .map((logit, token) => ({ nats: (max - logit) / params.temperature, token }))
    .sort((a, b) => a.nats - b.nats || a.token - b.token);
  let isDecided = true;
  const thresholdMaxNats = -Math.log(params.minP);
  if (byRank.some(({ nats }) => nats !== thresholdMaxNats && Math.abs(nats - thresholdMaxNats) < margin))
    isDecided = false;
  let left = byRank
    .filter(({ nats }) => nats <= thresholdMaxNats)
    .map(({ nats, token }) => ({ token, weight: Math.exp(-nats) }));
  if (params.topK > 0) left = left.slice(0, params.topK);
  if (params.topP < 1) {
    const weightSum = left.reduce((sum, { weight }) => sum + weight, 0);
    let before = 0;
    left = left.filter(({ weight }, index) => {
      if (index > 0 && Math.abs(before - params.topP * weightSum) < margin * weightSum) isDecided = false;
      const isKept = index === 0 || before < params.topP * weightSum;
      before += weight;
      return isKept;
    });
  }
  left.sort((a, b) => a.token - b.token);
  const weightSum = left.reduce((sum, { weight }) => sum + weight, 0);
  const target = uniform(params.seed, outputLength) * weightSum;
  let sum = 0;
  for (const { token, weight } of left) {
    sum += weight;
    if (Math.abs(target - sum) < margin * weightSum) isDecided = false;
    if (target < sum) return { token, isDecided };
  }
  return { token: left.at(-1)!.token, isDecided: false };
}

/**
 * Logits from a few values, so that ties are common; distributed logits, some -Infinity; nearly equal logits;
 * denormals.
 */
const logitsOf = (size: number) =>
  fc.oneof(
    fc.array(fc.integer({ min: -4, max: 4 }), { minLength: size, maxLength: size }),
    fc.array(fc.oneof(fc.double({ min: -30, max: 30, noNaN: true }), fc.constant(-Infinity)), {
      minLength: size,
      maxLength: size,
    }),
    fc.array(fc.double({ min: 5, max: 5.001, noNaN: true }), { minLength: size, maxLength: size }),
    fc.array(fc.constantFrom(0, -0, 1e-42, 2e-42, -1e-42), { minLength: size, maxLength: size }),
  );

const scenario = fc.integer({ min: 2, max: 400 }).chain((vocabSize) => {
  const token = fc.integer({ min: 0, max: vocabSize - 1 });
  const or = <T, U>(usual: T, other: fc.Arbitrary<U>) => fc.oneof(fc.constant(usual), other);
  return fc.record({
    vocabSize: fc.constant(vocabSize),
    logits: logitsOf(vocabSize),
    prompt: fc.array(token, { minLength: 1, maxLength: 20 }),
    output: fc.array(token, { maxLength: 20 }),
    eos: fc.uniqueArray(token, { maxLength: 2 }),
    params: fc.record({
      temperature: fc.constantFrom(0, 0.01, 0.7, 1, 1.5, 100),
      topK: or(0, fc.integer({ min: 1, max: vocabSize + 5 })),
      topP: or(1, fc.double({ min: 1e-6, max: 1, noNaN: true })),
      minP: or(0, fc.double({ min: 0, max: 1, noNaN: true })),
      repetitionPenalty: or(1, fc.double({ min: 0.5, max: 2, noNaN: true })),
      presencePenalty: or(0, fc.double({ min: -2, max: 2, noNaN: true })),
      frequencyPenalty: or(0, fc.double({ min: -2, max: 2, noNaN: true })),
      logitBias: fc.dictionary(token.map(String), fc.double({ min: -100, max: 100, noNaN: true }), { maxKeys: 4 }),
      seed: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
      maxTokens: fc.constant(50),
      minTokens: fc.constantFrom(0, 0, 10),
      stopTokenIds: fc.array(token, { maxLength: 3 }),
      logprobs: fc.option(fc.integer({ min: 0, max: 20 }), { nil: undefined }),
    }),
  });
});

const numRuns = fuzzRuns(3000);

test('the sampler equals its naive reference', () => {
  let compared = 0;
  const samplers = new Map<number, Sampler>();
  fc.assert(
    fc.property(scenario, ({ vocabSize, logits, prompt, output, eos, params: raw }) => {
      const row = Float32Array.from(logits);
      fc.pre(row.some((logit) => logit > -Infinity));
      const params = parseSamplingParams(raw, { vocabSize, maxTokensDefault: 16, drawSeed: () => 0n });
      const request = { params, promptLength: tokenCount(prompt.length), eosTokenIds: eos.map(tokenId) };
      const before = row.slice();
      // One sampler per size for all runs, because scratch memory of one sample must not change the next sample.
      const sampler = samplers.get(vocabSize) ?? new Sampler(vocabSize);
      samplers.set(vocabSize, sampler);

      const sampled = sampler.sample(row, request, new TokenBuffer([...prompt, ...output]));

      expect(row).toEqual(before);
      const edited = editedLogits(row, request, [...prompt, ...output]);
      const naive = naiveChoice(edited, params, output.length);
      if (naive.isDecided) {
        compared++;
        expect(sampled.token).toBe(naive.token);
      }
      expectLogprobs(sampled, row, params);
    }),
    { numRuns },
  );
  expect(compared).toBeGreaterThan((2 * numRuns) / 3);
});

function expectLogprobs(sampled: ReturnType<Sampler['sample']>, row: Float32Array, params: SamplingParams): void {
  if (params.logprobs === undefined) {
    expect(sampled.logprobs).toBeUndefined();
    return;
  }
  const order = [...row.keys()].sort((a, b) => row[b]! - row[a]! || a - b);
  const max = row[order[0]!]!;
  const normalizer = max + Math.log(row.reduce((sum, logit) => sum + Math.exp(logit - max), 0));
  const { logprob, rank, top } = sampled.logprobs!;
  expect(order[rank - 1]).toBe(sampled.token);
  expect(top.map(({ token }) => token)).toEqual(order.slice(0, params.logprobs));
  for (const entry of [...top, { token: sampled.token, logprob }]) {
    const expected = row[entry.token]! - normalizer;
    if (expected === -Infinity) expect(entry.logprob).toBe(-Infinity);
    else expect(Math.abs(entry.logprob - expected)).toBeLessThan(1e-9);
  }
}
