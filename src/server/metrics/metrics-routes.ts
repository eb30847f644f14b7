import type { FastifyInstance } from 'fastify';
import { Registry } from 'prom-client';
import type { AsyncEngine } from '../../engine/contract.ts';
import { completionMetrics } from './completion-metrics.ts';
import { addEngineMetrics } from './engine-metrics.ts';
import { createHttpMetrics, type HttpMetrics } from './http-metrics.ts';
import { addTierMetrics } from './tier-metrics.ts';

/**
 * `GET /metrics` for Prometheus, and vLLM's `GET /load`. As in vLLM they need no API key, because scrapers and routers have none;
 * they have no part of a prompt or a text.
 */
export function registerMetrics(
  app: FastifyInstance,
  engine: AsyncEngine,
  ofServer: HttpMetrics = createHttpMetrics(),
): void {
  const ofModel = new Registry();
  ofModel.setDefaultLabels({ model_name: engine.model.name, engine: '0' });
  addEngineMetrics(ofModel, engine);
  addTierMetrics(ofModel, () => engine.stats().transfers.connector);
  const stop = engine.observe(completionMetrics(ofModel, engine.model.maxModelLen));
  app.addHook('onClose', async () => stop());
  ofServer.watch(app);
  app.get(
    '/metrics',
    { config: { isPublic: true, about: { summary: 'Metrics for Prometheus.', media: 'text/plain' } } },
    async (_, reply) => {
      reply.type(ofModel.contentType);
      return `${await ofModel.metrics()}${await ofServer.text()}`;
    },
  );
  app.get(
    '/load',
    { config: { isPublic: true, about: { summary: 'The number of running and waiting completions.' } } },
    () => {
      const { running, waiting, waitingForRemoteKv } = engine.stats();
      return { server_load: running + waiting + waitingForRemoteKv };
    },
  );
}
