import { expOf } from './exp-and-log.ts';

/**
 * The tokens from which sampling chooses, as parallel arrays in ascending order of token id. `natsBelowBest[i]` >= 0 is
 * the distance of the token's logit from the best logit, in nats after temperature. `weights[i]`, the unnormalised
 * probability, is exp(-natsBelowBest[i]).
 */
export interface Candidates {
  readonly ids: Int32Array;
  readonly natsBelowBest: Float64Array;
  readonly weights: Float64Array;
  count: number;
}

/** One row of logits as a distribution: entry `t` is `(max - logits[t]) / temperature` nats below the best. */
export interface Distribution {
  logits: Float32Array;
  /** The greatest logit. */
  max: number;
  temperature: number;
  /** Tokens that are further below the best have probability 0; at most `thresholdMaxNats`. */
  thresholdNats: number;
}

/**
 * A token this far below the best is never drawn. A million such tokens together have a smaller probability than the
 * smallest difference of 53-bit random numbers (10^6 * e^-52 < 2^-53).
 */
export const thresholdMaxNats = 52;

/** Bins have a width of 1/64 nat: a power of two, so exact, and so small that few tokens share a bin. */
const binsPerNat = 64;
export const binCount = thresholdMaxNats * binsPerNat + 1;

export const expOfBin: Float64Array = Float64Array.from({ length: binCount }, (_, bin) => expOf(-bin / binsPerNat));

/**
 * exp(-nats) for nats in [0, thresholdMaxNats], to 15 digits. A table has the bin's value, and a Taylor series computes
 * the remainder; its first omitted term is below 2^-54. Takes a third of the time of `Math.exp`, and the bits do not
 * depend on the platform's library.
 */
export function expOfNats(nats: number): number {
  const bin = (nats * binsPerNat) | 0;
  const rest = bin / binsPerNat - nats;
  const series =
    1 + rest * (1 + rest * (1 / 2 + rest * (1 / 6 + rest * (1 / 24 + rest * (1 / 120 + rest * (1 / 720))))));
  return expOfBin[bin]! * series;
}

export function makeCandidates(capacity: number): Candidates {
  return {
    ids: new Int32Array(capacity),
    natsBelowBest: new Float64Array(capacity),
    weights: new Float64Array(capacity),
    count: 0,
  };
}

/**
 * Functions that read every entry of a row. They exist in JavaScript (below) and in C (`logits-passes.ts`), which needs
 * a compiler: the same doubles in the same order, so the same bits.
 */
export interface LogitsPasses {
  /** The first of the greatest logits; `noToken` if all are -Infinity, `nonFiniteAt(token)` for a NaN or +Infinity. */
  best(row: Float32Array): number;
  /** Adds 1 per token to its bin. */
  countBins(from: Distribution, bins: Float64Array): void;
  /** Adds each token's weight to its bin; returns the sum of the weights in ascending order of id. */
  weighBins(from: Distribution, bins: Float64Array): number;
  /**
   * Fills `candidates` with the tokens within `thresholdNats`; returns the sum of their weights in ascending order of
   * id.
   */
  collectCandidates(candidates: Candidates, from: Distribution, thresholdNats: number): number;
}

export const noToken = -1;
export const nonFiniteAt = (token: number): number => -2 - token;

export const scriptPasses: LogitsPasses = {
  /** One comparison per entry finds both greater logits and NaN; four at a time, because almost no entry is either. */
  best(row) {
    let best = noToken;
    let max = -Infinity;
    for (let start = 0; start < row.length; start += 4) {
      if (row[start]! <= max && row[start + 1]! <= max && row[start + 2]! <= max && row[start + 3]! <= max) continue;
      const end = Math.min(start + 4, row.length);
      for (let token = start; token < end; token++) {
        const logit = row[token]!;
        if (logit <= max) continue;
        if (!(logit < Infinity)) return nonFiniteAt(token);
        max = logit;
        best = token;
      }
    }
    return best;
  },

  countBins({ logits, max, temperature, thresholdNats }, bins) {
    for (let token = 0; token < logits.length; token++) {
      const nats = (max - logits[token]!) / temperature;
      if (nats > thresholdNats) continue;
      const bin = (nats * binsPerNat) | 0;
      bins[bin] = bins[bin]! + 1;
    }
  },

  weighBins({ logits, max, temperature, thresholdNats }, bins) {
    let weightSum = 0;
    for (let token = 0; token < logits.length; token++) {
      const nats = (max - logits[token]!) / temperature;
      if (nats > thresholdNats) continue;
      const weight = expOfNats(nats);
      const bin = (nats * binsPerNat) | 0;
      bins[bin] = bins[bin]! + weight;
      weightSum += weight;
    }
    return weightSum;
  },

  collectCandidates(candidates, { logits, max, temperature }, thresholdNats) {
    const { ids, natsBelowBest, weights } = candidates;
    let count = 0;
    let weightSum = 0;
    for (let token = 0; token < logits.length; token++) {
      const nats = (max - logits[token]!) / temperature;
      // The best token is always included: 0 / temperature is 0 for every temperature, even if other quotients
      // overflow.
      if (nats > thresholdNats) continue;
      const weight = expOfNats(nats);
      ids[count] = token;
      natsBelowBest[count] = nats;
      weights[count] = weight;
      weightSum += weight;
      count++;
    }
    candidates.count = count;
    return weightSum;
  },
};

/** Fills `candidates` with the tokens within both thresholds; returns the sum of their weights. */
export function collectCandidates(
  passes: LogitsPasses,
  candidates: Candidates,
  from: Distribution,
  thresholdNats: number,
): number {
  return passes.collectCandidates(candidates, from, Math.min(from.thresholdNats, thresholdNats));
}

const bins = new Float64Array(binCount);

/** A threshold that keeps at least `count` tokens and few more: the end of the bin in which the count is reached. */
export function thresholdOfTopK(passes: LogitsPasses, from: Distribution, count: number): number {
  bins.fill(0);
  passes.countBins(from, bins);
  return thresholdReaching(count);
}

/** A threshold that keeps the top-p tokens: `share` of all weight. The sum of all weights goes to `weightSumOut[0]`. */
export function thresholdOfTopP(
  passes: LogitsPasses,
  from: Distribution,
  share: number,
  weightSumOut: Float64Array,
): number {
  bins.fill(0);
  const weightSum = passes.weighBins(from, bins);
  weightSumOut[0] = weightSum;
  // The sums of bins are rounded differently from the sum by id. A slightly larger target still keeps all top-p tokens.
  return thresholdReaching(share * weightSum * (1 + 1e-9));
}

function thresholdReaching(target: number): number {
  let sum = 0;
  for (let bin = 0; bin < binCount; bin++) {
    sum += bins[bin]!;
    if (sum >= target) return (bin + 1) / binsPerNat;
  }
  return thresholdMaxNats;
}
