/** Our logits and greedy tokens against libllama's own `llama_decode` on the same file. */
import { afterAll, describe, expect, it } from 'vitest';
import type { ModelOptions } from '../bench/model-maker.ts';
import { openReference } from '../src/ggml/llama-reference.ts';
import { Drive, openRunner, promptOf, type RunnerOverrides } from './support/drive.ts';
import { blockTable, runPrompt } from './support/run-prompt.ts';
import { temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

interface Kernels {
  /** Rows that libllama computes at a time, so that its attention does the same arithmetic as ours. */
  readonly microBatch: number;
  /** How far a logit may be from libllama's, as a part of the row's standard deviation. */
  readonly tolerance: number;
  /** Logits this close, in standard deviations, are a tie. */
  readonly nearTie: number;
}

/** ggml's own kernels: gathered blocks and the one-row attention, which libllama takes for up to 63 rows. The bits are nearly all the same. */
const gathered: Kernels = { microBatch: 32, tolerance: 0.001, nearTie: 0.05 };
/**
 * Our own kernels. Attention sums in F32, as libllama does from 64 rows on, but in another order. With F32 weights the logits are the
 * same to 1e-5. Other weights are multiplied by activations that were rounded to 8 or 16 bits, where a last bit of
 * attention or of a product decides now and then; these models' random weights magnify that. Over 48 pairs of a model and a
 * prompt our distance was at most 0.12, and that of libllama's own two kernels 0.07 to 0.26.
 */
const native = (isF32: boolean): Kernels => ({ microBatch: 256, tolerance: isF32 ? 0.001 : 0.15, nearTie: 0.1 });
const prompt = promptOf(96, 5);

async function compare(path: string, { repack = true, isF32 = false } = {}): Promise<void> {
  await compareWith(path, { repack, attention: 'gather', productKernels: false }, gathered);
  await compareWith(path, { repack, attention: 'native' }, native(isF32));
}

async function compareWith(
  path: string,
  options: RunnerOverrides & { repack: boolean },
  kernels: Kernels,
): Promise<void> {
  const { microBatch } = kernels;
  const { repack } = options;
  const reference = openReference(path, { contextLength: 256, threads: 1, batch: 256, microBatch, repack });
  const drive = await Drive.open(path, options);
  try {
    reference.decode(prompt);
    const theirs = reference.logits();
    expect(distance(await logitsOf(path, options), theirs)).toBeLessThan(kernels.tolerance);
    const trace = (await drive.run([{ id: 'a', prompt, params: { maxTokens: 64 } }])).get('a')!;
    expectGreedy(reference, trace.tokens, kernels.nearTie);
  } finally {
    await drive.close();
    reference.close();
  }
}

async function logitsOf(path: string, options: RunnerOverrides): Promise<Float32Array> {
  const rows: Float32Array[] = [];
  const runner = await openRunner(path, { ...options, onLogits: (_, row) => rows.push(row.slice()) });
  await runPrompt(runner, prompt, blockTable(1, 6));
  await runner.close();
  return rows[0]!;
}

/** The largest difference of two rows, in standard deviations of the second. */
function distance(a: Float32Array, b: Float32Array): number {
  return b.reduce((most, value, i) => Math.max(most, Math.abs(value - a[i]!)), 0) / deviation(b);
}

/** Each of our tokens is libllama's choice too, unless libllama holds two tokens for as good as equal. */
function expectGreedy(reference: ReturnType<typeof openReference>, tokens: readonly number[], nearTie: number): void {
  expect(tokens).toHaveLength(64);
  // All at once: single rows would take other kernels.
  reference.clear();
  reference.decode([...prompt, ...tokens], { wantAllLogits: true });
  for (const [i, token] of tokens.entries()) {
    const row = reference.logits(prompt.length - 1 + i);
    const best = row.reduce((most, value) => Math.max(most, value));
    if (row.indexOf(best) !== token) expect((best - row[token]!) / deviation(row), `token ${i}`).toBeLessThan(nearTie);
  }
}

function deviation(row: Float32Array): number {
  const mean = row.reduce((sum, value) => sum + value, 0) / row.length;
  return Math.sqrt(row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / row.length);
}

describe.each(['llama', 'qwen2', 'qwen3'] as const)('%s', (architecture) => {
  it.each(['F32', 'F16', 'BF16', 'Q8_0', 'Q4_0', 'Q4_K', 'Q6_K', 'Q4_K_M'] as const)('%s', async (type) => {
    const path = folder.file(`${architecture}-${type}.gguf`);
    await writeTinyModel(path, { architecture, type });
    await compare(path, { isF32: type === 'F32' });
  });
});

describe('variants', () => {
  it.each(['Q4_1', 'Q5_0', 'Q5_1', 'Q2_K', 'Q3_K', 'Q5_K'] as const)('%s weights', async (type) => {
    const path = folder.file(`llama-${type}.gguf`);
    await writeTinyModel(path, { architecture: 'llama', type });
    await compare(path);
  });

  const variants: [name: string, options: Partial<ModelOptions>][] = [
    ['tied embeddings', { tied: true }],
    ['tied embeddings that are repacked', { tied: true, type: 'Q4_0' }],
    ['no grouped queries', { headsKv: 4 }],
    ['one KV head', { headsKv: 1 }],
    ['a head that is not embedding / heads', { headDim: 128 }],
    ['one layer', { layers: 1 }],
    ['biases', { qkvBias: true }],
    ['linear RoPE scaling', { ropeScaling: 'linear' }],
    ['YaRN', { ropeScaling: 'yarn' }],
    ['frequency factors of Llama 3', { ropeScaling: 'llama3' }],
  ];
  it.each(variants)('%s', async (name, options) => {
    const path = folder.file(`${name.replaceAll(/\W/g, '-')}.gguf`);
    await writeTinyModel(path, { architecture: 'llama', type: 'Q8_0', ...options });
    await compare(path);
  });

  it('weights that are not repacked', async () => {
    await compare(folder.file('llama-Q4_K.gguf'), { repack: false });
    await compare(folder.file('llama-Q4_0.gguf'), { repack: false });
  });

  it('libllama with its default batches, which is as far from us as from itself with small ones', async () => {
    const path = folder.file('llama-Q8_0.gguf');
    const rowFor = (microBatch: number): Float32Array => {
      const reference = openReference(path, { contextLength: 256, threads: 1, batch: 128, microBatch });
      reference.decode(prompt);
      const row = reference.logits().slice();
      reference.close();
      return row;
    };
    const theirs = rowFor(512);
    const limit = distance(rowFor(gathered.microBatch), theirs) + gathered.tolerance;
    for (const attention of ['gather', 'native'] as const) {
      for (const numerics of ['exact', 'fast'] as const) {
        expect(distance(await logitsOf(path, { attention, numerics, productKernels: false }), theirs)).toBeLessThan(
          limit,
        );
      }
    }
  });

  it('the bundled model', async () => {
    await compare('models/kvasir-demo.gguf');
  });
});
