import { basename } from 'node:path';
import type { EngineOptions } from './options.ts';

/**
 * The name in responses, and the further names by which requests may ask for the model. A name with `*` at its end stands for all names that
 * begin so. It is never the name in responses.
 */
export function modelNames({ model, servedModelName }: Pick<EngineOptions, 'model' | 'servedModelName'>): {
  readonly name: string;
  readonly aliases?: readonly string[];
} {
  const given = typeof servedModelName === 'string' ? [servedModelName] : (servedModelName ?? []);
  const names = [...shownNames(given), ...given.filter(isPattern)];
  const [name, ...aliases] =
    shownNames(names).length === 0 ? [basename(model).replace(/\.gguf$/i, ''), ...names] : names;
  return aliases.length === 0 ? { name: name! } : { name: name!, aliases };
}

const isPattern = (name: string): boolean => name.endsWith('*');

/** The names that lists of models have. */
export const shownNames = (names: readonly string[]): readonly string[] => names.filter((name) => !isPattern(name));

/**
 * How well a model of these names answers to a requested name: `Infinity` for the name itself, else the length of the longest pattern's beginning;
 * undefined: not at all.
 */
export function nameMatch(names: readonly string[], requested: string): number | undefined {
  if (names.includes(requested)) return Infinity;
  const lengths = names
    .filter((name) => isPattern(name) && requested.startsWith(name.slice(0, -1)))
    .map(({ length }) => length);
  return lengths.length === 0 ? undefined : Math.max(...lengths);
}
