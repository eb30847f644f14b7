import type { TokenMask } from '../../core/constraint.ts';
import type { TokenId } from '../../core/ids.ts';
import type { SamplingParams } from '../../core/sampling.ts';
import type { SampleRequest } from '../../core/step.ts';
import type { TokenBuffer } from '../../core/tokens.ts';

/** Whether any edit would change a logit. Most requests need none, and so no copy of their row. */
export function needsEdits(request: SampleRequest, outputLength: number): boolean {
  const { params } = request;
  return params.logitBias.size > 0 || outputLength < params.minTokens || hasPenalties(params);
}

const hasPenalties = (params: SamplingParams): boolean =>
  params.repetitionPenalty !== 1 || params.presencePenalty !== 0 || params.frequencyPenalty !== 0;

/**
 * Applies a request's parameters to its logits before a token is chosen: bias, then minTokens, then penalties (vLLM's
 * order). Penalties cost one pass over the request's tokens; nothing costs a pass over the vocabulary.
 */
export class LogitsEditor {
  // Per token of the vocabulary: 0 = not seen, else 1 + its occurrences in the output. All 0 between calls.
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
   * The repetition penalty (Keskar et al., "CTRL") divides positive logits and multiplies negative logits, for tokens
   * of prompt and output. Presence and frequency penalties (OpenAI) subtract, for tokens of the output only.
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
      // A penalty near 0 must not cause infinity, which would be reported as an error of the model.
      logits[token] = Math.min(logit, float32Max);
      seen[token] = 0;
    }
  }
}

/** Copies `logits` to `masked`, with -Infinity for tokens that are not allowed. 32 tokens at a time, since most masks are nearly full or nearly empty. */
export function applyMask(masked: Float32Array, logits: Float32Array, allowed: TokenMask): void {
  masked.set(logits);
  for (let word = 0; word < allowed.length; word++) {
    const bits = allowed[word]!;
    if (bits === 0xffffffff) continue;
    const start = word * 32;
    const end = Math.min(start + 32, masked.length);
    if (bits === 0) masked.fill(-Infinity, start, end);
    else
      for (let token = start; token < end; token++)
        if (((bits >>> (token - start)) & 1) === 0) masked[token] = -Infinity;
  }
}

const float32Max = (2 - 2 ** -23) * 2 ** 127;

function ban(logits: Float32Array, tokens: readonly TokenId[]): void {
  for (let index = 0; index < tokens.length; index++) logits[tokens[index]!] = -Infinity;
}
