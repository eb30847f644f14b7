/**
 * `node dist/scripts/expected-results.js PYTHON` writes the results that tests of real models expect (`test/real-models/*.json`): for each
 * model a checksum of the tokens of each text, by Hugging Face's tokenizers; for SmolLM2 the logprobs of a text, by libllama with weights
 * and KV in F32. PYTHON has the packages of `tools/real-models/requirements.txt`.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { assert } from '../src/base/assert.ts';
import { type RealModelName, realModels, realModelsFolder } from './real-models/catalogue.ts';
import { fetchModel } from './real-models/fetch-model.ts';
import { byLibllama, windowsOf } from './real-models/text-logprobs.ts';
import { checksumOf, textsToTokenize } from './real-models/texts.ts';
import { runTool, tokensByPython } from './real-models/tools.ts';

const python = process.argv[2] ?? 'python3';
const names = Object.keys(realModels) as RealModelName[];
/** The tests compare more tokens with libllama on the same file than with these. */
const windowCount = 4;

await writeResults('expected-tokens.json', names, tokensOf);
await writeResults('expected-logprobs.json', ['smollm2'], logprobsOf);

async function writeResults(
  file: string,
  models: readonly RealModelName[],
  resultsOf: (path: string) => ArrayBuffer | Promise<ArrayBuffer>,
): Promise<void> {
  const folder = realModelsFolder();
  assert(folder !== undefined, 'the user has a folder for caches, or KVASIR_REAL_MODELS names a folder');
  const results: Record<string, string> = {};
  for (const name of models) {
    await fetchModel(realModels[name], folder);
    results[name] = Buffer.from(await resultsOf(join(folder, realModels[name].file))).toString('base64');
  }
  writeFileSync(join('test', 'real-models', file), `${JSON.stringify(results, undefined, 2)}\n`);
}

/** A `Uint32Array`. */
function tokensOf(path: string): ArrayBuffer {
  return Uint32Array.from(tokensByPython(python, path, textsToTokenize()).map(checksumOf)).buffer;
}

/** A `Float32Array`. */
async function logprobsOf(path: string): Promise<ArrayBuffer> {
  const folder = mkdtempSync(join(tmpdir(), 'kvasir-f32-'));
  const whole = join(folder, 'f32.gguf');
  runTool(python, 'as_f32.py', [path, whole], '');
  const { logprobs } = byLibllama(whole, await windowsOf(whole, windowCount), {
    threads: 2,
    flashAttention: false,
    kvType: 'F32',
  });
  rmSync(folder, { recursive: true });
  return Float32Array.from(logprobs).buffer;
}
