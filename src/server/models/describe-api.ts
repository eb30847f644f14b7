import type { AsyncEngine, ModelInfo } from '../../engine/contract.ts';
import { Server, type ServerOptions } from '../server.ts';
import { forwardedRoutes } from './forwarded-routes.ts';

interface Operation {
  parameters?: object[];
}

interface Description {
  readonly paths: Record<string, Record<string, Operation>>;
}

/** Limits of fields that depend on the model are those of a large one. */
const anyModel: ModelInfo = {
  name: 'model',
  path: '',
  architecture: '',
  vocabSize: 2 ** 20,
  maxModelLen: 2 ** 24,
  hasChatTemplate: true,
  embedding: { length: 2 ** 14, pooling: 'mean' },
};

/**
 * What a server of one model says about itself in `/openapi.json`, for a server of several: no model is loaded for it. Routes that load no model
 * have the parameter `model`.
 */
export async function describeApi(options: Pick<ServerOptions, 'version' | 'rootPath'>): Promise<string> {
  const server = new Server(neverCalled(anyModel), { ...options, logLevel: 'silent' });
  await server.app.ready();
  const { body } = await server.app.inject('/openapi.json');
  await server.close();
  const description = JSON.parse(body) as Description;
  const parameter = { name: 'model', in: 'query', required: true, schema: { type: 'string', minLength: 1 } };
  for (const { method, url, by } of forwardedRoutes) {
    const operation = description.paths[url.replace(/:(\w+)/g, '{$1}')]?.[method.toLowerCase()];
    if (operation !== undefined && by === 'query') operation.parameters = [...(operation.parameters ?? []), parameter];
  }
  return JSON.stringify(description);
}

/** Routes are registered for it, and no request comes. */
function neverCalled(model: ModelInfo): AsyncEngine {
  const nothing = {
    model,
    kv: { tiers: () => [] },
    cache: { shape: { blockCount: 1, blockBytes: 0, groups: [] }, kvEvents: {} },
    observe: () => () => undefined,
  };
  return nothing as unknown as AsyncEngine;
}
