import { KvasirError } from '../../src/base/errors.ts';
import { serverSentData } from '../subject/server-sent-data.ts';
import { requestRefused } from './errors.ts';
import type { WorkloadRequest } from './workload.ts';

/** One request as its client received it. */
export interface Completion {
  /** Text, token ids and logprobs, as one string for comparing runs. */
  readonly answer: string;
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
  /** Tokens that the connector promised, including those of failed loads. */
  readonly externalTokens: number;
  /** Blocks that the connector promised and whose load failed. */
  readonly failedLoads: number;
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
export async function complete(request: WorkloadRequest, options: CompletionOptions): Promise<Completion> {
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

async function attempt(
  { prompt, maxTokens, sampling }: WorkloadRequest,
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
  let counts: Counts | undefined;
  const tokens: number[] = [];
  const betweenTokensMs: number[] = [];
  const logprobs: number[] = [];
  for await (const data of serverSentData(response)) {
    if (data === '[DONE]') break;
    const chunk = JSON.parse(data) as Chunk;
    const [choice] = chunk.choices ?? [];
    counts = chunk.kv_transfer_params ?? counts;
    if (choice === undefined) continue;
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
    finishReason,
    firstTokenMs,
    longestWaitMs,
    betweenTokensMs,
    usage: {
      computedTokens: counts?.computed_tokens ?? 0,
      externalTokens: counts?.external_tokens ?? 0,
      failedLoads: counts?.failed_loads ?? 0,
    },
  };
}

interface Counts {
  readonly computed_tokens?: number;
  readonly external_tokens?: number;
  readonly failed_loads?: number;
}

interface Chunk {
  readonly choices?: readonly {
    readonly text?: string;
    readonly token_ids?: readonly number[];
    readonly logprobs?: { readonly token_logprobs: readonly number[] } | null;
    readonly finish_reason?: string | null;
  }[];
  readonly kv_transfer_params?: Counts;
}
