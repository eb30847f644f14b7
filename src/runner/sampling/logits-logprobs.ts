import type { TokenId } from '../../core/ids.ts';
import { tokenId } from '../../core/ids.ts';
import type { TokenLogprobs } from '../../core/step.ts';
import { logOf } from './exp-and-log.ts';
import { expOfNats, thresholdMaxNats } from './logits-candidates.ts';

/**
 * Log-probabilities of one row of logits, in double precision and in one order of summing, so equal logits give equal
 * bits (I2). `max` is the row's greatest logit. Equal logits rank by ascending token id. Costs one exponential per
 * vocabulary entry; allocates only the result.
 */
export function computeLogprobs(logits: Float32Array, max: number, chosen: TokenId, topCount: number): TokenLogprobs {
  const chosenLogit = logits[chosen]!;
  let weightSum = 0;
  let rank = 1;
  for (let token = 0; token < logits.length; token++) {
    const logit = logits[token]!;
    const nats = max - logit;
    if (nats <= thresholdMaxNats) weightSum += expOfNats(nats);
    if (logit > chosenLogit || (logit === chosenLogit && token < chosen)) rank++;
  }
  const normalizer = max + logOf(weightSum);
  const top = selectTop(logits, topCount).map((token) => ({
    token: tokenId(token),
    logprob: logits[token]! - normalizer,
  }));
  return { logprob: chosenLogit - normalizer, rank, top };
}

/**
 * The tokens of the `count` greatest logits, best first. By insertion, because `count` is small and insertions are
 * rare.
 */
function selectTop(logits: Float32Array, count: number): number[] {
  const best: number[] = [];
  if (count === 0) return best;
  let least = -Infinity;
  for (let token = 0; token < logits.length; token++) {
    const logit = logits[token]!;
    if (best.length === count && !(logit > least)) continue;
    if (best.length === count) best.pop();
    let place = best.length;
    while (place > 0 && logits[best[place - 1]!]! < logit) place--;
    best.splice(place, 0, token);
    least = logits[best[best.length - 1]!]!;
  }
  return best;
}
