import type { FastifyContextConfig, FastifyInstance } from 'fastify';
import { type FieldReader, nameLengthMax } from '../../base/field-reader.ts';
import type { EngineAdapters } from '../../engine/adapters.ts';
import type { AsyncEngine } from '../../engine/contract.ts';
import type { ParseLimits } from '../generation/request.ts';
import { bodyReader, ignoreSmall } from '../http/body-reader.ts';
import type { Callers } from '../http/callers.ts';
import { runtimeLoraOff } from '../http/server-errors.ts';
import { loadAdapterExample, unloadAdapterExample } from '../openapi/examples.ts';

interface AdapterRouteOptions {
  readonly enableRuntimeLora: boolean;
  readonly callers: Pick<Callers, 'requiresKey'>;
  readonly limits: ParseLimits;
}

/**
 * vLLM's endpoints that load and unload LoRA adapters. A request names a file of the server's machine, so they need a flag and an API
 * key.
 */
export function registerAdapterRoutes(app: FastifyInstance, engine: AsyncEngine, options: AdapterRouteOptions): void {
  const { limits, callers, enableRuntimeLora } = options;
  const allowed = (): EngineAdapters => {
    if (!enableRuntimeLora || !callers.requiresKey || engine.adapters === undefined) throw runtimeLoraOff();
    return engine.adapters;
  };
  const about = (summary: string, example: object, read: typeof readLoad | typeof readUnload): FastifyContextConfig => {
    return { isForAdmins: true, about: { summary, body: { example, reads: [read] }, media: 'text/plain' } };
  };
  const ofLoad = about('Loads a LoRA adapter.', loadAdapterExample, readLoad);
  app.post('/v1/load_lora_adapter', { config: ofLoad }, async (request, reply) => {
    const adapters = allowed();
    const { name, path } = readLoad(request.body, limits);
    await adapters.load({ name, path });
    request.log.info({ name, path }, 'a LoRA adapter was loaded');
    return reply.type('text/plain').send(`Success: LoRA adapter '${name}' added successfully.`);
  });
  const ofUnload = about('Unloads a LoRA adapter.', unloadAdapterExample, readUnload);
  app.post('/v1/unload_lora_adapter', { config: ofUnload }, async (request, reply) => {
    const adapters = allowed();
    const { name } = readUnload(request.body, limits);
    await adapters.unload(name);
    request.log.info({ name }, 'a LoRA adapter was unloaded');
    return reply.type('text/plain').send(`Success: LoRA adapter '${name}' removed successfully.`);
  });
}

function readLoad(body: unknown, limits: ParseLimits) {
  const reader = bodyReader(body, limits);
  const name = readName(reader);
  const path = reader.required('lora_path', reader.pathText('lora_path'), 'a path');
  ignoreSmall(reader, ['base_model_name']);
  reader.refuse('load_inplace', (value) => value === false);
  reader.finish();
  return { name, path };
}

function readUnload(body: unknown, limits: ParseLimits) {
  const reader = bodyReader(body, limits);
  const name = readName(reader);
  ignoreSmall(reader, ['lora_int_id']);
  reader.finish();
  return { name };
}

const readName = (reader: FieldReader): string =>
  reader.required(
    'lora_name',
    reader.withoutNul('lora_name', reader.string('lora_name', { min: 1, max: nameLengthMax })),
    'a text',
  );
