import { assertDefined } from '../base/assert.ts';
import { parameterReader } from '../core/parameter-reader.ts';
import type { EngineRequest, Pooling, RequestStats } from '../core/request.ts';
import type { AsyncEngine, GenerateRequest, ModelInfo, OutputDelta } from './contract.ts';
import { wholeOrError } from './early-end.ts';
import { brokenEmbedding, generationFailed, noText, poolingMissing, scoresOnly } from './errors.ts';
import { Pooler } from './pooler.ts';

/** A prompt whose embedding is wanted. */
export interface EmbedRequest
  extends Pick<
    GenerateRequest,
    | 'prompt'
    | 'parseSpecial'
    | 'addSpecial'
    | 'requestId'
    | 'lora'
    | 'cacheSalt'
    | 'priority'
    | 'tenant'
    | 'kvTransferParams'
    | 'traceHeaders'
  > {
  /** The length of the vector: only its first elements, for models that are trained for it. Default: all. */
  readonly dimensions?: number;
  /** Whether the vector has length 1. Default true. */
  readonly normalize?: boolean;
}

/** One vector of `dimensions` elements (default: the length of the model's vectors), in F32, and the statistics of its request. */
export interface Embedding {
  readonly embedding: Float32Array;
  readonly stats: RequestStats;
}

/**
 * How this model makes embeddings. @throws KvasirError `poolingMissing` if neither the file nor an option says it; `scoresOnly`
 * of a reranker.
 */
export function poolingFor({ embedding, scores, name }: ModelInfo): Pooling {
  if (scores !== undefined) throw scoresOnly({ model: name });
  const pooling = embedding?.pooling;
  if (pooling === undefined) throw poolingMissing({ model: name });
  return pooling;
}

/** @throws KvasirError `noText` if the model makes only embeddings or scores. */
export function checkMakesText({ name, makesNoText, scores }: ModelInfo): void {
  if (makesNoText !== true) return;
  const made = scores === undefined ? 'embeddings' : 'scores';
  throw noText({ model: name, made, endpoints: scores === undefined ? '/v1/embeddings' : '/v1/rerank or /v1/score' });
}

/** The pooler of an embedding request. */
export function poolerOf(
  { pooling, isPooled, promptTokens }: Pick<EngineRequest, 'pooling' | 'isPooled' | 'promptTokens'>,
  { embedding, scores }: ModelInfo,
): Pooler | undefined {
  if (pooling === undefined) return undefined;
  // The vector of the runner is used unchanged, as is the hidden state of a last token.
  if (isPooled === true) return new Pooler('last', 1, scores?.length ?? embedding?.length ?? 0);
  const { length } = assertDefined(embedding, 'a model with embeddings');
  return new Pooler(pooling, promptTokens.length, length);
}

export function checkDimensions(dimensions: unknown, { embedding }: ModelInfo): void {
  const max = assertDefined(embedding, 'a model with embeddings').length;
  parameterReader({ dimensions }, 'request').integer('dimensions', { min: 1, max });
}

/**
 * The embedding at the end of a stream. Rejects with the error of the request, with `signal`'s reason, or with
 * `brokenEmbedding`. `model`: its name.
 */
export async function collectEmbedding(
  stream: AsyncIterable<OutputDelta>,
  model: string,
  { dimensions, normalize = true }: EmbedRequest,
  signal: AbortSignal | undefined,
): Promise<Embedding> {
  for await (const delta of stream) {
    if (delta.finish === undefined) continue;
    const { embedding } = wholeOrError(delta, signal);
    if (embedding === undefined) break;
    const broken = embedding.find((value) => !Number.isFinite(value));
    if (broken !== undefined) throw brokenEmbedding({ model, found: String(broken) });
    const cut = embedding.slice(0, dimensions);
    return { embedding: normalize ? normalized(cut) : cut, stats: delta.stats };
  }
  throw generationFailed();
}

/** A vector of zeros stays. */
function normalized(vector: Float32Array): Float32Array {
  let sum = 0;
  for (const value of vector) sum += value * value;
  return sum === 0 ? vector : vector.map((value) => value / Math.sqrt(sum));
}

/** Requests in the engine at a time: enough to fill its steps, far below its queue's limit. */
const inFlightMax = 256;

/** The embeddings of many inputs, in their order, at most `atOnce` at a time. The first error aborts the others. */
export function embedAll(
  engine: Pick<AsyncEngine, 'embed'>,
  requests: readonly EmbedRequest[],
  { signal, atOnce = inFlightMax }: { readonly signal?: AbortSignal | undefined; readonly atOnce?: number } = {},
): Promise<Embedding[]> {
  return allInOrder(requests, (request, stopped) => engine.embed(request, { signal: stopped }), { signal, atOnce });
}

/** The results of `run` for all items, in their order, at most `atOnce` at a time. The first error aborts the others. */
export async function allInOrder<Item, Result>(
  items: readonly Item[],
  run: (item: Item, signal: AbortSignal) => Promise<Result>,
  { signal, atOnce = inFlightMax }: { readonly signal?: AbortSignal | undefined; readonly atOnce?: number } = {},
): Promise<Result[]> {
  const stop = new AbortController();
  const stopped = signal === undefined ? stop.signal : AbortSignal.any([stop.signal, signal]);
  const results: Result[] = [];
  let next = 0;
  const runInTurn = async (): Promise<void> => {
    while (next < items.length) {
      const index = next++;
      results[index] = await run(items[index]!, stopped);
    }
  };
  const lanes = Array.from({ length: Math.min(items.length, atOnce, inFlightMax) }, runInTurn);
  try {
    await Promise.all(lanes);
  } catch (error) {
    next = items.length;
    stop.abort(error);
    await Promise.allSettled(lanes);
    throw error;
  }
  return results;
}
