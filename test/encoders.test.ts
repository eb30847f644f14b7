/**
 * Models whose tokens see later tokens: embeddings and scores compared with libllama's, with the same bits alone and in any
 * batch, and no text.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ModelOptions } from '../bench/make-model/model-maker.ts';
import { openReference } from '../bench/subject/llama-reference.ts';
import { createEngine } from '../src/compose.ts';
import type { AsyncEngine } from '../src/engine/contract.ts';
import { truncatedTokens } from '../src/engine/truncation.ts';
import { computeHere } from './support/compute-here.ts';
import { promptOf } from './support/drive.ts';
import { temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

computeHere();
const folder = temporaryFolder();
afterAll(() => folder.remove());

const prompts = [70, 5, 33, 1, 130].map((length, seed) => Array.from(promptOf(length, seed)));
const lengthOf = (vector: ArrayLike<number>): number => Math.hypot(...Array.from(vector));
const distance = (a: Float32Array, b: Float32Array): number =>
  lengthOf(a.map((value, i) => value - b[i]!)) / lengthOf(b);

interface Case extends ModelOptions {
  /** llama.cpp's number. */
  readonly poolingType: number;
}
const small = { layers: 2, embedding: 128, heads: 4, headDim: 32, feedForward: 256 } as const;
const cases: readonly (readonly [string, Case])[] = [
  ['bert, mean', { ...small, architecture: 'bert', type: 'F32', poolingType: 1 }],
  ['bert in F16, first token', { ...small, architecture: 'bert', type: 'F16', poolingType: 2 }],
  ['nomic-bert', { ...small, architecture: 'nomic-bert', type: 'F32', poolingType: 1 }],
  ['jina-bert-v3', { ...small, architecture: 'jina-bert-v3', type: 'F32', poolingType: 1 }],
  ['gemma-embedding', { architecture: 'gemma-embedding', type: 'F32', layers: 2, poolingType: 1 }],
  [
    'gemma-embedding with a head',
    { architecture: 'gemma-embedding', type: 'F32', layers: 2, poolingType: 1, head: 'dense' },
  ],
  [
    'qwen3 that sees later tokens',
    { ...small, architecture: 'qwen3', type: 'F32', isBidirectional: true, poolingType: 3 },
  ],
];
const poolings = { 1: 'mean', 2: 'cls', 3: 'last', 4: 'rank' } as const;

describe.each(cases)('embeddings of %s', (name, options) => {
  const path = folder.file(`${name.replaceAll(' ', '-')}.gguf`);
  let engine: AsyncEngine;

  beforeAll(async () => {
    await writeTinyModel(path, { ...options, context: 256 });
    engine = await createEngine({ model: path, threads: 1, maxNumSeqs: 3, maxNumBatchedTokens: 64 });
    return () => engine.close();
  });

  it('equal those of libllama', async () => {
    const pooling = poolings[options.poolingType as 1];
    const reference = openReference(path, { contextLength: 256, threads: 1, batch: 256, microBatch: 256, pooling });
    try {
      for (const prompt of prompts) {
        reference.clear();
        reference.decode(prompt, { wantAllLogits: true });
        const { embedding } = await engine.embed({ prompt, normalize: false });
        // For fewer than 64 rows, libllama's attention sums in F16. The largest distance was 0.0008.
        expect(distance(embedding, reference.embedding())).toBeLessThan(0.005);
      }
    } finally {
      reference.close();
    }
  });

  it('have the same bits alone, in a batch, in another order and in a pipeline', async () => {
    const alone = [];
    for (const prompt of prompts) alone.push((await engine.embed({ prompt })).embedding);
    const batch = await Promise.all(prompts.map((prompt) => engine.embed({ prompt })));
    expect(batch.map(({ embedding }) => embedding)).toEqual(alone);
    const reversed = await Promise.all(prompts.toReversed().map((prompt) => engine.embed({ prompt })));
    expect(reversed.map(({ embedding }) => embedding).toReversed()).toEqual(alone);
    // Only the first rank has embeddings of positions, and only the last one pools, so a pipeline is tested with one model of each kind.
    if (options.architecture !== 'bert' && options.head === undefined) return;
    const pipeline = { pipelineParallelSize: 2, distributedExecutorBackend: 'uni' } as const;
    await using ranks = await createEngine({ model: path, threads: 1, ...pipeline });
    const apart = await Promise.all(prompts.map((prompt) => ranks.embed({ prompt })));
    expect(apart.map(({ embedding }) => embedding)).toEqual(alone);
  });
});

it('a text that is too long is refused, or cut if the caller says so', async () => {
  const path = folder.file('cut.gguf');
  await writeTinyModel(path, {
    ...small,
    architecture: 'bert',
    type: 'F32',
    poolingType: 1,
    vocabulary: 'word piece',
    context: 64,
  });
  await using engine = await createEngine({ model: path, threads: 1 });
  const long = 'the fox sleeps '.repeat(20_000);
  await expect(engine.embed({ prompt: long })).rejects.toMatchObject({ code: 'KVASIR_PROMPT_TOO_LONG' });
  const tokens = engine.tokenize(long);
  const cut = (side?: 'left' | 'right') =>
    truncatedTokens(engine, { text: long, truncation: { tokensMax: 64, ...(side && { side }) } });
  expect(Array.from(await cut())).toEqual([...tokens.slice(0, 63), tokens.at(-1)]);
  expect(Array.from(await cut('right'))).toEqual(tokens.slice(0, 64));
  expect(Array.from(await cut('left'))).toEqual(tokens.slice(-64));
  const { stats } = await engine.embed({ prompt: await cut() });
  expect(stats.promptTokens).toBe(64);
  expect(engine.model.maxModelLen).toBe(64);
  // Room for the texts of one step: no more, although much memory is free.
  expect(engine.stats().blocks.total).toBe(512 / 16 + 64);
  const { score } = await engine.score({ query: 'the fox', document: long, truncation: { tokensMax: 64 } });
  expect(score).toBeLessThanOrEqual(1);
});

it('--pooling rank wants a reranker, whether the file has a pooling type or not', async () => {
  const pooling = 'rank';
  await using engine = await createEngine({ model: 'test/data/converted/reranker-roberta.gguf', threads: 1, pooling });
  expect(engine.model).toMatchObject({ scores: { pooling: 'cls' }, makesNoText: true });
  const path = folder.file('no-reranker.gguf');
  await writeTinyModel(path, { ...small, architecture: 'bert', type: 'F32', poolingType: 2 });
  await expect(createEngine({ model: path, threads: 1, pooling })).rejects.toMatchObject({
    code: 'KVASIR_NO_RERANKER',
  });
});

it.each([
  ['a longer context', { maxModelLen: 300 }, 'KVASIR_ENCODER_MODEL_LEN'],
  [
    'a connector',
    {
      kvTransferConfig: {
        kvConnector: 'SharedStorageConnector',
        kvRole: 'kv_both',
        kvConnectorExtraConfig: { shared_storage_path: folder.path },
      },
    },
    'KVASIR_ENCODER_KEEPS_NO_KV',
  ],
  ['speculation', { speculativeConfig: { method: 'ngram', numSpeculativeTokens: 3 } }, 'KVASIR_ENCODER_KEEPS_NO_KV'],
] as const)('an engine with an encoder refuses %s', async (_, options, code) => {
  const path = folder.file('refused.gguf');
  await writeTinyModel(path, { ...small, architecture: 'bert', type: 'F32', poolingType: 1, context: 256 });
  await expect(createEngine({ model: path, threads: 1, ...(options as object) })).rejects.toMatchObject({ code });
});

const rerankers: readonly (readonly [string, Case])[] = [
  ['bert', { ...small, architecture: 'bert', type: 'F32', poolingType: 4, head: 'rank' }],
  [
    'qwen3 with the labels yes and no',
    { ...small, architecture: 'qwen3', type: 'F32', poolingType: 4, head: 'yes or no' },
  ],
];
describe.each(rerankers)('scores of %s', (name, options) => {
  const path = folder.file(`rank-${name.replaceAll(' ', '-')}.gguf`);
  const isPair = options.head === 'yes or no';
  const rerankTemplate = isPair ? '<|im_start|>{query} and {document}<|im_end|>' : undefined;
  let engine: AsyncEngine;

  beforeAll(async () => {
    const template = rerankTemplate === undefined ? {} : { rerankTemplate };
    await writeTinyModel(path, { ...options, ...template, context: 256 });
    engine = await createEngine({
      model: path,
      threads: 1,
      maxNumSeqs: 3,
      maxNumBatchedTokens: 64,
      kvCacheMemory: 1 << 24,
    });
    return () => engine.close();
  });

  it('equal those of libllama', async () => {
    const reference = openReference(path, {
      contextLength: 256,
      threads: 1,
      batch: 256,
      microBatch: 256,
      pooling: 'rank',
    });
    try {
      for (const [query, document] of [
        ['a fox', 'The fox sleeps in the forest.'],
        ['x', 'yes'.repeat(30)],
      ] as const) {
        const tokens = isPair
          ? engine.tokenize(rerankTemplate!.replace('{query}', query).replace('{document}', document), {
              parseSpecial: true,
            })
          : [...engine.tokenize(query), ...engine.tokenize(document)];
        reference.clear();
        reference.decode(tokens, { wantAllLogits: true });
        const [first] = reference.embedding(0, isPair ? 2 : 1);
        const { score, stats } = await engine.score({ query, document });
        const { score: value } = await engine.score({ query, document, useActivation: false });
        expect(stats.promptTokens).toBe(tokens.length);
        // libllama gives the probability of yes, and the value of a reranker with one output.
        expect(isPair ? score : value).toBeCloseTo(first!, 2);
        if (!isPair) expect(score).toBeCloseTo(1 / (1 + Math.exp(-value)), 6);
      }
    } finally {
      reference.close();
    }
  });

  it('have the same bits alone, in a batch and in another order', async () => {
    const pairs = ['one', 'another one that is longer', 'the third'].map((document) => ({ query: 'Which?', document }));
    const alone = [];
    for (const pair of pairs) alone.push((await engine.score(pair)).score);
    const scores = async (list: typeof pairs) =>
      (await Promise.all(list.map((pair) => engine.score(pair)))).map(({ score }) => score);
    expect(await scores(pairs)).toEqual(alone);
    expect((await scores(pairs.toReversed())).toReversed()).toEqual(alone);
    expect(new Set(alone).size).toBe(3);
  });

  it('are the only results: no embeddings and no text', async () => {
    await expect(engine.embed({ prompt: 'a' })).rejects.toMatchObject({ code: 'KVASIR_SCORES_ONLY' });
    await expect(engine.generate({ prompt: 'a' }).next()).rejects.toMatchObject({ code: 'KVASIR_NO_TEXT' });
  });
});
