import { assert } from '../../base/assert.ts';
import { defineError } from '../../base/errors.ts';
import { uniform } from '../../base/philox.ts';
import { isAllowed, type TokenMask } from '../../core/constraint.ts';
import { type TokenId, tokenId } from '../../core/ids.ts';
import type { SamplingParams } from '../../core/sampling.ts';
import type { SampledToken, SampleRequest, TokenLogprobs } from '../../core/step.ts';
import type { TokenBuffer } from '../../core/tokens.ts';
import { logOf } from './exp-and-log.ts';
import {
  type Candidates,
  collectCandidates,
  type Distribution,
  expOfNats,
  type LogitsPasses,
  makeCandidates,
  nonFiniteAt,
  noToken,
  scriptPasses,
  thresholdMaxNats,
  thresholdOfTopK,
  thresholdOfTopP,
} from './logits-candidates.ts';
import { applyMask, LogitsEditor, needsEdits } from './logits-edits.ts';
import { computeLogprobs } from './logits-logprobs.ts';
import { TopKTopPFilter } from './top-k-top-p-filter.ts';

export const brokenLogits = defineError(
  'KVASIR_BROKEN_LOGITS',
  'The model {model} computed {found} for position {position}: its weights are corrupt, its file does not fit its architecture, or numbers overflow for this text. Download or convert the model again.',
  500,
);

const noFiniteLogit = '-Infinity as the logit of every token';

export const noTokenAllowed = defineError(
  'KVASIR_NO_TOKEN_ALLOWED',
  'The grammar of the output allows no token at position {position}: the vocabulary has no token for it, or the grammar is too ambiguous. Simplify the grammar.',
  400,
);

/** What is known of a row of logits beside the logits. */
export interface RowFacts {
  /** The result of `LogitsPasses.best`. */
  readonly known?: number | undefined;
  /** The tokens that a grammar allows. */
  readonly allowed?: TokenMask | undefined;
}

/**
 * Chooses the next token. The choice is a pure function of the logits' bits, the parameters and the tokens so far.
 * Equal logits rank by ascending token id, and the only random number is `uniform(seed, output length)`.
 *
 * (For min_p, top_k and top_p, tokens rank by their distance from the best logit as a double. Logits whose distances
 * are equal as doubles count as equal.)
 *
 * Order as in vLLM: the mask of the grammar; logprobs of these logits; bias, min_tokens, penalties; greedy at temperature 0, else temperature,
 * min_p, top_k, top_p (each renormalised over the tokens that are left), and the draw, in ascending order of token id.
 *
 * Has about 40 bytes of scratch memory per vocabulary entry and allocates only its results. A runner has one sampler,
 * which samples one row at a time.
 */
export class Sampler {
  readonly #model: string;
  readonly #passes: LogitsPasses;
  readonly #editor: LogitsEditor;
  readonly #filter: TopKTopPFilter;
  readonly #candidates: Candidates;
  readonly #edited: Float32Array;
  /** The row with the mask of a grammar; allocated by the first such request. */
  #masked: Float32Array | undefined;
  readonly #distribution: Distribution = {
    logits: new Float32Array(0),
    max: 0,
    temperature: 1,
    thresholdNats: thresholdMaxNats,
  };
  readonly #weightSum = new Float64Array(1);

  /** `model`: its name, for errors. */
  constructor(vocabSize: number, passes: LogitsPasses = scriptPasses, model = 'without a name') {
    this.#model = model;
    this.#passes = passes;
    this.#editor = new LogitsEditor(vocabSize);
    this.#filter = new TopKTopPFilter(vocabSize);
    this.#candidates = makeCandidates(vocabSize);
    this.#edited = new Float32Array(vocabSize);
  }

  /**
   * `row`: the logits, one row of `vocabSize` values; read, never written (it may be a view of native memory).
   * `tokens`: prompt and output so far; the chosen token is not appended.
   * @throws KvasirError `brokenLogits` for a NaN or +Infinity in the row, or if all logits are -Infinity;
   * `noTokenAllowed` if the mask is empty.
   */
  sample(
    row: Float32Array,
    request: SampleRequest,
    tokens: TokenBuffer,
    { known, allowed }: RowFacts = {},
  ): SampledToken {
    assert(row.length === this.#edited.length, 'a row has one logit per token of the vocabulary');
    if (allowed === undefined) return this.#sample(row, request, tokens, known);
    // Most often the best token is allowed: it is the best of the allowed tokens too, and greedy sampling needs no others.
    const { temperature, logprobs } = request.params;
    const outputLength = tokens.length - request.promptLength;
    const isBestEnough = temperature === 0 && logprobs === undefined && !needsEdits(request, outputLength);
    const best = isBestEnough ? this.#findBest(row, tokens.length, known) : undefined;
    if (best !== undefined && isAllowed(allowed, best)) return { token: best };
    this.#checkLogits(row, tokens.length, known);
    this.#masked ??= new Float32Array(row.length);
    applyMask(this.#masked, row, allowed);
    if (this.#findBest(this.#masked, tokens.length) === undefined) throw noTokenAllowed({ position: tokens.length });
    const sampled = this.#sample(this.#masked, request, tokens);
    return sampled.logprobs === undefined ? sampled : { ...sampled, logprobs: withoutForbidden(sampled.logprobs) };
  }

  /** A broken logit is an error of the model, also if the grammar does not allow its token. */
  #checkLogits(row: Float32Array, position: number, known: number | undefined): void {
    if (this.#findBest(row, position, known) !== undefined) return;
    throw brokenLogits({ model: this.#model, found: noFiniteLogit, position });
  }

  #sample(logits: Float32Array, request: SampleRequest, tokens: TokenBuffer, known?: number): SampledToken {
    const { params } = request;
    const outputLength = tokens.length - request.promptLength;
    let row = logits;
    let best: TokenId | undefined;
    if (needsEdits(request, outputLength)) {
      row = this.#edited;
      row.set(logits);
      this.#editor.apply(row, request, tokens);
      best = this.#findBest(row, tokens.length);
    }
    // If the edits ban every token (of a tiny vocabulary), the request gets the best token of the unedited logits. That
    // is not an error of the model.
    if (best === undefined) {
      row = logits;
      best = this.#findBest(row, tokens.length, known);
    }
    if (best === undefined) throw brokenLogits({ model: this.#model, found: noFiniteLogit, position: tokens.length });
    const token = params.temperature === 0 ? best : this.#draw(row, best, params, outputLength);
    if (params.logprobs === undefined) return { token };
    const rawBest = row === logits ? best : (this.#findBest(logits, tokens.length, known) ?? best);
    return { token, logprobs: computeLogprobs(logits, logits[rawBest]!, token, params.logprobs) };
  }

  /** The logprobs of a given token at `position`. @throws KvasirError `brokenLogits`, as `sample`. */
  logprobsOf(logits: Float32Array, token: TokenId, topCount: number, position: number): TokenLogprobs {
    const best = this.#findBest(logits, position);
    if (best === undefined) throw brokenLogits({ model: this.#model, found: noFiniteLogit, position });
    return computeLogprobs(logits, logits[best]!, token, topCount);
  }

  /** Undefined if all logits are -Infinity. */
  #findBest(row: Float32Array, position: number, known?: number): TokenId | undefined {
    const best = known ?? this.#passes.best(row);
    if (best >= 0) return best as TokenId;
    if (best === noToken) return undefined;
    const token = nonFiniteAt(best);
    throw brokenLogits({ model: this.#model, found: `${row[token]} as the logit of token ${token}`, position });
  }

  #draw(row: Float32Array, best: TokenId, params: SamplingParams, outputLength: number): TokenId {
    const { topK, topP, minP } = params;
    const candidates = this.#candidates;
    const passes = this.#passes;
    const distribution = this.#distribution;
    distribution.logits = row;
    distribution.max = row[best]!;
    distribution.temperature = params.temperature;
    // min_p is a threshold in nats, because the best token has weight 1.
    distribution.thresholdNats = minP > 0 ? Math.min(thresholdMaxNats, -logOf(minP)) : thresholdMaxNats;
    let weightSum: number;
    if (topK > 0) {
      collectCandidates(passes, candidates, distribution, thresholdOfTopK(passes, distribution, topK));
      this.#filter.keepTopK(candidates, topK);
      weightSum = weigh(candidates);
    } else if (topP < 1) {
      const thresholdNats = thresholdOfTopP(passes, distribution, topP, this.#weightSum);
      collectCandidates(passes, candidates, distribution, thresholdNats);
      weightSum = this.#weightSum[0]!;
    } else {
      weightSum = collectCandidates(passes, candidates, distribution, thresholdMaxNats);
    }
    if (topP < 1) {
      this.#filter.keepTopP(candidates, topP * weightSum);
      weightSum = sumWeights(candidates);
    }
    return pick(candidates, uniform(params.seed, outputLength) * weightSum);
  }
}

/** Fewer top tokens than requested, if the grammar allows fewer. */
function withoutForbidden(logprobs: TokenLogprobs): TokenLogprobs {
  return { ...logprobs, top: logprobs.top.filter(({ logprob }) => logprob > -Infinity) };
}

function weigh(candidates: Candidates): number {
  const { natsBelowBest, weights, count } = candidates;
  let weightSum = 0;
  for (let index = 0; index < count; index++) {
    const weight = expOfNats(natsBelowBest[index]!);
    weights[index] = weight;
    weightSum += weight;
  }
  return weightSum;
}

function sumWeights(candidates: Candidates): number {
  const { weights, count } = candidates;
  let weightSum = 0;
  for (let index = 0; index < count; index++) weightSum += weights[index]!;
  return weightSum;
}

function pick(candidates: Candidates, target: number): TokenId {
  const { ids, weights, count } = candidates;
  let sum = 0;
  for (let index = 0; index < count; index++) {
    sum += weights[index]!;
    if (target < sum) return tokenId(ids[index]!);
  }
  return tokenId(ids[count - 1]!);
}
