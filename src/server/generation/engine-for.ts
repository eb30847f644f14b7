import type { AsyncEngine, ModelInfo } from '../../engine/contract.ts';
import { nameMatch } from '../../engine/model-names.ts';
import { modelNotFound } from '../http/server-errors.ts';

/** The engine that serves the model of this name: for the name of a LoRA adapter, the engine whose requests have it. */
export function engineFor(engine: AsyncEngine, requested: string | undefined): AsyncEngine {
  const { name, aliases = [] } = engine.model;
  if (requested === undefined || requested === name || aliases.includes(requested)) return engine;
  const adapters = engine.adapters?.list() ?? [];
  if (adapters.some((adapter) => adapter.name === requested)) return withAdapter(engine, requested);
  // Only now: a pattern must not hide an adapter.
  if (nameMatch(aliases, requested) !== undefined) return engine;
  const served = [name, ...adapters.map((adapter) => adapter.name)].join('`, `');
  throw modelNotFound({ parameter: 'model', requested: requested.slice(0, 100), served });
}

/** The same engine with another name of the model. Its requests have the adapter. */
function withAdapter(engine: AsyncEngine, lora: string): AsyncEngine {
  const model: ModelInfo = { ...engine.model, name: lora, aliases: [] };
  const own: Pick<AsyncEngine, 'model' | 'generate' | 'chat' | 'embed' | 'score'> = {
    model,
    generate: (request, options) => engine.generate({ ...request, lora }, options),
    chat: (request, options) => engine.chat({ ...request, lora }, options),
    embed: (request, options) => engine.embed({ ...request, lora }, options),
    score: (request, options) => engine.score({ ...request, lora }, options),
  };
  return new Proxy(engine, {
    get(target, name) {
      if (name in own) return own[name as keyof typeof own];
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}
