import type { FastifyInstance } from 'fastify';
import { nameLengthMax } from '../base/field-reader.ts';
import type { EngineAdapters } from '../engine/adapters.ts';
import type { AsyncEngine } from '../engine/contract.ts';
import { bodyReader, ignoreSmall } from './body-reader.ts';
import type { Callers } from './callers.ts';
import type { ParseLimits } from './openai-parse.ts';
import { runtimeLoraOff } from './server-errors.ts';

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
  const config = { isForAdmins: true };
  const allowed = (): EngineAdapters => {
    if (!enableRuntimeLora || !callers.requiresKey || engine.adapters === undefined) throw runtimeLoraOff();
    return engine.adapters;
  };
  app.post('/v1/load_lora_adapter', { config }, async (request, reply) => {
    const adapters = allowed();
    const reader = bodyReader(request.body, limits);
    const name = reader.required('lora_name', reader.string('lora_name', { min: 1, max: nameLengthMax }), 'a text');
    const path = reader.required('lora_path', reader.string('lora_path', { min: 1, max: 4 * nameLengthMax }), 'a path');
    ignoreSmall(reader, ['base_model_name']);
    reader.refuse('load_inplace', (value) => value === false);
    reader.finish();
    await adapters.load({ name, path });
    request.log.info({ name, path }, 'a LoRA adapter was loaded');
    return reply.type('text/plain').send(`Success: LoRA adapter '${name}' added successfully.`);
  });
  app.post('/v1/unload_lora_adapter', { config }, async (request, reply) => {
    const adapters = allowed();
    const reader = bodyReader(request.body, limits);
    const name = reader.required('lora_name', reader.string('lora_name', { min: 1, max: nameLengthMax }), 'a text');
    ignoreSmall(reader, ['lora_int_id']);
    reader.finish();
    await adapters.unload(name);
    request.log.info({ name }, 'a LoRA adapter was unloaded');
    return reply.type('text/plain').send(`Success: LoRA adapter '${name}' removed successfully.`);
  });
}
