import { peerRefused, peerUnreachable } from './errors.ts';
import { serverSentData } from './server-sent-data.ts';

/** What a server says of one answer: tokens as they come, and at the end how many tokens of the prompt it had cached. */
export interface ServerChunk {
  /** Tokens that came together; zeros in place of tokens that the server does not name. */
  readonly tokens: readonly number[];
  readonly cachedTokens?: number;
}

/**
 * A server that speaks OpenAI's `/v1/completions` with prompts of tokens: llama.cpp's, vLLM's, SGLang's, our own. It is to
 * serve the same model as is measured, with as many slots as there are requests.
 */
export class ServerPeer {
  readonly #url: string;
  readonly #model: string;
  readonly #signal: AbortSignal;

  private constructor(url: string, model: string, signal: AbortSignal) {
    this.#url = url;
    this.#model = model;
    this.#signal = signal;
  }

  /** Asks which model it serves. Throws `peerUnreachable`, `peerRefused`. */
  static async open(url: string, signal: AbortSignal): Promise<ServerPeer> {
    const base = url.replace(/\/+$/, '').replace(/\/v1$/, '');
    const response = await request(`${base}/v1/models`, { signal });
    const { data } = (await response.json()) as { data?: readonly { id?: string }[] };
    return new ServerPeer(base, data?.[0]?.id ?? 'default', signal);
  }

  /**
   * `ignore_eos` is known to all of them. llama.cpp reuses the KV of a slot by itself (`cache_prompt`), and does not name
   * tokens in this protocol; those that know `return_token_ids`, as vLLM does, name them.
   */
  async *complete(prompt: Int32Array, maxTokens: number): AsyncGenerator<ServerChunk> {
    const response = await request(`${this.#url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        model: this.#model,
        prompt: Array.from(prompt),
        max_tokens: maxTokens,
        temperature: 0,
        ignore_eos: true,
        stream: true,
        stream_options: { include_usage: true },
        return_token_ids: true,
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
      const tokens = tokensOf(chunk, count, maxTokens);
      count += tokens.length;
      const cachedTokens = chunk.usage?.prompt_tokens_details?.cached_tokens ?? chunk.timings?.cache_n;
      yield { tokens, ...(cachedTokens === undefined ? {} : { cachedTokens }) };
    }
  }
}

interface CompletionChunk {
  readonly choices?: readonly {
    readonly text?: string;
    readonly token_ids?: readonly number[] | null;
    readonly finish_reason?: string | null;
  }[];
  readonly usage?: {
    readonly completion_tokens?: number;
    readonly prompt_tokens_details?: { readonly cached_tokens?: number } | null;
  } | null;
  /** llama.cpp's. */
  readonly timings?: { readonly cache_n?: number };
  readonly error?: unknown;
}

/**
 * A chunk that ends a choice without text brings no token. Servers keep back tokens that end within a character, so that a
 * chunk may stand for several: the count at the end is the usage's.
 */
function tokensOf({ choices, usage }: CompletionChunk, count: number, maxTokens: number): readonly number[] {
  const [choice] = choices ?? [];
  if (choice?.token_ids !== undefined && choice.token_ids !== null) return choice.token_ids;
  const missing = Math.min(usage?.completion_tokens ?? count, maxTokens) - count;
  if (missing > 0) return new Array<number>(missing).fill(0);
  return choice !== undefined && (choice.text ?? '') !== '' && count < maxTokens ? [0] : [];
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
