import { describe, expect, it } from 'vitest';
import { uniform } from '../../base/philox.ts';
import { tokenCount, tokenId } from '../../core/ids.ts';
import { parseSamplingParams } from '../../core/sampling-parse.ts';
import { TokenBuffer } from '../../core/tokens.ts';
import { Sampler } from './sampler.ts';

const prompt = [0];

function sample(logits: ArrayLike<number>, raw: object, output: readonly number[] = [], eos: readonly number[] = []) {
  const vocabSize = logits.length;
  const params = parseSamplingParams(raw, { vocabSize, maxTokensDefault: 1000, drawSeed: () => 0n });
  return new Sampler(vocabSize).sample(
    Float32Array.from(logits),
    { params, promptLength: tokenCount(prompt.length), eosTokenIds: eos.map(tokenId) },
    new TokenBuffer([...prompt, ...output]),
  );
}

describe('greedy sampling', () => {
  it('takes the greatest logit, the first of equal logits', () => {
    expect(sample([1, 3, 2, 3], { temperature: 0 })).toEqual({ token: 1 });
    expect(sample([-0, 0, -1], { temperature: 0 }).token).toBe(0);
  });

  it('applies bias and penalties', () => {
    expect(sample([1, 3, 2], { temperature: 0, logitBias: { 2: 1.5 } }).token).toBe(2);
    expect(sample([1, 3, 2], { temperature: 0, presencePenalty: 1.5 }, [1]).token).toBe(2);
    expect(sample([1, 3, 2.2], { temperature: 0, frequencyPenalty: 0.5 }, [1]).token).toBe(1);
    expect(sample([1, 3, 2.2], { temperature: 0, frequencyPenalty: 0.5 }, [1, 1]).token).toBe(2);
    expect(sample([3, 2, 1], { temperature: 0, repetitionPenalty: 2 }).token).toBe(1);
    expect(sample([-3, -4, -7], { temperature: 0, repetitionPenalty: 2 }).token).toBe(1);
    expect(sample([3, 2, 1], { temperature: 0, presencePenalty: 2 }).token).toBe(0);
  });

  it('chooses no end or stop token before minTokens output tokens', () => {
    const params = { temperature: 0, minTokens: 2, stopTokenIds: [2] };
    expect(sample([0, 1, 2, 3], params, [0], [3]).token).toBe(1);
    expect(sample([0, 1, 2, 3], params, [0, 0], [3]).token).toBe(3);
  });
});

describe('unusual parameters', () => {
  it('a request that bans every token gets the best token of the unedited logits', () => {
    expect(sample([1, 2], { temperature: 0, minTokens: 5, stopTokenIds: [0] }, [], [1]).token).toBe(1);
  });

  it('extreme parameters still give a token', () => {
    const logits = [1, 2, 3, -4];
    expect(sample(logits, { temperature: 1e-320 }).token).toBe(2);
    expect(sample(logits, { repetitionPenalty: 1e-300, temperature: 0 }, [1, 2]).token).toBe(0);
    expect(sample(logits, { repetitionPenalty: 1e300, temperature: 0 }, [2]).token).toBe(1);
    expect(sample(logits, { topP: 1e-300 }).token).toBe(2);
    expect(sample(logits, { topK: Number.MAX_SAFE_INTEGER, temperature: 1e300 }).token).toBeLessThan(4);
    expect(sample([3e38, -3e38, 0], { temperature: 1 }).token).toBe(0);
  });
});

describe('logits with NaN, infinity or no finite value', () => {
  it.each([
    [[0, NaN, 1], 'NaN as the logit of token 1'],
    [[0, 1, Infinity], 'Infinity as the logit of token 2'],
    [[-Infinity, -Infinity], '-Infinity as the logit of every token'],
  ])('%j are an error', (logits, found) => {
    for (const temperature of [0, 1]) {
      expect(() => sample(logits, { temperature })).toThrow(
        expect.objectContaining({
          code: 'KVASIR_BROKEN_LOGITS',
          message: expect.stringContaining(found),
        }),
      );
    }
  });
});

describe('logprobs', () => {
  it('are computed from the logits before bias, penalties and temperature', () => {
    const result = sample([0, Math.log(2), Math.log(5)], { temperature: 0, logitBias: { 1: 50 }, logprobs: 2 });
    expect(result.token).toBe(1);
    expect(result.logprobs!.logprob).toBeCloseTo(Math.log(2 / 8), 6);
    expect(result.logprobs!.rank).toBe(2);
    expect(result.logprobs!.top.map(({ token }) => token)).toEqual([2, 1]);
    expect(result.logprobs!.top[0]!.logprob).toBeCloseTo(Math.log(5 / 8), 6);
  });

  it('0 logprobs have only the chosen token', () => {
    expect(sample([0, 1], { temperature: 0, logprobs: 0 }).logprobs!.top).toEqual([]);
  });
});

describe('a draw', () => {
  it('is a function of the seed and the output length', () => {
    const logits = Array.from({ length: 500 }, (_, index) => Math.sin(index));
    const draw = (seed: bigint, length: number) => sample(logits, { seed }, Array<number>(length).fill(1)).token;
    expect(draw(5n, 3)).toBe(draw(5n, 3));
    const tokens = new Set(Array.from({ length: 50 }, (_, length) => draw(5n, length)));
    expect(tokens.size).toBeGreaterThan(30);
    expect(draw(6n, 3)).not.toBe(draw(5n, 3));
  });

  /** Chi-square of `count` draws, one per output length, against the probabilities that the definition gives. */
  function chiSquare(logits: readonly number[], raw: object, expected: readonly number[], count: number): number {
    const vocabSize = logits.length;
    const params = parseSamplingParams(raw, { vocabSize, maxTokensDefault: count, drawSeed: () => 0n });
    const sampler = new Sampler(vocabSize);
    const row = Float32Array.from(logits);
    const tokens = new TokenBuffer(prompt);
    const seen = new Float64Array(vocabSize);
    const request = { params, promptLength: tokenCount(1), eosTokenIds: [] };
    for (let index = 0; index < count; index++) {
      const { token } = sampler.sample(row, request, tokens);
      tokens.push(token);
      seen[token]! += 1;
    }
    const weightSum = expected.reduce((sum, weight) => sum + weight, 0);
    return expected.reduce((sum, weight, token) => {
      if (weight === 0) {
        expect(seen[token]).toBe(0);
        return sum;
      }
      const mean = (count * weight) / weightSum;
      return sum + (seen[token]! - mean) ** 2 / mean;
    }, 0);
  }

  const weights = [1, 2, 3, 4, 10, 20, 30, 5];
  const logits = weights.map(Math.log);
  // Bounds: the 99.9 % points for the degrees of freedom. The seeds are fixed, so the results are the same in each run.
  it.each([
    ['all tokens', { seed: 11n }, weights, 24.32],
    ['a temperature', { seed: 12n, temperature: 2 }, weights.map(Math.sqrt), 24.32],
    ['top_k', { seed: 13n, topK: 3 }, [0, 0, 0, 0, 10, 20, 30, 0], 13.82],
    ['top_p', { seed: 14n, topP: 0.7 }, [0, 0, 0, 0, 10, 20, 30, 0], 13.82],
    ['min_p', { seed: 15n, minP: 0.15 }, [0, 0, 0, 0, 10, 20, 30, 5], 16.27],
    ['top_k then top_p', { seed: 16n, topK: 3, topP: 0.8 }, [0, 0, 0, 0, 0, 20, 30, 0], 10.83],
  ])('follows the distribution: %s', (_, raw, expected, bound) => {
    expect(chiSquare(logits, raw, expected, 20_000)).toBeLessThan(bound);
  });

  it('takes the token whose part of the cumulative weight has the random number', () => {
    const token = sample(Array<number>(1000).fill(0), { seed: 9n }).token;
    expect(token).toBe(Math.floor(uniform(9n, 0) * 1000));
  });
});

describe('a vocabulary of 151,936 tokens', () => {
  const vocabSize = 151_936;
  const logits = Float32Array.from(
    { length: vocabSize },
    (_, token) => 3 * Math.sin(token * 12.9898) + uniform(1n, token),
  );

  it.each([[1], [20], [1000], [100_000], [vocabSize]])('keeps exactly the %i best with top_k', (topK) => {
    // At this temperature all weights are nearly equal, so a wrong candidate would be drawn soon.
    const order = [...logits.keys()].sort((a, b) => logits[b]! - logits[a]! || a - b);
    const best = new Set(order.slice(0, topK));
    const sampler = new Sampler(vocabSize);
    const tokens = new TokenBuffer([0]);
    const params = parseSamplingParams(
      { topK, temperature: 1000, seed: 3n },
      { vocabSize, maxTokensDefault: 100, drawSeed: () => 0n },
    );
    for (let index = 0; index < 30; index++) {
      const { token } = sampler.sample(logits, { params, promptLength: tokenCount(1), eosTokenIds: [] }, tokens);
      expect(best.has(token)).toBe(true);
      tokens.push(token);
    }
  });
});

describe('a mask', () => {
  const masked = (
    logits: readonly number[],
    allowed: readonly number[],
    raw: object = {},
    eos: readonly number[] = [],
  ) => {
    const mask = new Uint32Array(Math.ceil(logits.length / 32));
    for (const token of allowed) mask[token >> 5] = mask[token >> 5]! | (1 << (token & 31));
    const params = parseSamplingParams(raw, { vocabSize: logits.length, maxTokensDefault: 9, drawSeed: () => 3n });
    const request = { params, promptLength: tokenCount(1), eosTokenIds: eos.map(tokenId) };
    return new Sampler(logits.length).sample(Float32Array.from(logits), request, new TokenBuffer([0]), {
      allowed: mask,
    });
  };
  const logits = Array.from({ length: 40 }, (_, token) => token / 10);

  it('restricts every way of sampling, also against bias', () => {
    for (const raw of [{ temperature: 0 }, { temperature: 9 }, { topK: 3 }, { topP: 0.5 }, { minP: 0.1 }]) {
      expect([5, 35]).toContain(masked(logits, [5, 35], raw).token);
      expect(masked(logits, [5], { ...raw, logitBias: { 39: 100 } }).token).toBe(5);
    }
    expect(masked(logits, [5, 35, 39], { temperature: 0 }).token).toBe(39);
  });

  it('comes before minTokens: if nothing but EOS is allowed, EOS is sampled', () => {
    expect(masked(logits, [7], { minTokens: 5, logitBias: { 7: -100 } }, [7]).token).toBe(7);
    expect(masked(logits, [7, 8], { minTokens: 5, temperature: 0 }, [8]).token).toBe(7);
  });

  it('gives logprobs among the allowed tokens', () => {
    const { logprobs } = masked([5, 1, 1, 9], [1, 2], { temperature: 0, logprobs: 4 });
    expect(logprobs!.logprob).toBeCloseTo(-Math.log(2), 12);
    expect(logprobs!.top.map(({ token }) => token)).toEqual([1, 2]);
  });

  it('without any token is an error of the request, and broken logits are one of the model', () => {
    expect(() => masked(logits, [])).toThrow(/allows no token at position 1/);
    expect(() => masked([1, Number.NaN, 2], [0])).toThrow(/NaN as the logit of token 1/);
  });
});
