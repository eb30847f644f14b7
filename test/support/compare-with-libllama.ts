/** Compares our logits and greedy tokens with libllama's `llama_decode` on the same file, in this process. */
import { expect } from 'vitest';
import { type LlamaReference, openReference } from '../../bench/subject/llama-reference.ts';
import { readGguf } from '../../src/ggml/gguf.ts';
import { readModelConfig } from '../../src/ggml/model-config.ts';
import { Drive, openRunner, promptOf, type RunnerOverrides } from './drive.ts';
import { setWindowLayers } from './libllama-windows.ts';
import { inLongForm } from './long-form.ts';
import { blockTable, runPrompt } from './run-prompt.ts';

export interface Comparison {
  readonly options: RunnerOverrides;
  /** Rows that libllama computes at a time, so that its attention does the same arithmetic as ours. */
  readonly microBatch: number;
  /** The largest allowed distance of a logit from libllama's, in standard deviations of the row. */
  readonly tolerance: number;
  /** Logits with a smaller distance, in standard deviations, count as equal. */
  readonly nearTie: number;
  /** The path of a LoRA adapter. */
  readonly adapter?: string | undefined;
}

export const referencePrompt = promptOf(96, 5);
/** With the prompt, three windows of the models with a window, and four in the long form. */
const maxTokens = inLongForm(64, 16);
/** Enough for the prompt and the output in each of the models. */
const kvCacheBytes = (): number => 4 << 20;

/** Compares the logits after the prompt, and each token of a greedy completion. */
export async function compareWithLibllama(path: string, comparison: Comparison): Promise<void> {
  const { options, microBatch, tolerance, nearTie, adapter: adapterPath } = comparison;
  const repack = options.repack ?? true;
  const config = readModelConfig(await readGguf(path));
  const reference = openReference(path, {
    ...{ contextLength: 256, threads: 1, batch: 256, microBatch, repack, adapter: adapterPath },
    onModel: (native, model) => setWindowLayers(native, model, config),
  });
  let afterPrompt: Float32Array | undefined;
  const onLogits = (_: unknown, row: Float32Array): void => {
    afterPrompt ??= row.slice();
  };
  const drive = await Drive.open(path, { kvCacheBytes, ...options, onLogits });
  try {
    const adapter = adapterPath === undefined ? undefined : await drive.load(adapterPath);
    const trace = (await drive.run([{ id: 'a', prompt: referencePrompt, params: { maxTokens }, adapter }])).get('a')!;
    expect(trace.tokens).toHaveLength(maxTokens);
    // All rows at once, because libllama computes single rows with other kernels.
    reference.decode([...referencePrompt, ...trace.tokens], { wantAllLogits: true });
    expect(distance(afterPrompt!, reference.logits(referencePrompt.length - 1))).toBeLessThan(tolerance);
    expectGreedy(reference, trace.tokens, nearTie);
  } finally {
    await drive.close();
    reference.close();
  }
}

export async function logitsAfterPrompt(path: string, options: RunnerOverrides): Promise<Float32Array> {
  const rows: Float32Array[] = [];
  const runner = await openRunner(path, { ...options, onLogits: (_, row) => rows.push(row.slice()) });
  await runPrompt(runner, referencePrompt, blockTable(1, 6));
  await runner.close();
  return rows[0]!;
}

/** The largest difference between two rows, in standard deviations of the second. */
export function distance(a: Float32Array, b: Float32Array): number {
  return b.reduce((most, value, i) => Math.max(most, Math.abs(value - a[i]!)), 0) / deviation(b);
}

/** Each of our tokens is also libllama's best token, unless two logits of libllama are nearly equal. */
function expectGreedy(reference: LlamaReference, tokens: readonly number[], nearTie: number): void {
  for (const [i, token] of tokens.entries()) {
    const row = reference.logits(referencePrompt.length - 1 + i);
    const best = row.reduce((most, value) => Math.max(most, value));
    if (row.indexOf(best) !== token) expect((best - row[token]!) / deviation(row), `token ${i}`).toBeLessThan(nearTie);
  }
}

function deviation(row: Float32Array): number {
  const mean = row.reduce((sum, value) => sum + value, 0) / row.length;
  return Math.sqrt(row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / row.length);
}
