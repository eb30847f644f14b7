import { type IncomingHttpHeaders, type IncomingMessage, type OutgoingHttpHeaders, request as send } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { byEntries } from '../../base/by-name.ts';
import { errorBodyFor, noteError } from '../http/http.ts';
import { type ErrorAnswer, errorAnswer } from '../http/server-errors.ts';
import { endWithin, roomIn } from '../http/slow-reader.ts';
import { modelProcessEnded } from './errors.ts';

/** Where a request goes. */
export interface Target {
  readonly model: string;
  readonly socketPath: string;
  /** Of the request; absent: it has none. */
  readonly body?: Buffer;
  readonly clientTimeoutMs: number;
}

/** They concern one connection, not the request. The length is that of the body that was received. */
const ofConnection = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'expect',
  'content-length',
]);

/**
 * Sends the request to a model's process as it is, and the answer to the client at the client's speed. A client that leaves ends the
 * request of the process.
 * @throws modelProcessEnded if there is no answer
 */
export async function forward(request: FastifyRequest, reply: FastifyReply, target: Target): Promise<void> {
  const answer = await ask(request, target);
  request.bodyMemory?.[Symbol.dispose]();
  if (answer !== undefined) await passOn(answer, request, reply, target);
  // The client has left.
  else reply.hijack();
}

/** Whether a request did not reach the process of its model: nothing listens there. */
export const isUnsent = (error: unknown): boolean =>
  error instanceof Error && (error.cause as NodeJS.ErrnoException | undefined)?.syscall === 'connect';

/** The answer of a process to the same request, or undefined if the client leaves before it. @throws modelProcessEnded */
export async function ask(
  request: FastifyRequest,
  target: Target,
  signal = request.exchange.signal,
): Promise<IncomingMessage | undefined> {
  const { body, socketPath, model } = target;
  try {
    return await new Promise<IncomingMessage>((resolve, reject) => {
      const upstream = send({
        socketPath,
        method: request.method,
        path: request.raw.url,
        headers: {
          ...requestHeaders(request.headers),
          'x-request-id': request.id,
          ...(body === undefined ? {} : { 'content-length': String(body.length) }),
        },
        // One connection for each request: a kept one may be closed while the next request is sent.
        agent: false,
        signal,
      });
      upstream.once('response', resolve);
      upstream.on('error', reject);
      upstream.end(body);
    });
  } catch (error) {
    if (signal.aborted) return undefined;
    throw modelProcessEnded({ model }, error);
  }
}

/** Sends the answer of a process to the client. */
export async function passOn(
  answer: IncomingMessage,
  request: FastifyRequest,
  reply: FastifyReply,
  { model, clientTimeoutMs }: Target,
): Promise<void> {
  const { raw } = reply;
  reply.hijack();
  request.requestLog.isForwarded = true;
  const headers = { ...(reply.getHeaders() as OutgoingHttpHeaders), ...responseHeaders(answer) };
  raw.writeHead(answer.statusCode ?? 502, headers);
  let end = '';
  try {
    for await (const piece of answer as AsyncIterable<Buffer>) {
      if (raw.destroyed) return;
      raw.write(piece);
      end = (end + piece.subarray(-2).toString('latin1')).slice(-2);
      await roomIn(raw, clientTimeoutMs);
    }
    endWithin(raw, clientTimeoutMs);
  } catch (error) {
    // A reader that is too slow loses its connection: the process has seen it too, and has ended the answer.
    if (raw.destroyed || raw.writableNeedDrain) return void raw.destroy();
    const known = modelProcessEnded({ model }, error);
    noteError(known, request);
    const last = lastEvent(request, String(answer.headers['content-type']), end, errorAnswer(known));
    // An answer that is cut off must not look complete.
    if (last === undefined) raw.destroy();
    else {
      raw.write(last);
      endWithin(raw, clientTimeoutMs);
    }
  }
}

function requestHeaders(headers: IncomingHttpHeaders): OutgoingHttpHeaders {
  return byEntries(Object.entries(headers).filter(([name]) => !ofConnection.has(name)));
}

function responseHeaders({ headers }: IncomingMessage): OutgoingHttpHeaders {
  const kept = Object.entries(headers).filter(([name]) => name === 'content-length' || !ofConnection.has(name));
  return byEntries(kept);
}

/** The event that tells the client of a stream about the error, in the form of its API; undefined inside of an event. */
function lastEvent(request: FastifyRequest, type: string, end: string, answer: ErrorAnswer): string | undefined {
  const { lastEvent: inForm } = request.routeOptions.config;
  const body = errorBodyFor(request, answer);
  if (type.startsWith('application/x-ndjson'))
    return end === '' || end.endsWith('\n') ? `${JSON.stringify(body)}\n` : undefined;
  if (!type.startsWith('text/event-stream') || (end !== '' && end !== '\n\n')) return undefined;
  return inForm?.(answer) ?? `data: ${JSON.stringify(body)}\n\n`;
}
