import { KvasirError } from '../../src/base/errors.ts';
import { serverSentData } from '../subject/server-sent-data.ts';
import { requestRefused } from './errors.ts';
import type { WorkloadRequest } from './workload.ts';

/** What a client has seen of one request. */
export interface Completion {
  /** Text, token ids and logprobs, as one text that two runs can be compared by. */
  readonly answer: string;
  readonly finishReason: string | undefined;
  /** From the first attempt to the first token. */
  readonly firstTokenMs: number;
  /** The longest time that the client waited for a token, the first one among them. */
  readonly longestWaitMs: number;
  readonly usage: CompletionUsage;
  /** How often the client sent the request: more than once after its server was killed. */
  readonly attempts: number;
}

export interface CompletionUsage {
  /** Tokens that were computed for the request in all steps, however often. */
  readonly computedTokens: number;
  /** Tokens that the connector promised, lost ones among them. */
  readonly externalTokens: number;
  /** Blocks that the connector promised and that did not arrive. */
  readonly failedLoads: number;
}

export interface CompletionOptions {
  /** The server to ask now; pending while a killed server is being replaced. */
  origin(): Promise<string>;
  readonly signal: AbortSignal;
  /** `count`: the tokens that the request has so far. */
  onTokens?(count: number): void;
}

/** A client sends a request again when its connection breaks, but not for ever. */
const attemptsMax = 3;

/** Streams one completion. If the connection breaks, the request is sent again, as a router would. */
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
      // Connectors on a tier answer it, and with the answer come the counts of the request.
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
      lastMs = nowMs;
    }
    onTokens?.(tokens.length);
  }
  return {
    answer: JSON.stringify([text, tokens, logprobs]),
    finishReason,
    firstTokenMs,
    longestWaitMs,
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
