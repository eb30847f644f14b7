import { request } from 'node:http';
import { text } from 'node:stream/consumers';
import type { FastifyInstance } from 'fastify';
import { Registry } from 'prom-client';
import { addCounter, addGauge } from '../metrics/collected.ts';
import type { HttpMetrics } from '../metrics/http-metrics.ts';
import type { ModelState } from './contract.ts';
import { joinMetrics } from './join-metrics.ts';
import type { ModelPool } from './model-pool.ts';

/** A process that does not answer for so long is left out of a scrape. */
const scrapeMaxMs = 2000;

/** `GET /metrics` of the server and of every loaded model, and `GET /load`. */
export function registerPoolMetrics(app: FastifyInstance, pool: ModelPool, httpMetrics: HttpMetrics): void {
  const registry = poolMetrics(pool);
  app.get('/metrics', { config: { isPublic: true } }, async (_, reply) => {
    const own = `${await registry.metrics()}\n${await httpMetrics.text()}`;
    const ofModels = await Promise.all(
      pool.loaded.map(async ({ name, socketPath }) => ({
        model: name,
        text: await scrape(socketPath).catch(() => ''),
      })),
    );
    reply.type(registry.contentType);
    return joinMetrics(own, ofModels);
  });
  app.get('/load', { config: { isPublic: true } }, () => ({ server_load: pool.counts().open }));
}

function poolMetrics(pool: ModelPool): Registry {
  const registry = new Registry();
  const states: readonly ModelState[] = ['loading', 'loaded', 'failed'];
  addGauge(
    registry,
    {
      name: 'kvasir:models',
      help: 'Models of a server with several, by state.',
      read: () => {
        const { all } = pool;
        const count = (wanted: ModelState): number => all.filter(({ state }) => state === wanted).length;
        return states.map((state) => ({ labels: { state }, value: count(state) }));
      },
    },
    ['state'],
  );
  addGauge(registry, {
    name: 'kvasir:models_memory_bytes',
    help: 'Memory that the loaded models need, as it counts for --models-memory: without that of a GPU.',
    read: () => pool.counts().usedBytes,
  });
  addGauge(registry, {
    name: 'kvasir:requests_waiting_for_model',
    help: 'Requests that wait until their model is loaded.',
    read: () => pool.counts().waiting,
  });
  addCounter(
    registry,
    {
      name: 'kvasir:model_loads_total',
      help: 'Loads of a model, by result. A process that ends while it serves counts as failed too.',
      read: () =>
        pool.totals.flatMap(({ name, loads, failures }) => [
          { labels: { model_name: name, result: 'loaded' }, value: loads },
          { labels: { model_name: name, result: 'failed' }, value: failures },
        ]),
    },
    ['model_name', 'result'],
  );
  return registry;
}

function scrape(socketPath: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const options = { socketPath, path: '/metrics', agent: false as const, signal: AbortSignal.timeout(scrapeMaxMs) };
    const asked = request({ ...options, headers: { host: 'localhost' } }, (answer) =>
      text(answer).then(resolve, reject),
    );
    asked.on('error', reject);
    asked.end();
  });
}
