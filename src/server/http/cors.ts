import type { FastifyReply, FastifyRequest } from 'fastify';

/** How long a browser may keep the answer to its question. */
const MAX_AGE_SECONDS = 7200;

/**
 * Lets the scripts of web pages from these origins read the answers, errors included. A browser asks before it sends JSON or
 * a key; returns true if this was such a question, which is then answered and needs no API key.
 */
export function allowOrigin(request: FastifyRequest, reply: FastifyReply, origins: readonly string[]): boolean {
  const { origin } = request.headers;
  const allowsAll = origins.includes('*');
  if (!allowsAll) reply.header('vary', 'Origin');
  if (origin === undefined || !(allowsAll || origins.includes(origin))) return false;
  reply.header('access-control-allow-origin', allowsAll ? '*' : origin);
  reply.header('access-control-expose-headers', 'x-request-id, warning, retry-after');
  if (request.method !== 'OPTIONS' || request.headers['access-control-request-method'] === undefined) return false;
  const asked = request.headers['access-control-request-headers'];
  reply.header('access-control-allow-methods', 'GET, POST, PUT, DELETE');
  reply.header('access-control-max-age', MAX_AGE_SECONDS);
  if (asked !== undefined) reply.header('access-control-allow-headers', asked);
  reply.status(204).send();
  return true;
}
