import type { FastifyReply } from 'fastify';

/** Aborts when the client is gone before the whole response is written. */
export function abortWhenGone({ request }: FastifyReply): AbortController {
  const controller = new AbortController();
  const { signal } = request.exchange;
  if (signal.aborted) controller.abort();
  else signal.addEventListener('abort', () => controller.abort(), { once: true });
  return controller;
}

/**
 * Sends no answer if the work failed because the client closed the connection. The result is then undefined: a reply is a thenable,
 * which resolves to nothing.
 */
export async function unlessGone<T>(
  reply: FastifyReply,
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T | undefined> {
  try {
    return await work(signal);
  } catch (error) {
    if (!signal.aborted) throw error;
    reply.hijack();
    return undefined;
  }
}
