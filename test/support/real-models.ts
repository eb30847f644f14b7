import { statSync } from 'node:fs';
import { join } from 'node:path';
import { type RealModelName, realModels, realModelsFolder } from '../../scripts/real-models/catalogue.ts';
import { isLongForm } from './long-form.ts';

/** A model of others, which `npm run real-models` fetches, and `.ci/run`. */
export interface InstalledModel<Name extends RealModelName = RealModelName> {
  readonly name: Name;
  readonly path: string;
  readonly isThere: boolean;
  /** For `needs`, if the file is not there. */
  readonly reason: string;
}

/** The script compares the digest. Here the size must do: a file appears there whole. */
export function realModel<Name extends RealModelName>(name: Name): InstalledModel<Name> {
  const { file, bytes } = realModels[name];
  const path = join(realModelsFolder() ?? '', file);
  const isThere = statSync(path, { throwIfNoEntry: false })?.size === bytes;
  return { name, path, isThere, reason: `no ${file}: npm run real-models -- ${name}` };
}

/** Models that generate text: `npm test` runs on the smallest of them, and the long form on all. */
export const modelsToTest: readonly InstalledModel<Exclude<RealModelName, 'minilm'>>[] = (
  isLongForm ? (['smollm2', 'gemma3', 'qwen2.5-coder'] as const) : (['smollm2'] as const)
).map((name) => realModel(name));

/** For tests that compute for up to a minute, which takes ten times as long on a busy machine. */
export const timeoutMs = 1_800_000;
