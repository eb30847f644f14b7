/**
 * Files of llama.cpp's converter compute what transformers computes. `tools/converter/run.py` runs this file with more files: it names their
 * folder in KVASIR_CONVERTED, and a file for their distances in KVASIR_CONVERTED_RESULTS.
 */
import { writeFileSync } from 'node:fs';
import { afterAll, expect, it } from 'vitest';
import { readGguf } from '../src/ggml/gguf.ts';
import { computeHere } from './support/compute-here.ts';
import { convertedIn, distanceOf } from './support/converted.ts';

computeHere();
const { KVASIR_CONVERTED: given, KVASIR_CONVERTED_RESULTS: resultsPath } = process.env;
const all = convertedIn(given ?? 'test/data/converted');
/** In standard deviations of the logits. Weights are F16, and so are K and V. */
const tolerance = 0.01;

interface Result {
  readonly name: string;
  readonly architecture: string;
  /** Or why there is none. */
  readonly distance: number | string;
}
const results: Result[] = [];
afterAll(() => {
  if (resultsPath !== undefined) writeFileSync(resultsPath, JSON.stringify(results));
});

it.each(all.map((converted) => [converted.name, converted] as const))('%s', async (name, converted) => {
  const architecture = await architectureOf(converted.path);
  const distance = await distanceOf(converted).catch((error: unknown) => {
    results.push({ name, architecture, distance: error instanceof Error ? error.message : String(error) });
    throw error;
  });
  results.push({ name, architecture, distance });
  expect(distance).toBeLessThan(tolerance);
});

const architectureOf = async (path: string): Promise<string> =>
  (await readGguf(path)).metadata.string('general.architecture') ?? '';
