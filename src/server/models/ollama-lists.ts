import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { JsonObject } from '../../base/json.ts';
import { type DescribedModel, describeLoaded, describeModel } from '../apis/ollama/describe-model.ts';
import { endsModel } from '../apis/ollama/keep-alive.ts';
import { pullOfOllama, registerModelOrders, registerOllamaVersion } from '../apis/ollama/model-orders.ts';
import { answerWithoutText } from '../apis/ollama/ollama-renderer.ts';
import type { OllamaModel } from '../apis/ollama/ollama-types.ts';
import { pullOff } from '../http/server-errors.ts';
import type { UnknownFields } from '../http/unknown-fields.ts';
import type { ModelReport } from './contract.ts';
import type { ModelPool } from './model-pool.ts';

/** Ollama's lists of all models, and of those that are loaded, and its orders about models. */
export function registerOllamaLists(
  app: FastifyInstance,
  pool: ModelPool,
  options: { readonly unknownFields: UnknownFields | undefined },
): void {
  app.get('/api/tags', async () => {
    const models: OllamaModel[] = [];
    // One after the other: a folder may have hundreds of files.
    for (const report of await pool.reports()) models.push((await describeReport(report)).model);
    return { models };
  });
  app.get('/api/ps', async () => {
    const loaded = pool.all.filter(({ state }) => state === 'loaded');
    const models = loaded.map(async (report) => {
      const { bytes = 0, gpuBytes = 0, facts } = report;
      const sizes = { size: bytes + gpuBytes, size_vram: gpuBytes };
      return describeLoaded(await describeReport(report), { ...sizes, context_length: facts?.maxModelLen ?? 0 });
    });
    return { models: await Promise.all(models) };
  });
  const readPull = (body: unknown) =>
    pullOfOllama((body as { readonly fields?: JsonObject } | undefined)?.fields, options);
  registerModelOrders(app, readPull, async (name) => {
    const found = await pool.find(name);
    if (found === undefined) throw pullOff({ model: name.slice(0, 100) });
    return pool.pull(found.entry);
  });
  registerOllamaVersion(app);
}

/** Whether this is Ollama's way to unload a model: a request for no text that keeps the model for no time. */
export function isUnloadOf({ endpointPath }: FastifyRequest, fields: JsonObject | undefined): boolean {
  if (!endsModel(fields?.keep_alive)) return false;
  if (endpointPath === '/api/generate') return (fields?.prompt ?? '') === '';
  return endpointPath === '/api/chat' && isEmpty(fields?.messages ?? []);
}

const isEmpty = (list: unknown): boolean => Array.isArray(list) && list.length === 0;

export const unloadAnswer = ({ endpointPath }: FastifyRequest, model: string): object =>
  answerWithoutText(endpointPath === '/api/chat' ? 'message' : 'response', model, 'unload');

export const describeReport = ({ entry, facts }: ModelReport): Promise<DescribedModel> =>
  describeModel(entry, facts?.architecture);
