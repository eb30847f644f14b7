import { assert } from '../../base/assert.ts';
import type { Candidates } from './logits-candidates.ts';

const binCount = 4096;
/** Below this, sorting is quicker than another round of bins. */
const sortMax = 24;

/**
 * Keeps exactly the head of a distribution without sorting it: a histogram of depths finds the bin in which the
 * wanted count or mass is reached; that bin alone is split again, until few enough are left to sort. A few passes
 * over the candidates, whatever the head's size. "Order" below is ascending depth, then ascending id.
 */
export class TopKTopPFilter {
  readonly #bins = new Float64Array(binCount);
  /** Indices of candidates that may hold the cut, in ascending order of token id. */
  readonly #active: Int32Array;

  constructor(capacity: number) {
    this.#active = new Int32Array(capacity);
  }

  /** Drops all but the first `limit` in order. Leaves the weights undefined. */
  keepTopK(candidates: Candidates, limit: number): void {
    assert(limit >= 1, 'a head holds at least one candidate');
    if (limit >= candidates.count) return;
    candidates.weights.fill(1, 0, candidates.count);
    this.#keepTop(candidates, limit);
  }

  /** Drops all but the shortest head, at least one, whose weight reaches `mass`. The weights must be filled in. */
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
      // A range of denormals overflows the scale. Such depths differ by less than a rounding error of their weights.
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
    // When rounding keeps the sum below the target to the end, the head is everything: the last bin holds the cut.
    found.index = lastFilled;
    found.reached = beforeLastFilled;
    return found;
  }
}

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

/** By insertion, which is stable: equal depths stay in ascending order of id. */
function sortByNats(active: Int32Array, activeCount: number, natsBelowBest: Float64Array): void {
  for (let index = 1; index < activeCount; index++) {
    const candidate = active[index]!;
    const nats = natsBelowBest[candidate]!;
    let hole = index;
    for (; hole > 0 && natsBelowBest[active[hole - 1]!]! > nats; hole--) active[hole] = active[hole - 1]!;
    active[hole] = candidate;
  }
}

/** The last candidate of the head, given the ordered candidates of the bin where the head ends. */
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
