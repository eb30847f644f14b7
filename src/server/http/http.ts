import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest, LogController } from 'fastify';
import { AssertionError } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import { TurnBudget } from '../../engine/turn-budget.ts';
import { Access, type AccessOptions } from './access.ts';
import { BodyIntake, type BodyPayload } from './body-intake.ts';
import type { Caller } from './callers.ts';
import type { Connections } from './connections.ts';
import { Exchange, exchangesOf } from './exchange.ts';
import { readBodyJson } from './json-limits.ts';
import type { LogLevel } from './log-format.ts';
import { RequestLog } from './request-log.ts';
import type { HeldMemory, RequestMemory } from './request-memory.ts';
import {
  bodyNotUtf8,
  clientGone,
  contentEncodingNotSupported,
  type ErrorAnswer,
  errorAnswer,
  mediaTypeNotSupported,
  methodNotAllowed,
  routeNotFound,
} from './server-errors.ts';

export interface HttpOptions extends AccessOptions {
  readonly rootPath?: string;
  /** Where an application mounts the endpoints. */
  readonly prefix?: string;
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
  /** What routes get as the body. Default: its JSON. */
  readonly parseBody?: (bytes: Buffer) => unknown;
}

declare module 'fastify' {
  interface FastifyRequest {
    exchange: Exchange;
    /** The path as the endpoints have it: without the query, and without the path where an application mounts them. */
    endpointPath: string;
    /** Set unless the request is refused. */
    caller: Caller;
    /** The body of an error, if the route has no form of its own. Absent: OpenAI's. */
    errorBody: ((answer: ErrorAnswer) => object) | undefined;
    /** The log line of this request. */
    requestLog: RequestLog;
    /** Memory for the body. It is given back when the exchange ends, unless the route takes it. */
    bodyMemory: HeldMemory | undefined;
  }
  interface FastifyContextConfig {
    /** The route requires no API key. */
    isPublic?: boolean;
    /** The route concerns the requests of all API keys. */
    isForAdmins?: boolean;
    /** The body of an error. Default: that of the request. */
    errorBody?: (answer: ErrorAnswer) => object;
  }
}

function refuseSchema(): never {
  throw new AssertionError('routes have no schemas');
}

/** Without these, Fastify loads compilers for schemas (ajv), which takes a tenth of the CPU time of the server's start. */
const compilersFactory = { buildValidator: refuseSchema, buildSerializer: refuseSchema };

/**
 * Configures Fastify for all subjects of HTTP that do not concern models: JSON in strict UTF-8, the format of
 * errors, the API key, request ids, one log line per request.
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
  const access = new Access(options);
  app.decorateRequest('exchange');
  app.decorateRequest('endpointPath');
  app.decorateRequest('caller');
  app.decorateRequest('requestLog');
  app.decorateRequest('errorBody');
  app.decorateRequest('bodyMemory');
  app.addHook('onRequest', (request, reply, done) => {
    begin(request, reply, options);
    try {
      const caller = access.callerOf(request, reply);
      if (caller === undefined) return;
      request.caller = caller;
      done();
    } catch (error) {
      done(error as Error);
    }
  });
  // Before the body is read, which a wrong path says nothing about, and after all hooks of `onRequest`: a server that loads has no paths yet.
  app.addHook('preParsing', (request, reply, payload, done) => {
    if (request.is404) answerNotFound(request, reply);
    else done(null, payload);
  });
  app.removeAllContentTypeParsers();
  const intake = new BodyIntake(options);
  const turn = new TurnBudget();
  app.addContentTypeParser('application/json', async (request: FastifyRequest, payload: BodyPayload) => {
    const body = await intake.read(request, payload);
    holdBody(request, options.memory, body.length);
    while (!turn.take(Math.min(body.length / BYTES_PER_COST, turn.costMax))) await nextTurn();
    try {
      return (options.parseBody ?? parseJson)(body);
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
  request.bodyMemory = memory.holdBody(bytes);
  request.exchange.onEnd(() => request.bodyMemory?.[Symbol.dispose]());
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

function begin(request: FastifyRequest, reply: FastifyReply, options: HttpOptions): void {
  const { clock, connections, prefix = '', lenientApi } = options;
  const exchange = new Exchange(reply.raw);
  const log = new RequestLog(clock);
  request.exchange = exchange;
  const path = request.url.split('?', 1)[0]!;
  request.endpointPath = path.startsWith(prefix) ? path.slice(prefix.length) : path;
  request.requestLog = log;
  if (lenientApi?.hasPath(request.endpointPath) === true) request.errorBody = lenientApi.errorBody;
  connections.add(exchange);
  reply.header('x-request-id', request.id);
  exchange.onEnd(() => {
    if (!exchange.isReleased) log.write(request, reply);
  });
}

/** Answers in the format of the API. Internal errors go to the log with their stack. */
function sendError(error: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const answer = errorAnswer(error);
  noteError(error, request);
  return reply.status(answer.status).headers(answer.headers).send(errorBodyFor(request, answer));
}

/** Paths without an endpoint have a form too. */
export function errorBodyFor({ routeOptions, errorBody }: FastifyRequest, answer: ErrorAnswer): object {
  const form = routeOptions.config?.errorBody ?? errorBody;
  return form?.(answer) ?? answer.body;
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

/** Refuses bytes that are not UTF-8, because U+FFFD in their place would become tokens. Some requests have no body. */
export function parseJson(body: Buffer): unknown {
  if (body.length === 0) return undefined;
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(body);
  } catch (error) {
    throw bodyNotUtf8({}, error);
  }
  return readBodyJson(text);
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
  const allowed = ['GET', 'POST', 'PUT', 'DELETE'].filter((method) => request.server.hasRoute({ method, url: path }));
  if (allowed.length === 0 || allowed.includes(request.method)) return routeNotFound({ method: request.method, path });
  return methodNotAllowed({ path, method: request.method, allowed: allowed.join(', ') });
}

/** A client's id is used if it is short and plain, so that the logs of client and server can be compared. */
function clientRequestId(request: IncomingMessage): string | undefined {
  const id = request.headers['x-request-id'];
  return typeof id === 'string' && /^[\w.:/-]{1,128}$/.test(id) ? id : undefined;
}

const broken = new WeakSet<Socket>();

/**
 * Node's parser could not read these bytes as HTTP, so there is no request. The answer is written to the socket, after those of the requests
 * before: a client takes it for the answer of the first one that has none.
 */
export function answerBrokenRequest(error: Error & { code?: string }, socket: Socket): void {
  // Each further piece of bytes is an error again.
  if (broken.has(socket)) return;
  broken.add(socket);
  const before = [...exchangesOf(socket)].filter(({ isServed }) => isServed);
  const last = before.at(-1);
  if (last === undefined) answerBroken(error, socket);
  else if (error.code === 'ECONNRESET' || error.code === 'HPE_INVALID_EOF_STATE') socket.destroy();
  else last.onEnd(() => answerBroken(error, socket));
}

function answerBroken(error: Error & { code?: string }, socket: Socket): void {
  const isAnswering = [...exchangesOf(socket)].some(({ response }) => response.headersSent);
  if (error.code === 'ECONNRESET' || !socket.writable || isAnswering) {
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
