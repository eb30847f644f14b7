/**
 * Files that llama.cpp's converter made of tiny random checkpoints, and what transformers computes with these checkpoints.
 * `tools/converter` makes both.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { createEngine } from '../../src/index.ts';
import { distance } from './compare-with-libllama.ts';
import { Drive, type RunnerOverrides } from './drive.ts';

export interface Converted {
  readonly name: string;
  readonly path: string;
  readonly kind: 'text' | 'score';
  readonly runs: readonly ConvertedRun[];
}

interface ConvertedRun {
  readonly tokens: readonly number[];
  /** Of a reranker. */
  readonly query?: string;
  readonly document?: string;
  /** The logits after the tokens, or the value of a reranker. */
  readonly values: readonly number[];
}

export const convertedIn = (folder: string): readonly Converted[] =>
  readdirSync(folder)
    .filter((name) => name.endsWith('.json'))
    .map((name) => {
      const path = join(folder, name);
      return { ...(JSON.parse(readFileSync(path, 'utf8')) as Converted), path: path.replace(/json$/, 'gguf') };
    });

/** The largest distance from transformers: of logits in standard deviations of the row, of a reranker's value as it is. */
export const distanceOf = (converted: Converted, overrides: RunnerOverrides = {}): Promise<number> =>
  converted.kind === 'score' ? distanceOfScores(converted) : distanceOfLogits(converted, overrides);

/** Each prompt alone, and all together: the bits must be equal. */
async function distanceOfLogits({ path, runs }: Converted, overrides: RunnerOverrides): Promise<number> {
  const requests = runs.map(({ tokens }, index) => ({
    id: `${index}`,
    prompt: tokens,
    params: { maxTokens: 8, temperature: 0 },
  }));
  const rows: Float32Array[] = [];
  const onLogits = (_: unknown, row: Float32Array): unknown => rows.push(row.slice());
  const drive = await Drive.open(path, { kvCacheBytes: () => 4 << 20, ...overrides, onLogits });
  try {
    let largest = 0;
    const alone = new Map<string, readonly number[]>();
    for (const [index, request] of requests.entries()) {
      rows.length = 0;
      const trace = (await drive.run([request])).get(request.id)!;
      alone.set(request.id, [...trace.logits]);
      largest = Math.max(largest, distance(rows[0]!, Float32Array.from(runs[index]!.values)));
    }
    const together = await drive.run(requests.map((request) => ({ ...request, id: `${request.id} together` })));
    for (const { id } of requests) expect(together.get(`${id} together`)!.logits).toEqual(alone.get(id));
    return largest;
  } finally {
    await drive.close();
  }
}

async function distanceOfScores({ path, runs }: Converted): Promise<number> {
  await using engine = await createEngine({ model: path, threads: 1 });
  const scoreOf = async ({ query = '', document = '' }: ConvertedRun): Promise<number> =>
    (await engine.score({ query, document, useActivation: false })).score;
  const alone: number[] = [];
  for (const run of runs) alone.push(await scoreOf(run));
  expect(await Promise.all(runs.map(scoreOf))).toEqual(alone);
  return Math.max(...alone.map((score, index) => Math.abs(score - runs[index]!.values[0]!)));
}
