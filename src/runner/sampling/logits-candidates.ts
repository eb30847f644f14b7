/**
 * The part of a distribution that sampling chooses from, as parallel arrays in ascending order of token id.
 * `depths[i]` >= 0 is how far the token lies below the best one, in nats after temperature; `weights[i]`, its
 * unnormalised probability, is exp(-depth).
 */
export interface Candidates {
  readonly ids: Int32Array;
  readonly natsBelowBest: Float64Array;
  readonly weights: Float64Array;
  count: number;
}

/** One row of logits as a distribution: entry `t` lies `(max - logits[t]) / temperature` nats below the best. */
export interface Distribution {
  logits: Float32Array;
  /** The greatest logit. */
  max: number;
  temperature: number;
  /** Tokens deeper than this have no part in it; at most `depthMax`. */
  thresholdNats: number;
}

/**
 * A token this far below the best one is never drawn: a whole vocabulary of a million such tokens together has less
 * than the smallest probability that a 53-bit random number tells from zero (10^6 * e^-52 < 2^-53).
 */
export const thresholdMaxNats = 52;

/** Depths are binned by 1/64 nat: fine enough that the bin in which a head ends is small, and a power of two, so exact. */
const binsPerNat = 64;
export const binCount = thresholdMaxNats * binsPerNat + 1;

export const expOfBin: Float64Array = Float64Array.from({ length: binCount }, (_, bin) => Math.exp(-bin / binsPerNat));

/**
 * exp(-depth) for depth in [0, depthMax], to 15 digits: the bin's value by table, the rest of the bin by Taylor's
 * series, whose first omitted term is below 2^-54. A third of the cost of `Math.exp`, and plain arithmetic, so the bits
 * do not depend on the platform's library.
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
 * What has to look at every entry of a row. In JavaScript below, in C where there is a compiler
 * (`logits-passes.ts`): the same doubles in the same order, so the same bits.
 */
export interface LogitsPasses {
  /** The first of the greatest logits; `noToken` when all are -Infinity, `brokenAt(token)` for a NaN or +Infinity. */
  best(row: Float32Array): number;
  /** Adds 1 per token to the bins of depth. */
  countBins(from: Distribution, bins: Float64Array): void;
  /** Adds each token's weight to the bins of depth; returns their sum by ascending id. */
  weighBins(from: Distribution, bins: Float64Array): number;
  /** Fills `candidates` with the tokens no deeper than `depthLimit`, and returns their mass, summed by ascending id. */
  collectCandidates(candidates: Candidates, from: Distribution, thresholdNats: number): number;
}

export const noToken = -1;
export const nonFiniteAt = (token: number): number => -2 - token;

export const scriptPasses: LogitsPasses = {
  /** One comparison per entry settles both what is greater and what is no number; four at a time, as almost none is either. */
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
      // The best token is always in: 0 / temperature is 0 for every temperature, also when other depths overflow.
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

/** Fills `candidates` with the tokens no deeper than `depthEnd`, and returns their mass. */
export function collectCandidates(
  passes: LogitsPasses,
  candidates: Candidates,
  from: Distribution,
  thresholdNats: number,
): number {
  return passes.collectCandidates(candidates, from, Math.min(from.thresholdNats, thresholdNats));
}

const bins = new Float64Array(binCount);

/** A depth that at least `count` tokens do not exceed, and few more: the end of the bin in which the count is reached. */
export function thresholdOfTopK(passes: LogitsPasses, from: Distribution, count: number): number {
  bins.fill(0);
  passes.countBins(from, bins);
  return thresholdReaching(count);
}

/** A depth above which the head of mass `share` x (all mass) lies. The mass itself goes to `massOut[0]`. */
export function thresholdOfTopP(
  passes: LogitsPasses,
  from: Distribution,
  share: number,
  weightSumOut: Float64Array,
): number {
  bins.fill(0);
  const weightSum = passes.weighBins(from, bins);
  weightSumOut[0] = weightSum;
  // The bins' sums round otherwise than the sum by id: a hair more keeps the true head inside, and costs nothing.
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
