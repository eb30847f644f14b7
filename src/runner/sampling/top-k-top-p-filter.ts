import { assert } from '../../base/assert.ts';
import type { Candidates } from './logits-candidates.ts';

const binCount = 4096;
/** Up to so many candidates, sorting is faster than another histogram. */
const sortMax = 24;

/**
 * Keeps exactly the top-k or top-p candidates without sorting all of them. A histogram finds the bin in which the count
 * or the weight is reached. Only that bin is split again, until few candidates are left to sort. That takes a few
 * passes over the candidates for any k or p. "Order" below is ascending distance from the best logit, then ascending
 * id.
 */
export class TopKTopPFilter {
  readonly #bins = new Float64Array(binCount);
  /** Indices of the candidates among which the last kept candidate is, in ascending order of token id. */
  readonly #active: Int32Array;

  constructor(capacity: number) {
    this.#active = new Int32Array(capacity);
  }

  /** Keeps the first `limit` candidates in order. The weights are undefined afterwards. */
  keepTopK(candidates: Candidates, limit: number): void {
    assert(limit >= 1, 'at least one candidate is kept');
    if (limit >= candidates.count) return;
    candidates.weights.fill(1, 0, candidates.count);
    this.#keepTop(candidates, limit);
  }

  /** Keeps the fewest candidates in order, at least one, whose weights add up to `weightSum`. Reads the weights. */
  keepTopP(candidates: Candidates, weightSum: number): void {
    this.#keepTop(candidates, weightSum);
  }

  #keepTop(candidates: Candidates, target: number): void {
    const { natsBelowBest, weights } = candidates;
    const active = this.#active;
    let activeCount = candidates.count;
    for (let index = 0; index < activeCount; index++) active[index] = index;
    let reached = 0;
    for (;;) {
      let least = Infinity;
      let greatest = -Infinity;
      for (let index = 0; index < activeCount; index++) {
        const nats = natsBelowBest[active[index]!]!;
        if (nats < least) least = nats;
        if (nats > greatest) greatest = nats;
      }
      if (activeCount <= sortMax || least === greatest) break;
      const scale = (binCount - 1) / (greatest - least);
      // A range of denormals overflows the scale. Such distances differ by less than a rounding error of their weights.
      if (!Number.isFinite(scale)) break;
      const bin = this.#findBin(candidates, activeCount, least, scale, target - reached);
      reached = bin.reached + reached;
      activeCount = keepBin(active, activeCount, natsBelowBest, least, scale, bin.index);
    }
    if (activeCount <= sortMax) sortByNats(active, activeCount, natsBelowBest);
    const cut = findCut(active, activeCount, weights, target - reached);
    keepUpTo(candidates, natsBelowBest[cut]!, cut);
  }

  readonly #found = { index: 0, reached: 0 };

  /** The bin in which the running weight reaches `target`, and the weight of the bins before it. */
  // biome-ignore lint/complexity/useMaxParams: called for each sampled token, so without an object
  #findBin(candidates: Candidates, activeCount: number, least: number, scale: number, target: number) {
    const { natsBelowBest, weights } = candidates;
    const bins = this.#bins.fill(0);
    const active = this.#active;
    for (let index = 0; index < activeCount; index++) {
      const candidate = active[index]!;
      const bin = ((natsBelowBest[candidate]! - least) * scale) | 0;
      bins[bin] = bins[bin]! + weights[candidate]!;
    }
    const found = this.#found;
    found.index = 0;
    found.reached = 0;
    let lastFilled = 0;
    let beforeLastFilled = 0;
    for (let bin = 0, sum = 0; bin < binCount; bin++) {
      const weight = bins[bin]!;
      if (weight === 0) continue;
      lastFilled = bin;
      beforeLastFilled = sum;
      sum += weight;
      if (sum >= target) break;
    }
    // If the sum stays below the target because of rounding, all candidates are kept: the last bin is found.
    found.index = lastFilled;
    found.reached = beforeLastFilled;
    return found;
  }
}

// biome-ignore lint/complexity/useMaxParams: called for each sampled token, so without an object
function keepBin(
  active: Int32Array,
  activeCount: number,
  natsBelowBest: Float64Array,
  least: number,
  scale: number,
  bin: number,
): number {
  let kept = 0;
  for (let index = 0; index < activeCount; index++) {
    const candidate = active[index]!;
    if ((((natsBelowBest[candidate]! - least) * scale) | 0) === bin) active[kept++] = candidate;
  }
  return kept;
}

/** By insertion, which is stable: candidates with equal distances stay in ascending order of id. */
function sortByNats(active: Int32Array, activeCount: number, natsBelowBest: Float64Array): void {
  for (let index = 1; index < activeCount; index++) {
    const candidate = active[index]!;
    const nats = natsBelowBest[candidate]!;
    let hole = index;
    for (; hole > 0 && natsBelowBest[active[hole - 1]!]! > nats; hole--) active[hole] = active[hole - 1]!;
    active[hole] = candidate;
  }
}

/** The last kept candidate, given the candidates of its bin in order. */
function findCut(active: Int32Array, activeCount: number, weights: Float64Array, target: number): number {
  let sum = 0;
  for (let index = 0; index < activeCount; index++) {
    sum += weights[active[index]!]!;
    if (sum >= target) return active[index]!;
  }
  return active[activeCount - 1]!;
}

function keepUpTo(candidates: Candidates, thresholdMaxNats: number, lastAtThreshold: number): void {
  const { ids, natsBelowBest, weights } = candidates;
  let kept = 0;
  for (let index = 0; index < candidates.count; index++) {
    const nats = natsBelowBest[index]!;
    if (nats > thresholdMaxNats || (nats === thresholdMaxNats && index > lastAtThreshold)) continue;
    ids[kept] = ids[index]!;
    natsBelowBest[kept] = nats;
    weights[kept] = weights[index]!;
    kept++;
  }
  candidates.count = kept;
}
