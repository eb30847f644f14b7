import type { OutgoingHttpHeaders } from 'node:http';
import type { FastifyReply } from 'fastify';
import { firstOrAll, jsonPieces, textPieces } from './json-pieces.ts';
import { endWithin, writePieces } from './slow-reader.ts';

const contentType = 'application/json; charset=utf-8';

/**
 * Sends an answer. A long one is written in pieces, at the reader's speed and with a turn of the event loop after each piece; its length
 * is not known before. Resolves when the client has taken all pieces but the last, or is gone.
 */
export async function sendJson(
  reply: FastifyReply,
  body: object | string,
  { clientTimeoutMs }: { readonly clientTimeoutMs: number },
): Promise<FastifyReply> {
  const { raw } = reply;
  const written = firstOrAll(typeof body === 'string' ? textPieces(body) : jsonPieces(body));
  if (written.only !== undefined) {
    raw.setTimeout(clientTimeoutMs);
    return reply.type(contentType).send(written.only);
  }
  reply.hijack();
  raw.writeHead(reply.statusCode, { ...(reply.getHeaders() as OutgoingHttpHeaders), 'content-type': contentType });
  await writePieces(raw, written.pieces, clientTimeoutMs);
  if (!raw.destroyed) endWithin(raw, clientTimeoutMs);
  return reply;
}
