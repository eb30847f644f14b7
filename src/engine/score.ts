import { assertDefined } from '../base/assert.ts';
import { KvasirError } from '../base/errors.ts';
import { promptTooLong, tooManyTokens } from '../core/errors.ts';
import type { RequestStats } from '../core/request.ts';
import type { AsyncEngine, ScoreInfo } from './contract.ts';
import { allInOrder, type EmbedRequest, poolingFor } from './embed.ts';
import { type Truncation, truncatedTokens } from './truncation.ts';

/** A query and a document. */
export interface ScoreRequest
  extends Pick<EmbedRequest, 'requestId' | 'cacheSalt' | 'lora' | 'priority' | 'tenant' | 'traceHeaders'> {
  readonly query: string;
  readonly document: string;
  /** False: the value of the model itself, which may be any number, instead of one between 0 and 1. Default true. */
  readonly useActivation?: boolean;
  /** How texts that are too long are cut. Default: they are errors. */
  readonly truncation?: Truncation;
}

/** How relevant the document is, and the statistics of the request. More is more relevant. */
export interface Score {
  readonly score: number;
  readonly stats: RequestStats;
}

type Tokenizing = Pick<AsyncEngine, 'model' | 'tokenizePrompt'>;

/**
 * The tokens of a query and a document, as llama.cpp's server joins them. With a truncation, the document is cut, unless the model has a
 * template. @throws KvasirError if they are too long.
 */
export async function pairPrompt(
  engine: Tokenizing,
  { prompt }: ScoreInfo,
  { query, document, truncation }: Pick<ScoreRequest, 'query' | 'document' | 'truncation'>,
  signal: AbortSignal | undefined,
): Promise<Int32Array> {
  const options = signal === undefined ? {} : { signal };
  if (typeof prompt === 'string') {
    const text = prompt.replace(/\{query\}|\{document\}/g, (name) => (name === '{query}' ? query : document));
    // As llama.cpp: names of control tokens in the query and in the document count too.
    return engine.tokenizePrompt(text, { ...options, addSpecial: false, parseSpecial: true });
  }
  const isCut = truncation !== undefined;
  const tokens = (text: string) => engine.tokenizePrompt(text, { ...options, addSpecial: false, isCut });
  const first = [...prompt.before, ...(await tokens(query)), ...prompt.between];
  const second = await tokens(document);
  const room = (truncation?.tokensMax ?? Infinity) - first.length - prompt.after.length;
  return Int32Array.from([...first, ...second.subarray(0, Math.max(0, room)), ...prompt.after]);
}

export interface Scores {
  /** Parallel to the pairs. */
  readonly scores: readonly number[];
  /** Of the requests that computed them. */
  readonly stats: readonly RequestStats[];
}

/** The scores of many pairs, at most `atOnce` requests at a time. For similarities, each text is embedded once. */
export async function scoreAll(
  engine: Pick<AsyncEngine, 'model' | 'embed' | 'score' | 'tokenizePrompt' | 'tokenize'>,
  pairs: readonly ScoreRequest[],
  options: { readonly signal?: AbortSignal | undefined; readonly atOnce?: number } = {},
): Promise<Scores> {
  if (engine.model.scores !== undefined) {
    const results = await allInOrder(pairs, (pair, signal) => engine.score(pair, { signal }), options);
    return { scores: results.map(({ score }) => score), stats: results.map(({ stats }) => stats) };
  }
  poolingFor(engine.model);
  const settingsOf = new Map<string, ScoreRequest>();
  for (const pair of pairs) for (const text of [pair.query, pair.document]) settingsOf.set(text, pair);
  const texts = [...settingsOf.keys()];
  const embeddings = await allInOrder(
    texts,
    async (text, signal) => {
      const {
        query: _query,
        document: _document,
        useActivation: _use,
        truncation,
        ...settings
      } = settingsOf.get(text)!;
      const prompt = await truncatedTokens(engine, { text, truncation }, signal);
      return engine.embed({ ...settings, prompt }, { signal });
    },
    options,
  );
  const vectors = new Map(texts.map((text, i) => [text, embeddings[i]!.embedding]));
  return {
    scores: pairs.map(({ query, document }) => similarity(vectors.get(query)!, vectors.get(document)!)),
    stats: embeddings.map(({ stats }) => stats),
  };
}

/** The score of the values that a reranker computes. */
export function scoreOf(values: Float32Array, { activation }: ScoreInfo, useActivation = true): number {
  const [first = Number.NaN] = values;
  if (!useActivation) return first;
  if (activation === 'sigmoid') return 1 / (1 + Math.exp(-first));
  const most = values.reduce((a, b) => Math.max(a, b), -Infinity);
  return Math.exp(first - most) / values.reduce((sum, value) => sum + Math.exp(value - most), 0);
}

/** Of two vectors of length 1. */
const similarity = (a: Float32Array, b: Float32Array): number => a.reduce((sum, value, i) => sum + value * b[i]!, 0);

const summedCounts = ['promptTokens', 'cachedTokens', 'computedTokens', 'recomputedTokens', 'preemptions'] as const;

/** Of both requests of a similarity. */
export function sumOfStats([first, ...others]: readonly RequestStats[]): RequestStats {
  const sum = { ...assertDefined(first, 'a score has a request') };
  for (const stats of others) for (const name of summedCounts) sum[name] += stats[name];
  return sum;
}

/** An error of a text that is too long, in the words for texts without an output. */
export function asInputError(error: unknown): unknown {
  if (!(error instanceof KvasirError && error.code === promptTooLong.definition.code)) return error;
  const { promptTokens, isLeast = false, maxModelLen } = error.fields as unknown as Parameters<typeof tooManyTokens>[0];
  return tooManyTokens({ promptTokens, isLeast, maxModelLen, isEmbedding: true });
}
