import { createHash, randomUUID, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest, LogController } from 'fastify';
import type { Clock } from '../base/clock.ts';
import type { Connections } from './connections.ts';
import { checkJsonLimits } from './json-limits.ts';
import { RequestLog } from './request-log.ts';
import {
  bodyNotJson,
  bodyNotUtf8,
  bodyTooLarge,
  clientGone,
  errorAnswer,
  mediaTypeNotSupported,
  methodNotAllowed,
  routeNotFound,
  unauthorized,
} from './server-errors.ts';
import type { LogLevel } from './server-options.ts';

export interface HttpOptions {
  /** Asked for on every route that is not public; absent = open to all. */
  readonly apiKey?: string;
  readonly bodyMaxBytes: number;
  readonly logLevel: LogLevel;
  /** Takes pino's lines. */
  readonly logDestination: { write(line: string): void };
  readonly clock: Clock;
  /** Gets every response. */
  readonly connections: Connections;
}

declare module 'fastify' {
  interface FastifyRequest {
    /** What will be logged of this request. */
    requestLog: RequestLog;
  }
  interface FastifyContextConfig {
    /** Answers without the API key. */
    isPublic?: boolean;
  }
}

/** A whole request must have come in by then: a client that drips its headers or body holds a connection, not a thread. */
const REQUEST_TIMEOUT_MS = 120_000;

/**
 * Fastify with everything that is about HTTP and nothing about models: JSON in strict UTF-8, OpenAI's form for every
 * error, the API key, request ids, one log line per request.
 */
export function createHttp(options: HttpOptions): FastifyInstance {
  const app = fastify({
    logger: { level: options.logLevel, stream: options.logDestination },
    logController: new LogController({ disableRequestLogging: true }),
    bodyLimit: options.bodyMaxBytes,
    requestTimeout: REQUEST_TIMEOUT_MS,
    routerOptions: { ignoreTrailingSlash: true },
    genReqId: (request) => clientRequestId(request) ?? `req-${randomUUID()}`,
    return503OnClosing: false,
    // A path that cannot be decoded reaches no hook.
    frameworkErrors: (_, request, reply) => {
      begin(request, reply, options);
      void sendError(routeNotFoundOf(request), request, reply);
    },
    clientErrorHandler: answerBrokenRequest,
  });
  app.decorateRequest('requestLog');
  app.addHook('onRequest', (request, reply, done) => {
    begin(request, reply, options);
    done(options.apiKey === undefined ? undefined : refusal(request, options.apiKey));
  });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (_, body, done) => {
    try {
      done(null, parseJson(body as Buffer));
    } catch (error) {
      done(error as Error);
    }
  });
  app.setErrorHandler((error, request, reply) => sendError(translate(error, request, options), request, reply));
  app.setNotFoundHandler((request, reply) => sendError(routeNotFoundOf(request), request, reply));
  return app;
}

function begin(request: FastifyRequest, reply: FastifyReply, { clock, connections }: HttpOptions): void {
  connections.add(reply.raw);
  const log = new RequestLog(clock);
  request.requestLog = log;
  reply.header('x-request-id', request.id);
  reply.raw.once('close', () => log.write(request, reply));
}

/** Answers in OpenAI's form; what is our own fault goes to the log with its stack. */
function sendError(error: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const answer = errorAnswer(error);
  noteError(error, request);
  return reply.status(answer.status).headers(answer.headers).send(answer.body);
}

/** The part of `sendError` for errors that go out in another way (in a stream that has begun). */
export function noteError(error: unknown, request: FastifyRequest): void {
  const answer = errorAnswer(error);
  request.requestLog.errorCode = answer.body.error.code ?? undefined;
  if (answer.internal) request.log.error({ err: error }, 'request failed');
}

/** Strict: bytes that are not UTF-8 must not become U+FFFD and then tokens. */
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

/** V8 quotes a piece of the text it failed at; that may be anyone's prompt, so only the kind and place are told. */
function jsonFault(error: Error): string {
  const position = /position \d+/.exec(error.message)?.[0];
  if (/end of JSON input/i.test(error.message)) return 'it ends too early';
  return position === undefined ? 'it cannot be parsed' : `it cannot be parsed at ${position}`;
}

/** Fastify's own errors, in the words of our catalogue. */
function translate(error: unknown, request: FastifyRequest, options: HttpOptions): unknown {
  const code = (error as { code?: unknown }).code;
  if (code === 'FST_ERR_CTP_BODY_TOO_LARGE') return bodyTooLarge({ limitBytes: options.bodyMaxBytes }, error);
  if (code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE' || code === 'FST_ERR_CTP_EMPTY_TYPE') {
    return mediaTypeNotSupported({ actual: request.headers['content-type'] ?? 'none' }, error);
  }
  if (code === 'FST_ERR_CTP_INVALID_CONTENT_LENGTH') {
    return bodyNotJson({ reason: 'its length is not that of the header' }, error);
  }
  if (code === 'ECONNRESET' && !request.raw.complete) return clientGone({}, error);
  return error;
}

function routeNotFoundOf(request: FastifyRequest): Error {
  const path = request.url.split('?', 1)[0]!.slice(0, 200);
  const allowed = ['GET', 'POST'].filter((method) => request.server.hasRoute({ method, url: path }));
  if (allowed.length === 0 || allowed.includes(request.method)) return routeNotFound({ method: request.method, path });
  return methodNotAllowed({ path, method: request.method, allowed: allowed.join(', ') });
}

function refusal(request: FastifyRequest, apiKey: string): Error | undefined {
  if (request.routeOptions.config.isPublic === true) return undefined;
  const header = request.headers.authorization;
  if (header === undefined) return unauthorized({ problem: 'No API key was sent.' });
  const sent = /^Bearer +(.*)$/i.exec(header)?.[1] ?? '';
  // Digests are of equal length, so the comparison tells nothing about the key by its time.
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(sent), digest(apiKey)) ? undefined : unauthorized({ problem: 'The API key is wrong.' });
}

/** A client's own id is kept, so that its log and ours can be laid side by side; a wild one is not. */
function clientRequestId(request: IncomingMessage): string | undefined {
  const id = request.headers['x-request-id'];
  return typeof id === 'string' && /^[\w.:/-]{1,128}$/.test(id) ? id : undefined;
}

/** What Node's parser could not read as HTTP never becomes a request; it is answered on the bare socket. */
function answerBrokenRequest(this: FastifyInstance, error: Error & { code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const [status, message] =
    error.code === 'HPE_HEADER_OVERFLOW'
      ? ['431 Request Header Fields Too Large', 'The headers are too large.']
      : error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
        ? ['408 Request Timeout', 'The request did not come in whole in time.']
        : ['400 Bad Request', 'This is not valid HTTP.'];
  const body = JSON.stringify({ error: { message, type: 'invalid_request_error', param: null, code: null } });
  socket.end(
    `HTTP/1.1 ${status}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
}
