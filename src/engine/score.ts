import { KvasirError } from '../base/errors.ts';
import { promptTooLong, tooManyTokens } from '../core/errors.ts';
import type { RequestStats } from '../core/request.ts';
import type { AsyncEngine, ScoreInfo } from './contract.ts';
import type { EmbedRequest } from './embed.ts';

/** A query and a document. */
export interface ScoreRequest
  extends Pick<EmbedRequest, 'requestId' | 'cacheSalt' | 'priority' | 'tenant' | 'traceHeaders'> {
  readonly query: string;
  readonly document: string;
  /** False: the value of the model itself, which may be any number, instead of one between 0 and 1. Default true. */
  readonly useActivation?: boolean;
}

/** How relevant the document is, and the statistics of the request. More is more relevant. */
export interface Score {
  readonly score: number;
  readonly stats: RequestStats;
}

type Tokenizing = Pick<AsyncEngine, 'model' | 'tokenizePrompt'>;

/** The tokens of a query and a document, as llama.cpp's server joins them. @throws KvasirError if they are too long. */
export async function pairPrompt(
  engine: Tokenizing,
  { prompt }: ScoreInfo,
  { query, document }: Pick<ScoreRequest, 'query' | 'document'>,
  signal: AbortSignal | undefined,
): Promise<Int32Array> {
  const options = signal === undefined ? {} : { signal };
  if (typeof prompt === 'string') {
    const text = prompt.replace(/\{query\}|\{document\}/g, (name) => (name === '{query}' ? query : document));
    // As llama.cpp: names of control tokens in the query and in the document count too.
    return engine.tokenizePrompt(text, { ...options, addSpecial: false, parseSpecial: true });
  }
  const tokens = (text: string) => engine.tokenizePrompt(text, { ...options, addSpecial: false });
  const parts = [prompt.before, await tokens(query), prompt.between, await tokens(document), prompt.after];
  return Int32Array.from(parts.flatMap((part) => Array.from(part)));
}

/** The score of the values that a reranker computes. */
export function scoreOf(values: Float32Array, { activation }: ScoreInfo, useActivation = true): number {
  const [first = Number.NaN] = values;
  if (!useActivation) return first;
  if (activation === 'sigmoid') return 1 / (1 + Math.exp(-first));
  const most = values.reduce((a, b) => Math.max(a, b), -Infinity);
  return Math.exp(first - most) / values.reduce((sum, value) => sum + Math.exp(value - most), 0);
}

/** The similarity of two vectors of length 1. */
export const similarity = (a: Float32Array, b: Float32Array): number =>
  a.reduce((sum, value, i) => sum + value * b[i]!, 0);

/** Both requests of a similarity. */
export const sumOfStats = (a: RequestStats, b: RequestStats): RequestStats => ({
  ...a,
  promptTokens: a.promptTokens + b.promptTokens,
  cachedTokens: a.cachedTokens + b.cachedTokens,
  computedTokens: a.computedTokens + b.computedTokens,
  recomputedTokens: a.recomputedTokens + b.recomputedTokens,
  preemptions: a.preemptions + b.preemptions,
});

/** An error of a text that is too long, in the words for texts without an output. */
export function asInputError(error: unknown): unknown {
  if (!(error instanceof KvasirError && error.code === promptTooLong.definition.code)) return error;
  const { promptTokens, maxModelLen } = error.fields as { promptTokens: string; maxModelLen: number };
  return tooManyTokens({ promptTokens, maxModelLen, isEmbedding: true });
}
