import type { IncomingMessage } from 'node:http';
import type { FastifyRequest } from 'fastify';
import { ask, type Target } from './forward.ts';

/** A process that does not answer such a question for so long is left out. */
const askMaxMs = 3000;

interface Found {
  readonly answer: IncomingMessage;
  readonly target: Target;
}

/**
 * Asks the processes of all models the same. Resolves to the first answer that knows what was asked for (status other than 404), else to
 * the models that did not answer; undefined: the client has left.
 */
export async function askAll(
  request: FastifyRequest,
  targets: readonly Target[],
  maxMs = askMaxMs,
): Promise<Found | { readonly silent: readonly string[] } | undefined> {
  const asked = targets.map((target) => ({ target, controller: new AbortController() }));
  const endOthers = (found?: Target): void => {
    for (const { target, controller } of asked) if (target !== found) controller.abort();
  };
  const limit = setTimeout(endOthers, maxMs);
  const silent: string[] = [];
  const found = await new Promise<Found | undefined>((resolve) => {
    const ends = asked.map(async ({ target, controller }) => {
      const signal = AbortSignal.any([controller.signal, request.exchange.signal]);
      const answer = await ask(request, target, signal).catch(() => undefined);
      const status = answer?.statusCode ?? 500;
      if (answer !== undefined && status < 500 && status !== 404) return resolve({ answer, target });
      answer?.resume();
      if (status >= 500) silent.push(target.model);
    });
    void Promise.all(ends).then(() => resolve(undefined));
  });
  clearTimeout(limit);
  endOthers(found?.target);
  if (request.exchange.signal.aborted) return undefined;
  return found ?? { silent };
}
