import { serverSentData } from '../../src/cli/proof/server-sent-data.ts';
import { peerPromptDiffers, peerRefused, peerUnreachable } from '../errors.ts';

/** A part of a server's answer: new tokens, and in the last part the number of cached prompt tokens. */
export interface ServerChunk {
  /** Tokens that came together. */
  readonly tokens: readonly number[];
  readonly cachedTokens?: number;
  /** The server's answer to `do_remote_decode`, in its last parts. */
  readonly kvTransferParams?: unknown;
}

/**
 * A server with OpenAI's `/v1/completions` and prompts of tokens: llama.cpp, vLLM, SGLang or Kvasir. It must serve the
 * measured model, with a slot for each request.
 */
export class ServerPeer {
  readonly #url: string;
  readonly #model: string;
  readonly #answerToken: number | undefined;
  readonly #signal: AbortSignal;

  private constructor(url: string, model: string, answerToken: number | undefined, signal: AbortSignal) {
    this.#url = url;
    this.#model = model;
    this.#answerToken = answerToken;
    this.#signal = signal;
  }

  /**
   * Asks the server for its model. `answerToken`: a token that is a whole character. A bias on its logit makes all answers
   * consist of it. llama.cpp's server sends no chunk until a character is complete, so a random model would seem to send
   * all tokens at the end. It does not send token ids either, so the next turn could not repeat them, and would find less
   * in the server's cache. Undefined: answers without a bias.
   * Throws `peerUnreachable`, `peerRefused`.
   */
  static async open(url: string, answerToken: number | undefined, signal: AbortSignal): Promise<ServerPeer> {
    const base = url.replace(/\/+$/, '').replace(/\/v1$/, '');
    const response = await request(`${base}/v1/models`, { signal });
    const { data } = (await response.json()) as { data?: readonly { id?: string }[] };
    return new ServerPeer(base, data?.[0]?.id ?? 'default', answerToken, signal);
  }

  /**
   * Streams an answer of `maxTokens` tokens. All servers support `ignore_eos`; llama.cpp reuses the KV of a slot by
   * default (`cache_prompt`); servers with `return_token_ids`, such as vLLM, send their token ids.
   * `kvTransferParams`: those of the request. Throws `peerUnreachable`, `peerRefused`, and `peerPromptDiffers` if the server
   * counts another number of prompt tokens.
   */
  async *complete(prompt: Int32Array, maxTokens: number, kvTransferParams?: unknown): AsyncGenerator<ServerChunk> {
    const response = await request(`${this.#url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        model: this.#model,
        prompt: Array.from(prompt),
        max_tokens: maxTokens,
        temperature: 0,
        ignore_eos: true,
        ...(this.#answerToken === undefined ? {} : { logit_bias: { [this.#answerToken]: 100 } }),
        stream: true,
        stream_options: { include_usage: true },
        return_token_ids: true,
        ...(kvTransferParams === undefined ? {} : { kv_transfer_params: kvTransferParams }),
      }),
      signal: this.#signal,
    });
    let count = 0;
    for await (const data of serverSentData(response)) {
      if (data === '[DONE]') break;
      const chunk = JSON.parse(data) as CompletionChunk;
      if (chunk.error !== undefined) {
        throw peerRefused({ status: response.status, path: '/v1/completions', body: JSON.stringify(chunk.error) });
      }
      const counted = chunk.usage?.prompt_tokens ?? prompt.length;
      if (counted !== prompt.length) throw peerPromptDiffers({ counted, sent: prompt.length });
      const tokens = this.#tokensOf(chunk, count, maxTokens);
      count += tokens.length;
      const cachedTokens = chunk.usage?.prompt_tokens_details?.cached_tokens ?? chunk.timings?.cache_n;
      const answer = chunk.kv_transfer_params ?? undefined;
      yield {
        tokens,
        ...(cachedTokens === undefined ? {} : { cachedTokens }),
        ...(answer === undefined ? {} : { kvTransferParams: answer }),
      };
    }
  }

  /** A chunk that ends a choice without text has no token. The usage, which comes last, has the exact count. */
  #tokensOf({ choices, usage }: CompletionChunk, count: number, maxTokens: number): readonly number[] {
    const [choice] = choices ?? [];
    if (choice?.token_ids !== undefined && choice.token_ids !== null) return choice.token_ids;
    const missing = (usage?.completion_tokens ?? count) - count;
    const hasText = choice !== undefined && (choice.text ?? '') !== '' && count < maxTokens;
    return new Array<number>(Math.max(missing, hasText ? 1 : 0)).fill(this.#answerToken ?? 0);
  }
}

interface CompletionChunk {
  readonly choices?: readonly {
    readonly text?: string;
    readonly token_ids?: readonly number[] | null;
    readonly finish_reason?: string | null;
  }[];
  readonly usage?: {
    readonly prompt_tokens?: number;
    readonly completion_tokens?: number;
    readonly prompt_tokens_details?: { readonly cached_tokens?: number } | null;
  } | null;
  /** Only in answers of llama.cpp. */
  readonly timings?: { readonly cache_n?: number };
  readonly kv_transfer_params?: unknown;
  readonly error?: unknown;
}

async function request(url: string, init: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, init);
  } catch (error) {
    if (init.signal?.aborted === true) throw error;
    const { cause } = error as { cause?: unknown };
    throw peerUnreachable({ url, reason: cause instanceof Error ? cause.message : String(error) }, error);
  }
  if (response.ok) return response;
  throw peerRefused({
    status: response.status,
    path: new URL(url).pathname,
    body: (await response.text()).slice(0, 500),
  });
}
