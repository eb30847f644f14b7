import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest, RequestPayload } from 'fastify';

/** A body that a middleware of Express, such as `express.json()`, has read before this server. */
type ParsedRequest = IncomingMessage & { readonly body?: unknown };

/** A hook `preParsing`: gives the server the bytes of a body that was read already. Without it, the request would hang. */
export function takeParsedBody(
  request: FastifyRequest,
  _: FastifyReply,
  payload: RequestPayload,
  done: (error: Error | null, payload: RequestPayload) => void,
): void {
  const { body, readableEnded } = request.raw as ParsedRequest;
  if (!readableEnded || body === undefined) {
    done(null, payload);
    return;
  }
  const bytes = Buffer.isBuffer(body) ? body : Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
  const length = Number(request.headers['content-length'] ?? bytes.length);
  done(null, Object.assign(Readable.from([bytes]), { receivedEncodedLength: length }));
}
