/**
 * A small router for prefill and decode on different servers, with the requests of vLLM's disaggregation proxies:
 *
 *     client -- request --> router -- max_tokens 1, do_remote_decode --> prefill server -- KV --> Redis
 *                             |  <-- kv_transfer_params ---------------------+                      |
 *                             +---- request + kv_transfer_params ---------> decode server <-- KV ---+
 *     client <-- text ------- router <-- text -------------------------------+
 *
 * No server is needed for the text. If a prefill server dies, another one is asked, or none. If a decode server dies, the request is
 * sent to another server, also in the middle of a stream (`resumed-stream.ts`).
 *
 *     node dist/examples/disaggregated/router.js --port 8000 --prefill http://a:8001 --prefill http://b:8001 --decode http://c:8001
 */
import { randomInt, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { ResumedStream } from './resumed-stream.ts';
import { bodyOf, eventsOf, Upstream } from './upstream.ts';

export interface RouterOptions {
  /** `http://host:port` of each server. */
  readonly prefill: readonly string[];
  readonly decode: readonly string[];
  /** If no server answers, they are asked again for this long. */
  readonly retrySeconds?: number;
}

type Body = Record<string, unknown>;

/** A request of a client on its way. */
interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** The client has gone. */
  readonly signal: AbortSignal;
  readonly headers: Readonly<Record<string, string>>;
}

const completionPaths = ['/v1/completions', '/v1/chat/completions'];
const pauseMs = 100;

export function createRouter({ prefill, decode, retrySeconds = 60 }: RouterOptions): Server {
  const prefillers = prefill.map((origin) => new Upstream(origin));
  const decoders = decode.map((origin) => new Upstream(origin));
  const all = [...decoders, ...prefillers];
  if (all.length === 0)
    throw new Error('Name a server with --prefill or --decode, such as --decode http://127.0.0.1:8001.');

  const server = createServer((request, response) => {
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    const exchange = { request, response, signal: gone.signal, headers: headersFor(request) };
    route(exchange).catch((error: unknown) => {
      if (gone.signal.aborted) return;
      if (response.headersSent) response.destroy();
      else answerError(response, `No server answered: ${error instanceof Error ? error.message : String(error)}`);
    });
  });
  server.once('close', () => {
    for (const upstream of all) upstream.close();
  });
  return server;

  async function route(exchange: Exchange): Promise<void> {
    const { request } = exchange;
    const sent = await buffer(request);
    const body = completionPaths.includes(pathOf(request)) ? parseObject(sent) : undefined;
    // A server answers what is no completion, such as /v1/models, and also says what is wrong with a body.
    if (body === undefined) return await forward(exchange, sent);
    // Without a seed, two servers would draw two seeds.
    body.seed ??= randomInt(2 ** 31);
    const transfer = await prefillOn(exchange, body);
    const decoding = JSON.stringify(transfer === undefined ? body : { ...body, kv_transfer_params: transfer });
    if (body.stream === true) await stream(exchange, decoding);
    else await forward(exchange, decoding);
  }

  /** The answer of a prefill server to the decode server; undefined: there is none, and the decode server computes the prompt. */
  async function prefillOn(exchange: Exchange, body: Body): Promise<unknown> {
    const asked = JSON.stringify(prefillRequest(body));
    for (const upstream of inOrder(prefillers)) {
      try {
        const answer = await upstream.send({ ...requestTo(exchange), body: asked }, exchange.signal);
        const { kv_transfer_params: transfer } = parseObject(await bodyOf(answer)) ?? {};
        if (answer.statusCode === 200) return transfer ?? undefined;
        // The request is wrong. The decode server says so to the client.
        if (answer.statusCode! < 500 && answer.statusCode !== 429) return undefined;
      } catch (error) {
        if (exchange.signal.aborted) throw error;
        // The server has died. The next one may find a part of its KV in the shared tier.
      }
    }
    return undefined;
  }

  /** Calls `use` with one server after the other, until it does not throw. Any server can decode; prefill servers come last. */
  async function onAnyServer(exchange: Exchange, use: (upstream: Upstream) => Promise<void>): Promise<void> {
    const untilMs = Date.now() + 1000 * retrySeconds;
    for (;;) {
      let failure: unknown;
      for (const upstream of [...inOrder(decoders), ...inOrder(prefillers)]) {
        try {
          return await use(upstream);
        } catch (error) {
          if (exchange.signal.aborted) throw error;
          failure = error;
        }
      }
      if (Date.now() >= untilMs) throw failure;
      await sleep(pauseMs, undefined, { signal: exchange.signal });
    }
  }

  /** Nothing is sent to the client before the whole answer is here, so another server can be asked until then. */
  async function forward(exchange: Exchange, body: string | Buffer): Promise<void> {
    await onAnyServer(exchange, async (upstream) => {
      const answer = await upstream.send({ ...requestTo(exchange), body }, exchange.signal);
      const content = await bodyOf(answer);
      refuseUnavailable(answer, upstream);
      exchange.response.writeHead(answer.statusCode!, { ...answerHeaders(answer), 'content-length': content.length });
      exchange.response.end(content);
    });
  }

  async function stream(exchange: Exchange, body: string): Promise<void> {
    const resumed = new ResumedStream();
    const { response } = exchange;
    await onAnyServer(exchange, async (upstream) => {
      const answer = await upstream.send({ ...requestTo(exchange), body }, exchange.signal);
      refuseUnavailable(answer, upstream);
      if (answer.statusCode !== 200) {
        const content = await bodyOf(answer);
        if (response.headersSent) throw new Error(`${upstream.origin} answered ${answer.statusCode}: ${content}`);
        response.writeHead(answer.statusCode!, answerHeaders(answer)).end(content);
        return;
      }
      if (!response.headersSent) response.writeHead(200, answerHeaders(answer));
      resumed.restart();
      for await (const data of eventsOf(answer)) {
        if (data === '[DONE]') {
          response.end('data: [DONE]\n\n');
          return;
        }
        const chunk = JSON.parse(data);
        if (chunk.error !== undefined) throw new Error(`${upstream.origin}: ${data}`);
        const fresh = resumed.take(chunk);
        if (fresh !== undefined && !response.write(`data: ${JSON.stringify(fresh)}\n\n`))
          await once(response, 'drain', { signal: exchange.signal });
      }
      throw new Error(`${upstream.origin} ended the stream early`);
    });
  }
}

/** As vLLM's proxies send it. What only concerns the answer is left out. */
function prefillRequest(body: Body): Body {
  const { stream_options, min_tokens, min_completion_tokens, n, best_of, echo, logprobs, ...rest } = body;
  const { top_logprobs, prompt_logprobs, ...prompt } = rest;
  return {
    ...prompt,
    stream: false,
    max_tokens: 1,
    ...('max_completion_tokens' in body ? { max_completion_tokens: 1 } : {}),
    kv_transfer_params: {
      do_remote_decode: true,
      do_remote_prefill: false,
      remote_engine_id: null,
      remote_block_ids: null,
      remote_host: null,
      remote_port: null,
    },
  };
}

/** Servers that answer first, and of these the ones with the fewest requests. */
const inOrder = (upstreams: readonly Upstream[]): Upstream[] =>
  upstreams.toSorted((a, b) => Number(b.isReady) - Number(a.isReady) || a.open - b.open);

/** A server that loads its model, shuts down or has a full queue: another one may answer. */
function refuseUnavailable({ statusCode = 0 }: IncomingMessage, { origin }: Upstream): void {
  if (statusCode >= 500 || statusCode === 429) throw new Error(`${origin} answered ${statusCode}`);
}

const requestTo = ({ request, headers }: Exchange) => ({ method: request.method!, path: request.url!, headers });

/** All servers get the same id, so that their logs can be compared. */
function headersFor({ headers }: IncomingMessage): Readonly<Record<string, string>> {
  const { authorization, 'x-request-id': id, traceparent } = headers;
  return {
    'content-type': 'application/json',
    'x-request-id': typeof id === 'string' ? id : randomUUID(),
    ...(authorization === undefined ? {} : { authorization }),
    ...(typeof traceparent === 'string' ? { traceparent } : {}),
  };
}

function answerHeaders({ headers }: IncomingMessage): Record<string, string> {
  const names = ['content-type', 'cache-control', 'x-accel-buffering', 'x-request-id', 'retry-after'];
  return Object.fromEntries(names.flatMap((name) => (name in headers ? [[name, String(headers[name])]] : [])));
}

const pathOf = ({ url = '' }: IncomingMessage): string => url.split('?')[0]!;

function parseObject(text: Buffer): Body | undefined {
  try {
    const value: unknown = JSON.parse(text.toString());
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Body) : undefined;
  } catch {
    return undefined;
  }
}

function answerError(response: ServerResponse, message: string): void {
  const body = JSON.stringify({ error: { message, type: 'server_error', param: null, code: 'no_server' } });
  response.writeHead(503, { 'content-type': 'application/json', 'retry-after': '1' }).end(body);
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const text = { type: 'string' } as const;
  const list = { type: 'string', multiple: true } as const;
  const { values } = parseArgs({ options: { port: text, host: text, prefill: list, decode: list } });
  const server = createRouter({ prefill: values.prefill ?? [], decode: values.decode ?? [] });
  server.listen(Number(values.port ?? 8000), values.host ?? '127.0.0.1', () => console.log('The router listens.'));
}
