import type { JsonObject } from '../../src/base/json.ts';
import { Prng } from '../../src/base/prng.ts';
import { serverSentData } from '../../src/cli/proof/server-sent-data.ts';
import { RandomTokens } from '../random-tokens.ts';

/** A body of `/v1/completions` whose answer is always the same. */
export type SoakRequest = JsonObject & { readonly max_tokens: number };

/** Requests that share prefixes, greedy and sampled, short and long. The blocks of all of them are more than the pool has. */
export function soakRequests(seed: number, vocabSize: number, count: number): SoakRequest[] {
  const random = new RandomTokens(seed, vocabSize);
  const prng = new Prng(seed);
  const prefixes = Array.from({ length: 8 }, () => [...random.take(prng.between(100, 400))]);
  return Array.from({ length: count }, (_, i) => ({
    prompt: [...prng.pick(prefixes), ...random.take(prng.between(1, 60))],
    max_tokens: prng.between(4, 64),
    ignore_eos: true,
    return_token_ids: true,
    stream: true,
    ...(prng.chance(0.5) ? { temperature: 0 } : { temperature: 0.8, top_p: 0.95, seed: seed + i }),
  }));
}

export type SoakOutcome =
  | { readonly kind: 'answer'; readonly answer: string }
  /** This client closed the connection. */
  | { readonly kind: 'aborted' }
  /** Status 503 with `retry-after`: the client sends the request again. */
  | { readonly kind: 'refused' }
  | { readonly kind: 'lost'; readonly reason: string };

interface Chunk {
  readonly choices?: readonly {
    readonly text?: string;
    readonly token_ids?: readonly number[];
    readonly finish_reason?: string | null;
  }[];
  readonly error?: { readonly message?: string };
}

/** No request takes so long, also while ranks are replaced. */
const limitMs = 180_000;

/** Sends a request. `abortAfter`: closes the connection after this number of tokens. */
export async function send(origin: string, request: SoakRequest, abortAfter = Infinity): Promise<SoakOutcome> {
  const stop = new AbortController();
  const limit = setTimeout(() => stop.abort(new Error(`no answer in ${limitMs / 1000} s`)), limitMs);
  let text = '';
  const tokens: number[] = [];
  try {
    const response = await fetch(`${origin}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(request),
      signal: stop.signal,
    });
    if (response.status === 503 && response.headers.has('retry-after')) {
      await response.arrayBuffer();
      return { kind: 'refused' };
    }
    if (!response.ok) return lost(`status ${response.status}: ${(await response.text()).slice(0, 300)}`);
    if (abortAfter === 0) return { kind: 'aborted' };
    for await (const data of serverSentData(response)) {
      if (data === '[DONE]') return lost(`the stream ended after ${tokens.length} tokens without a reason`);
      const { choices: [choice] = [], error } = JSON.parse(data) as Chunk;
      if (error !== undefined) return lost(`error: ${error.message}`);
      text += choice?.text ?? '';
      tokens.push(...(choice?.token_ids ?? []));
      if (tokens.length >= abortAfter) return { kind: 'aborted' };
      const reason = choice?.finish_reason ?? undefined;
      if (reason === 'length') return { kind: 'answer', answer: JSON.stringify([text, tokens]) };
      if (reason !== undefined) return lost(`it ended with ${reason} after ${tokens.length} tokens`);
    }
    return lost(`the connection was closed after ${tokens.length} tokens`);
  } catch (error) {
    return lost(`after ${tokens.length} tokens: ${reasonOf(error)}`);
  } finally {
    clearTimeout(limit);
    stop.abort();
  }
}

const lost = (reason: string): SoakOutcome => ({ kind: 'lost', reason });

function reasonOf(error: unknown): string {
  const { message, cause } = error as Error;
  return cause instanceof Error
    ? `${message} (${cause.message || String((cause as { code?: unknown }).code)})`
    : message;
}
