import type { TokenId } from '../../core/ids.ts';
import type { SamplingParams } from '../../core/sampling.ts';
import type { SampleRequest } from '../../core/step.ts';
import type { TokenBuffer } from '../../core/tokens.ts';

/** Whether any edit would change a logit, so that the common request is spared the copy of its row. */
export function needsEdits(request: SampleRequest, outputLength: number): boolean {
  const { params } = request;
  return params.logitBias.size > 0 || outputLength < params.minTokens || hasPenalties(params);
}

const hasPenalties = (params: SamplingParams): boolean =>
  params.repetitionPenalty !== 1 || params.presencePenalty !== 0 || params.frequencyPenalty !== 0;

/**
 * What a request's parameters do to its logits before any token is chosen: bias, the ban on ending too early, then
 * penalties (vLLM's order). Costs one pass over the request's tokens when there are penalties, and nothing per
 * vocabulary entry.
 */
export class LogitsEditor {
  // Per token of the vocabulary: occurrences in the output plus one, or 1 for prompt only; 0 = not seen. All zero between calls.
  readonly #seen: Int32Array;
  readonly #distinct: Int32Array;

  constructor(vocabSize: number) {
    this.#seen = new Int32Array(vocabSize);
    this.#distinct = new Int32Array(vocabSize);
  }

  /** Changes `logits` in place. */
  apply(logits: Float32Array, request: SampleRequest, tokens: TokenBuffer): void {
    const { params } = request;
    for (const [token, bias] of params.logitBias) logits[token] = logits[token]! + bias;
    if (tokens.length - request.promptLength < params.minTokens) {
      ban(logits, request.eosTokenIds);
      ban(logits, params.stopTokenIds);
    }
    if (hasPenalties(params)) this.#penalize(logits, params, tokens.view(), request.promptLength);
  }

  /**
   * Repetition (Keskar et al., "CTRL") divides what is positive and multiplies what is negative, over prompt and
   * output; presence and frequency (OpenAI) subtract, over the output alone.
   */
  #penalize(logits: Float32Array, params: SamplingParams, tokens: Int32Array, promptLength: number): void {
    const seen = this.#seen;
    const distinct = this.#distinct;
    let distinctCount = 0;
    for (let position = 0; position < tokens.length; position++) {
      const token = tokens[position]!;
      if (seen[token] === 0) {
        seen[token] = 1;
        distinct[distinctCount++] = token;
      }
      if (position >= promptLength) seen[token] = seen[token]! + 1;
    }
    const { repetitionPenalty, presencePenalty, frequencyPenalty } = params;
    for (let index = 0; index < distinctCount; index++) {
      const token = distinct[index]!;
      const inOutput = seen[token]! - 1;
      let logit = logits[token]!;
      logit = logit > 0 ? logit / repetitionPenalty : logit * repetitionPenalty;
      if (inOutput > 0) logit -= frequencyPenalty * inOutput + presencePenalty;
      // A penalty near 0 must not make an infinity, which would look like a broken model.
      logits[token] = Math.min(logit, float32Max);
      seen[token] = 0;
    }
  }
}

const float32Max = (2 - 2 ** -23) * 2 ** 127;

function ban(logits: Float32Array, tokens: readonly TokenId[]): void {
  for (let index = 0; index < tokens.length; index++) logits[tokens[index]!] = -Infinity;
}
