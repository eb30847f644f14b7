import { basename } from 'node:path';
import type { FastifyInstance, FastifyReply } from 'fastify';
import { withoutUndefined } from '../../base/field-reader.ts';
import type { JsonObject } from '../../base/json.ts';
import { tierReports } from '../../connector/offloading/tier-report.ts';
import { type ModelSampling, unsetSampling } from '../../core/sampling-parse.ts';
import type { AsyncEngine } from '../../engine/contract.ts';

/** Whether the server serves. */
export function registerHealth(app: FastifyInstance, engine: AsyncEngine, options: { isAccepting(): boolean }): void {
  const answerHealth = (_: unknown, reply: FastifyReply): FastifyReply => {
    if (!options.isAccepting()) return reply.status(503).send({ status: 'shutting down' });
    const health = engine.health();
    const serves = health.status === 'ok' || health.status === 'degraded';
    return reply.status(serves ? 200 : 503).send(health);
  };
  const health = { isPublic: true, about: { summary: 'Whether the server serves.' } };
  app.get('/health', { config: health }, answerHealth);
  // Amazon SageMaker's name for the same.
  app.get('/ping', { config: health }, answerHealth);
  app.post('/ping', { config: health }, answerHealth);
  // While a worker process is replaced, the server must not be restarted: a restart would end every request.
  app.get(
    '/health/live',
    { config: { isPublic: true, about: { summary: 'Whether the server lives: a restart does not help.' } } },
    (_, reply) => {
      const { status, message } = engine.health();
      if (status !== 'broken') return { status: 'ok' };
      return reply.status(503).send({ status, ...(message === undefined ? {} : { message }) });
    },
  );
}

/** What the server and its model are. */
export function registerAbout(
  app: FastifyInstance,
  engine: AsyncEngine,
  options: { readonly version: string; readonly maxNumSeqs: number },
): void {
  const { model } = engine;
  app.get('/tiers', { config: { about: { summary: 'The tiers below the pool.' } } }, () => ({
    tiers: attachedReports(engine),
  }));
  app.get('/version', { config: { about: { summary: 'The version of Kvasir.' } } }, () => ({
    version: options.version,
  }));
  // llama-server's, for clients that read the length of the context from it.
  app.get('/props', { config: { about: { summary: 'Properties of the server and its model.' } } }, () => ({
    default_generation_settings: { n_ctx: model.maxModelLen, params: samplingFields(model.samplingDefaults) },
    // What the page uses without settings.
    recommended_sampling: samplingFields(unsetSampling(model.samplingDefaults)),
    total_slots: options.maxNumSeqs,
    model_alias: model.name,
    model_path: basename(model.path),
    chat_template: model.chatTemplate ?? '',
    build_info: `kvasir ${options.version}`,
  }));
}

/** A tier that was detached has done something, and is no tier any more. */
function attachedReports(engine: AsyncEngine) {
  const reports = tierReports(engine.stats().transfers.connector);
  const names = engine.kv?.tiers() ?? [];
  return names.length === 0 ? reports : reports.filter(({ name }) => names.includes(name));
}

/** Only what differs from the defaults of OpenAI's API. */
const samplingFields = ({ temperature, topK, topP, minP, repetitionPenalty }: ModelSampling = {}): JsonObject =>
  withoutUndefined({ temperature, top_k: topK, top_p: topP, min_p: minP, repetition_penalty: repetitionPenalty });
