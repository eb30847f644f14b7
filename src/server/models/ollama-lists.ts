import { createHash } from 'node:crypto';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { JsonObject } from '../../base/json.ts';
import { ollamaError } from '../ollama/ollama-renderer.ts';
import type { OllamaModel } from '../ollama/ollama-types.ts';
import type { ModelReport } from './contract.ts';
import type { ModelPool } from './model-pool.ts';

/** Ollama's lists of all models, and of those that are loaded. */
export function registerOllamaLists(app: FastifyInstance, pool: ModelPool, version: string): void {
  const config = { errorBody: ollamaError };
  app.get('/api/tags', { config }, async () => ({ models: (await pool.reports()).map(describe) }));
  app.get('/api/ps', { config }, () => ({
    models: pool.all
      .filter(({ state }) => state === 'loaded')
      .map((report) => ({
        ...describe(report),
        size: (report.bytes ?? 0) + (report.gpuBytes ?? 0),
        size_vram: report.gpuBytes ?? 0,
        context_length: report.facts?.maxModelLen ?? 0,
        expires_at: new Date(Date.now() + dayMs).toISOString(),
      })),
  }));
  app.get('/api/version', { config }, () => ({ version }));
}

const dayMs = 86_400_000;

/** Whether this is Ollama's way to unload a model: a request for no text that keeps the model for no time. */
export function isUnloadOf({ routeOptions: { url } }: FastifyRequest, fields: JsonObject | undefined): boolean {
  if (fields?.keep_alive !== 0) return false;
  if (url === '/api/generate') return fields.prompt === undefined || fields.prompt === '';
  return url === '/api/chat' && (fields.messages === undefined || isEmpty(fields.messages));
}

const isEmpty = (list: unknown): boolean => Array.isArray(list) && list.length === 0;

export const unloadAnswer = (model: string): object => ({
  model,
  created_at: new Date().toISOString(),
  response: '',
  done: true,
  done_reason: 'unload',
});

function describe({ entry: { name, sizeBytes: size = 0, modifiedMs = 0 }, facts }: ModelReport): OllamaModel {
  const family = facts?.architecture ?? '';
  return {
    name,
    model: name,
    modified_at: new Date(modifiedMs).toISOString(),
    size,
    digest: createHash('sha256').update(`${name} ${size} ${modifiedMs}`).digest('hex'),
    details: {
      parent_model: '',
      format: 'gguf',
      family,
      families: family === '' ? [] : [family],
      parameter_size: '',
      quantization_level: '',
    },
  };
}
