import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyInstance, FastifyReply } from 'fastify';
import { Registry } from 'prom-client';
import { modelLoading } from './http/server-errors.ts';
import { addGauge } from './metrics/collected.ts';
import type { HttpMetrics } from './metrics/http-metrics.ts';
import { registerPage } from './operator/page-routes.ts';

/** What a server does before it serves, in the order in which it happens. */
export type LoadPhase = 'starting' | 'downloading' | 'weights' | 'hashing' | 'preparing';

export interface LoadStatus {
  readonly phase: LoadPhase;
  /** A sentence for people. */
  readonly message: string;
  /** Of this phase, if it can be measured. */
  readonly doneBytes?: number;
  readonly totalBytes?: number;
  /** When a client should ask again: a guess of what is left. */
  readonly retryAfterSeconds: number;
}

export interface LoadingRouteOptions {
  readonly version: string;
  readonly httpMetrics: HttpMetrics;
  loadStatus(): LoadStatus;
  /** Resolves when the server serves (true), after the time limit of requests, or when the signal is aborted. */
  served(signal: AbortSignal): Promise<boolean>;
  /** Lets the application that serves answer the request. */
  handOver(request: IncomingMessage, response: ServerResponse): void;
}

/**
 * The endpoints of a server whose engine is not there yet. Probes, scrapes and the page get an answer. Requests for work wait, before
 * their bodies are read. After the time limit, and every other request at once, they get status 503 with the progress.
 */
export function registerLoadingRoutes(app: FastifyInstance, options: LoadingRouteOptions): void {
  const { loadStatus, httpMetrics } = options;
  app.addHook('onRequest', (request, reply, done) => {
    const { exchange, id, method, routeOptions } = request;
    if (method !== 'POST' || routeOptions.config?.isPublic === true) return done();
    void options.served(exchange.signal).then((isServed) => {
      if (!isServed) return done();
      request.raw.headers['x-request-id'] = id;
      reply.hijack();
      exchange.release();
      options.handOver(request.raw, reply.raw);
    });
  });
  httpMetrics.watch(app);
  app.addHook('onRequest', (request, _, done) => {
    if (request.routeOptions.config?.isPublic === true) return done();
    const { message, retryAfterSeconds } = loadStatus();
    done(modelLoading({ progress: message, retryAfterSeconds }));
  });
  const config = { isPublic: true };
  const answerHealth = (_: unknown, reply: FastifyReply): FastifyReply => {
    const { retryAfterSeconds, ...progress } = loadStatus();
    void reply.header('retry-after', String(retryAfterSeconds));
    return reply.status(503).send({ status: 'loading', ...progress });
  };
  app.get('/health', { config }, answerHealth);
  app.get('/ping', { config }, answerHealth);
  app.post('/ping', { config }, answerHealth);
  // A restart would begin the load again.
  app.get('/health/live', { config }, () => ({ status: 'ok' }));
  app.get('/version', { config }, () => ({ version: options.version }));
  registerPage(app);
  const registry = loadMetrics(loadStatus);
  app.get('/metrics', { config }, async (_, reply) => {
    reply.type(registry.contentType);
    return `${await registry.metrics()}${await httpMetrics.text()}`;
  });
}

/** Without `kvasir:healthy`, whose alert concerns engines that have served. */
function loadMetrics(loadStatus: () => LoadStatus): Registry {
  const registry = new Registry();
  addGauge(
    registry,
    {
      name: 'kvasir:load_progress',
      help: 'While the server loads: the part of the phase that is done, 0 to 1.',
      read: () => {
        const { phase, doneBytes = 0, totalBytes = 0 } = loadStatus();
        return [{ labels: { phase }, value: totalBytes === 0 ? 0 : doneBytes / totalBytes }];
      },
    },
    ['phase'],
  );
  return registry;
}
