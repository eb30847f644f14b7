import { KvasirError } from '../../base/errors.ts';
import type { JsonObject } from '../../base/json.ts';
import type { PromptTokensDetails } from '../../server/apis/openai/types.ts';
import { requestRefused } from './errors.ts';
import { serverSentData } from './server-sent-data.ts';

/** A request to `/v1/completions`. */
export interface CompletionRequest {
  readonly prompt: readonly number[];
  readonly maxTokens: number;
  /** Further fields of the API: greedy, or a temperature and a seed. */
  readonly sampling: JsonObject;
}

/** One request as its client received it. */
export interface Completion {
  /** Text, token ids and logprobs, as one string for comparing runs. JSON keeps all bits of the numbers. */
  readonly answer: string;
  readonly text: string;
  readonly tokens: readonly number[];
  readonly logprobs: readonly number[];
  readonly finishReason: string | undefined;
  /** From the first attempt to the first token. */
  readonly firstTokenMs: number;
  /** The longest time that the client waited for a token, including the first one. */
  readonly longestWaitMs: number;
  /** Between the arrivals of tokens, without the time to the first one. */
  readonly betweenTokensMs: readonly number[];
  readonly usage: CompletionUsage;
  /** The number of times that the client sent the request: more than once if its server was killed. */
  readonly attempts: number;
}

export interface CompletionUsage {
  /** Tokens that were computed for the request in all steps. */
  readonly computedTokens: number;
  /** Tokens of the prompt that were cached or loaded. */
  readonly cachedTokens: number;
  /** Of the computed tokens, those that were computed again, because their load failed or the request was preempted. */
  readonly recomputedTokens: number;
  /** Tokens that the connector promised, including those of failed loads. */
  readonly externalTokens: number;
  /** Tokens that were loaded, over all tiers. */
  readonly loadedTokens: number;
  /** Blocks that the connector promised and whose load failed. */
  readonly failedLoads: number;
  /** The numbers of output tokens after which more tokens had been loaded or computed again, ascending. */
  readonly repairedAfter: readonly number[];
}

export interface CompletionOptions {
  /** The address of the server; pending while a killed server is replaced. */
  origin(): Promise<string>;
  readonly signal: AbortSignal;
  /** `count`: the number of tokens of the request so far. */
  onTokens?(count: number): void;
}

/** The largest number of times that a client sends a request whose connection breaks. */
const attemptsMax = 3;

/** Streams one completion. If the connection breaks, the request is sent again, as by a router. */
export async function complete(request: CompletionRequest, options: CompletionOptions): Promise<Completion> {
  const started = performance.now();
  for (let attempts = 1; ; attempts++) {
    try {
      return { ...(await attempt(request, options, started)), attempts };
    } catch (error) {
      options.signal.throwIfAborted();
      if (error instanceof KvasirError || attempts === attemptsMax) throw error;
    }
  }
}

/** All at once, or one after the other. Resolves when all have ended. */
export async function settleAll<T>(
  requests: readonly CompletionRequest[],
  isSequential: boolean,
  run: (request: CompletionRequest, index: number) => Promise<T>,
): Promise<PromiseSettledResult<T>[]> {
  if (!isSequential) return Promise.allSettled(requests.map(run));
  const outcomes: PromiseSettledResult<T>[] = [];
  for (const [i, request] of requests.entries()) outcomes.push(...(await Promise.allSettled([run(request, i)])));
  return outcomes;
}

/** Completes all requests on one server. @throws the error of a request. */
export async function completeAll(
  origin: string,
  requests: readonly CompletionRequest[],
  { signal, isSequential = false }: { readonly signal: AbortSignal; readonly isSequential?: boolean },
): Promise<Completion[]> {
  const options = { origin: () => Promise.resolve(origin), signal };
  const outcomes = await settleAll(requests, isSequential, (request) => complete(request, options));
  return outcomes.map((outcome) => {
    if (outcome.status === 'rejected') throw outcome.reason;
    return outcome.value;
  });
}

async function attempt(
  { prompt, maxTokens, sampling }: CompletionRequest,
  { origin, signal, onTokens }: CompletionOptions,
  started: number,
): Promise<Omit<Completion, 'attempts'>> {
  const response = await fetch(`${await origin()}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      prompt,
      max_tokens: maxTokens,
      ignore_eos: true,
      logprobs: 0,
      return_token_ids: true,
      stream: true,
      stream_options: { include_usage: true, continuous_usage_stats: true },
      // Connectors with a tier answer it, and the answer has the counts of the request.
      kv_transfer_params: { do_remote_decode: true },
      ...sampling,
    }),
    signal,
  });
  if (!response.ok) throw requestRefused({ status: response.status, body: (await response.text()).slice(0, 500) });
  let text = '';
  let finishReason: string | undefined;
  let firstTokenMs = Number.NaN;
  let longestWaitMs = 0;
  let lastMs = started;
  let counts: Counts = {};
  let repaired = 0;
  const repairedAfter: number[] = [];
  const tokens: number[] = [];
  const betweenTokensMs: number[] = [];
  const logprobs: number[] = [];
  for await (const data of serverSentData(response)) {
    if (data === '[DONE]') break;
    const chunk = JSON.parse(data) as Chunk;
    const [choice] = chunk.choices ?? [];
    counts = { ...counts, ...chunk.usage?.prompt_tokens_details, ...chunk.kv_transfer_params };
    if (choice === undefined) continue;
    const now = loadedTokens(counts) + (counts.recomputed_tokens ?? 0);
    if (now > repaired) repairedAfter.push(tokens.length);
    repaired = now;
    text += choice.text ?? '';
    tokens.push(...(choice.token_ids ?? []));
    logprobs.push(...(choice.logprobs?.token_logprobs ?? []));
    finishReason = choice.finish_reason ?? finishReason;
    if ((choice.token_ids ?? []).length > 0) {
      const nowMs = performance.now();
      longestWaitMs = Math.max(longestWaitMs, nowMs - lastMs);
      if (Number.isNaN(firstTokenMs)) firstTokenMs = nowMs - started;
      else betweenTokensMs.push(nowMs - lastMs);
      lastMs = nowMs;
    }
    onTokens?.(tokens.length);
  }
  return {
    answer: JSON.stringify([text, tokens, logprobs]),
    text,
    tokens,
    logprobs,
    finishReason,
    firstTokenMs,
    longestWaitMs,
    betweenTokensMs,
    usage: {
      computedTokens: counts.computed_tokens ?? 0,
      cachedTokens: counts.cached_tokens ?? 0,
      recomputedTokens: counts.recomputed_tokens ?? 0,
      externalTokens: counts.external_tokens ?? 0,
      loadedTokens: loadedTokens(counts),
      failedLoads: counts.failed_loads ?? 0,
      repairedAfter,
    },
  };
}

type Counts = Partial<PromptTokensDetails> & { readonly computed_tokens?: number };

const loadedTokens = ({ loaded_tokens = {} }: Counts): number =>
  Object.values(loaded_tokens).reduce((sum, count) => sum + count, 0);

interface Chunk {
  readonly choices?: readonly {
    readonly text?: string;
    readonly token_ids?: readonly number[];
    readonly logprobs?: { readonly token_logprobs: readonly number[] } | null;
    readonly finish_reason?: string | null;
  }[];
  readonly usage?: { readonly prompt_tokens_details?: PromptTokensDetails } | null;
  readonly kv_transfer_params?: Counts;
}
