import {
  createServer,
  request as httpRequest,
  type IncomingMessage,
  type RequestListener,
  type Server,
} from 'node:http';
import { type Duplex, duplexPair, Readable } from 'node:stream';
import type { ReadableStream as NodeReadableStream } from 'node:stream/web';

/** A handler of web standards, for frameworks whose routes are functions from `Request` to `Response`. */
export type WebHandler = (request: Request) => Promise<Response>;

/**
 * Answers web requests by a listener of `node:http`. Each request has a connection of its own in memory, so the listener sees what it sees
 * of a socket: the speed of the reader, the end of the client, and bodies that come in parts.
 */
export function webHandler(listener: RequestListener): WebHandler {
  // It never listens.
  const server = createServer(listener);
  return (request) => new Promise((resolve, reject) => send(server, request, resolve, reject));
}

function send(
  server: Server,
  request: Request,
  resolve: (response: Response) => void,
  reject: (error: Error) => void,
): void {
  const [near, far] = duplexPair();
  server.emit('connection', asSocket(far));
  const { pathname, search, host } = new URL(request.url);
  const { method, body, signal } = request;
  const outgoing = httpRequest({
    createConnection: () => asSocket(near),
    method,
    path: pathname + search,
    headers: { host, ...Object.fromEntries(request.headers), connection: 'close' },
    signal,
  });
  outgoing.on('error', (error) => {
    far.destroy();
    reject(error);
  });
  outgoing.on('response', (incoming) => {
    incoming.on('close', () => far.destroy());
    resolve(responseOf(incoming, method));
  });
  if (body === null) outgoing.end();
  else {
    const readable = Readable.fromWeb(body as NodeReadableStream);
    readable.on('error', (error) => outgoing.destroy(error));
    readable.pipe(outgoing);
  }
}

function responseOf(incoming: IncomingMessage, method: string): Response {
  const status = incoming.statusCode ?? 500;
  const headers = new Headers();
  for (const [name, value = []] of Object.entries(incoming.headers))
    if (!hopByHop.has(name)) for (const each of [value].flat()) headers.append(name, each);
  const hasBody = method !== 'HEAD' && ![101, 204, 205, 304].includes(status);
  if (!hasBody) incoming.resume();
  return new Response(hasBody ? (Readable.toWeb(incoming) as ReadableStream) : null, { status, headers });
}

/** Concern the connection, not the answer. */
const hopByHop = new Set(['connection', 'keep-alive', 'transfer-encoding']);

/** `node:http` sets the timeouts of sockets, which a connection in memory does not need. */
const asSocket = (side: Duplex): Duplex =>
  Object.assign(side, { setTimeout: () => side, setKeepAlive: () => side, setNoDelay: () => side });
