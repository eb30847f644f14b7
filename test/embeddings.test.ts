/** Embeddings with real weights: compared with libllama's, alone and in a batch, on one rank and on two, with OpenAI's client. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openReference } from '../bench/subject/llama-reference.ts';
import { createEngine } from '../src/compose.ts';
import type { Pooling } from '../src/core/request.ts';
import type { AsyncEngine } from '../src/engine/contract.ts';
import { readGguf } from '../src/ggml/gguf.ts';
import { poolingOf } from '../src/ggml/pooling.ts';
import { LLM } from '../src/llm.ts';
import { computeHere } from './support/compute-here.ts';
import { promptOf } from './support/drive.ts';
import { isLongForm } from './support/long-form.ts';
import { serveEngine } from './support/served-model.ts';
import { temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

computeHere();
const folder = temporaryFolder();
afterAll(() => folder.remove());

const options = { kvCacheMemory: 16 * 1024 ** 2, threads: 1 };
const prompts = [70, 5, 33, 1].map((length, seed) => Array.from(promptOf(length, seed)));
const lengthOf = (vector: ArrayLike<number>): number => Math.hypot(...Array.from(vector));

const models = [
  ['mean', 1],
  ['cls', 2],
  ['last', 3],
] as const;
describe.each(models)('embeddings of a model with the pooling %s', (pooling: Pooling, poolingType) => {
  const path = folder.file(`${pooling}.gguf`);
  let engine: AsyncEngine;

  beforeAll(async () => {
    await writeTinyModel(path, { architecture: 'qwen3', type: 'F32', layers: 2, poolingType });
    engine = await createEngine({ model: path, ...options, maxNumBatchedTokens: 16 });
    return () => engine.close();
  });

  it('equal those of libllama', async () => {
    expect(poolingOf(await readGguf(path), 'qwen3')).toBe(pooling);
    const reference = openReference(path, { contextLength: 256, threads: 1, batch: 128, microBatch: 128, pooling });
    try {
      for (const prompt of prompts) {
        reference.clear();
        reference.decode(prompt, { wantAllLogits: true });
        const expected = reference.embedding();
        const { embedding } = await engine.embed({ prompt, normalize: false });
        const difference = lengthOf(embedding.map((value, i) => value - expected[i]!));
        // For fewer than 64 rows, libllama's attention sums in F16. The largest distance was 0.0014.
        expect(difference / lengthOf(expected)).toBeLessThan(0.005);
      }
    } finally {
      reference.close();
    }
  });

  it('have the same bits in a batch, in a pipeline and if the prompt is cached', async () => {
    const alone = [];
    for (const prompt of prompts) alone.push((await engine.embed({ prompt, cacheSalt: 'alone' })).embedding);
    for (const vector of alone) expect(lengthOf(vector)).toBeCloseTo(1, 6);
    const batch = await Promise.all(prompts.map((prompt) => engine.embed({ prompt })));
    expect(batch.map(({ embedding }) => embedding)).toEqual(alone);
    const again = await engine.embed({ prompt: prompts[0]! });
    expect(again.embedding).toEqual(alone[0]);
    expect(again.stats.cachedTokens).toBe(pooling === 'last' ? 64 : 0);
    // Only the last rank pools, so the default form has a pipeline with one pooling.
    if (!isLongForm && pooling !== 'mean') return;
    await using ranks = new LLM({ model: path, ...options, pipelineParallelSize: 2 });
    expect((await ranks.embed(prompts)).map(({ embedding }) => embedding)).toEqual(alone);
  });

  it('can be cut to the first dimensions', async () => {
    const [prompt] = prompts as [number[]];
    const whole = (await engine.embed({ prompt, normalize: false })).embedding;
    const { embedding } = await engine.embed({ prompt, dimensions: 10 });
    expect(embedding).toHaveLength(10);
    const length = lengthOf(whole.subarray(0, 10));
    for (const [i, value] of embedding.entries()) expect(value).toBeCloseTo(whole[i]! / length, 6);
    await expect(engine.embed({ prompt, dimensions: 257 })).rejects.toThrow(/from 1 to 256, got 257/);
  });
});

describe('a server with the bundled model', () => {
  const model = 'models/kvasir-demo.gguf';

  it('answers OpenAI’s client in both encodings', async () => {
    const engine = await createEngine({ model, ...options, pooling: 'mean' });
    const { client, close } = await serveEngine(engine);
    const input = ['The fox sleeps.', 'The fox rests.', 'Seven blue stones'];
    // Without `encoding_format`, the client asks for base64 and decodes it.
    const decoded = await client.embeddings.create({ model: 'kvasir-demo', input });
    const plain = await client.embeddings.create({ model: 'kvasir-demo', input, encoding_format: 'float' });
    expect(decoded.data.map(({ embedding }) => embedding)).toEqual(plain.data.map(({ embedding }) => embedding));
    const [sleeps, rests, stones] = plain.data.map(({ embedding }) => embedding) as [number[], number[], number[]];
    const similarity = (a: number[], b: number[]) => a.reduce((sum, value, i) => sum + value * b[i]!, 0);
    expect(similarity(sleeps, rests)).toBeGreaterThan(similarity(sleeps, stones));
    expect(plain.usage.prompt_tokens).toBe(input.flatMap((text) => engine.tokenize(text)).length);
    const long = 'a fox and '.repeat(2000);
    await expect(client.embeddings.create({ model: 'kvasir-demo', input: long })).rejects.toThrow(/400.*tokens/s);
    await close();
    await engine.close();
  });

  it('has no embeddings without a pooling, and ends them with the signal', async () => {
    await using llm = new LLM({ model, ...options });
    await expect(llm.embed('a')).rejects.toMatchObject({ code: 'KVASIR_POOLING_MISSING' });
    await using pooled = new LLM({ model, ...options, pooling: 'last' });
    const reason = new Error('enough');
    await expect(pooled.embed(['a', 'b'], { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    expect((await pooled.embed('a'))[0]!.embedding).toHaveLength((await pooled.engine()).model.embedding!.length);
  });
});
