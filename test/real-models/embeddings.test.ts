/** A real embedding model: known vectors and tokens, libllama's vectors, and the same bits in every batch. */
import { beforeAll, describe, expect, it } from 'vitest';
import { openReference } from '../../bench/subject/llama-reference.ts';
import { createEngine } from '../../src/compose.ts';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import { computeHere } from '../support/compute-here.ts';
import { needs } from '../support/needs.ts';
import { realModel } from '../support/real-models.ts';

computeHere();
const model = realModel('minilm');

describe('all-MiniLM-L6-v2', needs(model.isThere, model.reason), () => {
  let engine: AsyncEngine;
  beforeAll(async () => {
    engine = await createEngine({ model: model.path, threads: 1 });
    return () => engine.close();
  });

  it('has the vectors that its authors publish', async () => {
    // The first values, from the examples of sentence-transformers.
    for (const [prompt, first] of [
      ['This is an example sentence', [0.0676, 0.0635, 0.0487, 0.0793, 0.0374]],
      ['Each sentence is converted', [0.0864, 0.1027, 0.0054, 0.002, -0.01]],
    ] as const) {
      const { embedding } = await engine.embed({ prompt });
      expect(embedding).toHaveLength(384);
      for (const [i, value] of first.entries()) expect(embedding[i]).toBeCloseTo(value, 3);
    }
  });

  it('has BERT’s tokens', () => {
    expect(engine.tokenize('Hello, World! Unaffable café 東京')).toEqual([
      ...[101, 7592, 1010, 2088, 999, 14477, 20961, 3468, 7668, 1879, 1755, 102],
    ]);
  });

  it('has the vectors of libllama, and the same bits alone and in a batch in any order', async () => {
    const texts = [
      'The fox sleeps.',
      'A text of many words. '.repeat(60),
      'q',
      'Paris is the capital of France, and Rome that of Italy.',
    ];
    const reference = openReference(model.path, {
      ...{ contextLength: 512, threads: 1, batch: 512, microBatch: 512, pooling: 'mean' },
    });
    const alone: Float32Array[] = [];
    try {
      for (const prompt of texts) {
        const { embedding } = await engine.embed({ prompt });
        alone.push(embedding);
        reference.decode(engine.tokenize(prompt), { wantAllLogits: true });
        const theirs = reference.embedding();
        const length = Math.hypot(...theirs);
        const cosine = embedding.reduce((sum, value, i) => sum + (value * theirs[i]!) / length, 0);
        expect(cosine).toBeGreaterThan(0.9999);
      }
    } finally {
      reference.close();
    }
    const embedAll = async (list: readonly string[]) =>
      (await Promise.all(list.map((prompt) => engine.embed({ prompt })))).map(({ embedding }) => embedding);
    expect(await embedAll(texts)).toEqual(alone);
    expect((await embedAll(texts.toReversed())).toReversed()).toEqual(alone);
  });
});
