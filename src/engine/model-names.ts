import { basename } from 'node:path';
import type { EngineOptions } from './options.ts';

/** The name in responses, and the further names by which requests may ask for the model. */
export function modelNames({ model, servedModelName }: Pick<EngineOptions, 'model' | 'servedModelName'>): {
  readonly name: string;
  readonly aliases?: readonly string[];
} {
  const names = typeof servedModelName === 'string' ? [servedModelName] : (servedModelName ?? []);
  const [name = basename(model).replace(/\.gguf$/i, ''), ...aliases] = names;
  return aliases.length === 0 ? { name } : { name, aliases };
}
