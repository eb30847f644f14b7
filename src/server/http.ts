import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest, LogController } from 'fastify';
import { AssertionError } from '../base/assert.ts';
import type { Clock } from '../base/clock.ts';
import { TurnBudget } from '../engine/turn-budget.ts';
import { keyCheck } from './api-keys.ts';
import { BodyIntake, type BodyPayload } from './body-intake.ts';
import type { Connections } from './connections.ts';
import { allowOrigin } from './cors.ts';
import { checkJsonLimits } from './json-limits.ts';
import type { KeyQueues } from './key-queues.ts';
import { RequestLog } from './request-log.ts';
import type { HeldMemory, RequestMemory } from './request-memory.ts';
import {
  bodyNotJson,
  bodyNotUtf8,
  clientGone,
  contentEncodingNotSupported,
  errorAnswer,
  mediaTypeNotSupported,
  methodNotAllowed,
  routeNotFound,
  unauthorized,
} from './server-errors.ts';
import type { LogLevel } from './server-options.ts';

export interface HttpOptions {
  /** One of them is required on every route that is not public; if absent, no route requires a key. */
  readonly apiKey?: string | readonly string[];
  /** The keys that have limits; they are allowed too. */
  readonly keyQueues?: KeyQueues;
  readonly allowedOrigins?: readonly string[];
  readonly rootPath?: string;
  readonly bodyMaxBytes: number;
  /** A client that sends its body slower than 2 KiB per second, over this time, loses its connection. */
  readonly clientTimeoutMs: number;
  readonly memory: RequestMemory;
  readonly logLevel: LogLevel;
  /** Receives pino's lines. */
  readonly logDestination: { write(line: string): void };
  readonly clock: Clock;
  /** Every response is registered here. */
  readonly connections: Connections;
}

declare module 'fastify' {
  interface FastifyRequest {
    /** The log line of this request. */
    requestLog: RequestLog;
    /** Where the answer is written. */
    response: ServerResponse;
    /** Memory for the body. It is given back when the response is closed, unless the route takes it. */
    bodyMemory: HeldMemory | undefined;
  }
  interface FastifyContextConfig {
    /** The route requires no API key. */
    isPublic?: boolean;
    /** The route's requests count for the limits of their API key. */
    isGeneration?: boolean;
  }
}

function refuseSchema(): never {
  throw new AssertionError('routes have no schemas');
}

/** Without these, Fastify loads compilers for schemas (ajv), which takes a tenth of the CPU time of the server's start. */
const compilersFactory = { buildValidator: refuseSchema, buildSerializer: refuseSchema };

/**
 * Configures Fastify for all subjects of HTTP that do not concern models: JSON in strict UTF-8, OpenAI's format for
 * every error, the API key, request ids, one log line per request.
 */
export function createHttp(options: HttpOptions): FastifyInstance {
  const app = fastify({
    logger: { level: options.logLevel, stream: options.logDestination },
    logController: new LogController({ disableRequestLogging: true }),
    routerOptions: { ignoreTrailingSlash: true },
    schemaController: { compilersFactory },
    rewriteUrl: ({ url = '/' }) => withoutRoot(url, options.rootPath),
    genReqId: (request) => clientRequestId(request) ?? `req-${randomUUID()}`,
    return503OnClosing: false,
    // Fastify runs no hook for a path that cannot be decoded.
    frameworkErrors: (_, request, reply) => {
      begin(request, reply, options);
      void sendError(routeNotFoundOf(request), request, reply);
    },
  });
  configureHttp(app, options);
  app.setNotFoundHandler(answerNotFound);
  return app;
}

/** The part of `createHttp` that concerns one context of an application, and no other context of it. */
export function configureHttp(app: FastifyInstance, options: HttpOptions): void {
  const { apiKey, keyQueues } = options;
  const keys = [...(typeof apiKey === 'string' ? [apiKey] : (apiKey ?? [])), ...(keyQueues?.keys ?? [])];
  const isAllowed = apiKey === undefined && keyQueues === undefined ? undefined : keyCheck(keys);
  app.decorateRequest('requestLog');
  app.decorateRequest('response');
  app.decorateRequest('bodyMemory');
  app.addHook('onRequest', (request, reply, done) => {
    begin(request, reply, options);
    if (options.allowedOrigins !== undefined && allowOrigin(request, reply, options.allowedOrigins)) return;
    done(isAllowed === undefined ? undefined : refusal(request, isAllowed));
  });
  if (keyQueues !== undefined)
    app.addHook('preHandler', async (request, reply) => {
      if (request.routeOptions.config.isGeneration === true) await keyQueues.admit(sentKey(request), reply.raw);
    });
  app.removeAllContentTypeParsers();
  const intake = new BodyIntake(options);
  const turn = new TurnBudget();
  app.addContentTypeParser('application/json', async (request: FastifyRequest, payload: BodyPayload) => {
    const body = await intake.read(request, payload);
    holdBody(request, options.memory, body.length);
    while (!turn.take(Math.min(body.length / BYTES_PER_COST, turn.costMax))) await nextTurn();
    try {
      return parseJson(body);
    } catch (error) {
      // Only now: a middleware may have decoded the body.
      const actual = request.headers['content-encoding'];
      throw actual === undefined ? error : contentEncodingNotSupported({ actual }, error);
    }
  });
  app.setErrorHandler((error, request, reply) => sendError(translate(error, request), request, reply));
}

/** Parsing takes about a microsecond for so many bytes. */
const BYTES_PER_COST = 64;

function holdBody(request: FastifyRequest, memory: RequestMemory, bytes: number): void {
  const held = memory.holdBody(bytes);
  // The client may have left, and then nothing would give the memory back.
  if (request.response.destroyed) held[Symbol.dispose]();
  else request.bodyMemory = held;
}

/** The path of an endpoint, whether or not the proxy in front has removed the root path. */
function withoutRoot(url: string, root: string | undefined): string {
  if (root === undefined || !url.startsWith(root)) return url;
  const rest = url.slice(root.length);
  if (rest === '' || rest.startsWith('?')) return `/${rest}`;
  return rest.startsWith('/') ? rest : url;
}

/** For paths without an endpoint. */
export function answerNotFound(request: FastifyRequest, reply: FastifyReply): FastifyReply {
  return sendError(routeNotFoundOf(request), request, reply);
}

function begin(request: FastifyRequest, reply: FastifyReply, { clock, connections }: HttpOptions): void {
  connections.add(reply.raw);
  const log = new RequestLog(clock);
  request.requestLog = log;
  request.response = reply.raw;
  reply.header('x-request-id', request.id);
  reply.raw.once('close', () => {
    log.write(request, reply);
    request.bodyMemory?.[Symbol.dispose]();
  });
}

/** Answers in OpenAI's format. Internal errors go to the log with their stack. */
function sendError(error: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const answer = errorAnswer(error);
  noteError(error, request);
  return reply.status(answer.status).headers(answer.headers).send(answer.body);
}

const loggedCauses = new WeakSet<object>();

/** A broken engine refuses all requests for one cause, whose stack is logged once. Each request has a line with the code of its error. */
function isLogged(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : undefined;
  if (typeof cause !== 'object' || cause === null) return false;
  if (loggedCauses.has(cause)) return true;
  loggedCauses.add(cause);
  return false;
}

/** Logs an error whose answer is sent in another way, as an event of a stream. */
export function noteError(error: unknown, request: FastifyRequest): void {
  const answer = errorAnswer(error);
  request.requestLog.errorCode = answer.body.error.code ?? undefined;
  if (answer.internal && !isLogged(error)) request.log.error({ err: error }, 'request failed');
}

/** Refuses bytes that are not UTF-8, because U+FFFD in their place would become tokens. */
function parseJson(body: Buffer): unknown {
  checkJsonLimits(body);
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(body);
  } catch (error) {
    throw bodyNotUtf8({}, error);
  }
  try {
    return JSON.parse(text);
  } catch (error) {
    throw bodyNotJson({ reason: jsonFault(error as Error) }, error);
  }
}

/** V8's message quotes a piece of the text, which can be a prompt, so the answer has only the kind and the position. */
function jsonFault(error: Error): string {
  const position = /position \d+/.exec(error.message)?.[0];
  if (/end of JSON input/i.test(error.message)) return 'it ends too early';
  return position === undefined ? 'it cannot be parsed' : `it cannot be parsed at ${position}`;
}

/** Replaces Fastify's errors by entries of the catalogue. */
function translate(error: unknown, request: FastifyRequest): unknown {
  const code = (error as { code?: unknown }).code;
  if (code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE' || code === 'FST_ERR_CTP_EMPTY_TYPE') {
    return mediaTypeNotSupported({ actual: request.headers['content-type'] ?? 'none' }, error);
  }
  if (code === 'ECONNRESET' && !request.raw.complete) return clientGone({}, error);
  return error;
}

function routeNotFoundOf(request: FastifyRequest): Error {
  const path = request.url.split('?', 1)[0]!.slice(0, 200);
  const allowed = ['GET', 'POST', 'DELETE'].filter((method) => request.server.hasRoute({ method, url: path }));
  if (allowed.length === 0 || allowed.includes(request.method)) return routeNotFound({ method: request.method, path });
  return methodNotAllowed({ path, method: request.method, allowed: allowed.join(', ') });
}

function refusal(request: FastifyRequest, isAllowed: (key: string) => boolean): Error | undefined {
  if (request.routeOptions.config.isPublic === true) return undefined;
  if (request.headers.authorization === undefined) return unauthorized({ problem: 'No API key was sent.' });
  return isAllowed(sentKey(request)) ? undefined : unauthorized({ problem: 'The API key is wrong.' });
}

const sentKey = ({ headers }: FastifyRequest): string => /^Bearer +(.*)$/i.exec(headers.authorization ?? '')?.[1] ?? '';

/** A client's id is used if it is short and plain, so that the logs of client and server can be compared. */
function clientRequestId(request: IncomingMessage): string | undefined {
  const id = request.headers['x-request-id'];
  return typeof id === 'string' && /^[\w.:/-]{1,128}$/.test(id) ? id : undefined;
}

/** Node's parser could not read these bytes as HTTP, so there is no request; the answer is written to the socket. */
export function answerBrokenRequest(error: Error & { code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const [status, message] =
    error.code === 'HPE_HEADER_OVERFLOW'
      ? ['431 Request Header Fields Too Large', 'The headers are too large.']
      : error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
        ? ['408 Request Timeout', 'The request was not received completely in time.']
        : ['400 Bad Request', 'This is not valid HTTP.'];
  const body = JSON.stringify({ error: { message, type: 'invalid_request_error', param: null, code: null } });
  socket.end(
    `HTTP/1.1 ${status}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
}
