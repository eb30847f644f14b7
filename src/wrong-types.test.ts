import { afterAll, beforeAll, expect, it } from 'vitest';
import { temporaryFolder, writeTinyModel } from '../test/support/tiny-model.ts';
import { createKvasir, kvasir } from './ai-sdk.ts';
import { resolveEngineOptions } from './engine/options.ts';
import { type AsyncEngine, createEngine, KvasirError, LLM } from './index.ts';
import { createServer } from './server/create-server.ts';

/** Callers in JavaScript: each wrong argument of the library is a KvasirError that names it. */
type Loose = Record<string, (...args: unknown[]) => unknown>;
const loose = (value: object): Loose => value as Loose;

const folder = temporaryFolder();
const model = folder.file('tiny.gguf');
let engine: AsyncEngine;
let llm: LLM;

beforeAll(async () => {
  await writeTinyModel(model, { architecture: 'qwen3', type: 'Q8_0', context: 512 });
  engine = await createEngine({ model, threads: 1, kvCacheMemory: 2 ** 23 });
  llm = new LLM({ model, threads: 1, kvCacheMemory: 2 ** 23 });
});
afterAll(async () => {
  await engine.close();
  await llm.close();
  folder.remove();
});

async function errorOf(call: () => unknown): Promise<unknown> {
  try {
    const result = await call();
    if (typeof result === 'object' && result !== null && Symbol.asyncIterator in result)
      for await (const _ of result as AsyncIterable<unknown>);
    return 'no error';
  } catch (error) {
    return error;
  }
}

async function expectRefused(what: string, call: () => unknown): Promise<void> {
  const error = await errorOf(call);
  expect([what, error instanceof KvasirError ? error.httpStatus : error]).toEqual([what, expect.any(Number)]);
  expect([what, (error as KvasirError).httpStatus < 500 || what.includes('maxModelLen')]).toEqual([what, true]);
}

const notOptions = [
  undefined,
  null,
  5,
  'model.gguf',
  [],
  {},
  { model: 5 },
  { model: null },
  { model: '' },
  { model: ['a'] },
];

it.each(notOptions.map((options) => [options]))('refuses the options %j', async (options) => {
  await expectRefused('createEngine', () => loose({ createEngine }).createEngine!(options));
  await expectRefused('LLM', () => new (LLM as unknown as new (options: unknown) => LLM)(options).engine());
  await expectRefused('createKvasir', () => loose({ createKvasir }).createKvasir!(options));
});

it.each([
  ['maxNumSeqs', ['8', 0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, {}, 5n]],
  ['maxNumBatchedTokens', ['8', 0]],
  ['maxModelLen', ['x', 1, {}]],
  ['targetInterTokenLatency', ['x', -1, Number.NaN]],
  ['blockSize', [0, '16', 1.5]],
  ['stateCheckpointTokens', ['x', 0]],
  ['kvCacheMemory', ['4GiB', -1, 0, Number.NaN]],
  ['kvCacheDtype', ['f32', 5]],
  ['threads', [0, '2', -1]],
  ['cpus', ['0', [0.5], [-1], ['a'], 5]],
  ['numerics', ['x']],
  ['attention', ['x']],
  ['device', ['cuda']],
  ['gpuLayers', ['x', -1, {}]],
  ['enablePrefixCaching', ['no', 1]],
  ['kvPinShare', [2, 'x']],
  ['schedulingPolicy', ['x']],
  ['maxWaiting', [-1, 'x']],
  ['chatTemplate', [5]],
  ['pooling', ['x']],
  ['maxLoras', ['x', 0]],
  ['maxLoraRank', ['x']],
  ['seed', ['x', -1, 1.5]],
  ['kvEventsConfig', [5, 'x']],
  ['pipelineParallelSize', ['2']],
  ['distributedExecutorBackend', ['ray']],
  ['workerTimeout', ['x', -1]],
  ['onEvent', [5]],
  ['onProgress', ['x']],
  ['onDownloadProgress', [1]],
  ['onDigestProgress', [1]],
  ['servedModelName', [5, [5], '', ['']]],
  ['maxmodellen', [64]],
  ['max_model_len', [64]],
] as const)('refuses wrong values of the option %s', (name, values) => {
  for (const value of values) {
    const resolve = (): unknown => resolveEngineOptions({ model, [name]: value } as never);
    expect(resolve).toThrow(KvasirError);
    expect(resolve).toThrow(name);
  }
});

it('takes null as absent, and names the option that is meant', () => {
  const nothing = { kvCacheMemory: null, threads: null, seed: null, maxModelLen: null } as never;
  expect(resolveEngineOptions({ model, ...(nothing as object) })).toEqual(resolveEngineOptions({ model }));
  expect(() => resolveEngineOptions({ model, maxmodelLen: 64 } as never)).toThrow('Did you mean `maxModelLen`?');
});

const message = { role: 'user', content: 'x' };

it.each([
  ['generate', [[], [5], [null], [{}], [[null]], ['x', 5], ['x', 'y'], ['x', { maxTokens: '5' }], ['x', {}, 5]]],
  ['generate', [['x', {}, { signal: 5 }], [{ prompt: 5 }], [['a', 'b'], [{}]], ['x', { maxtokens: 5 }], [['a', 5]]]],
  ['chat', [[], [5], ['x'], [null], [{}], [[5]], [[{}]], [[{ role: 'user' }]], [[message], 5], [[[message], 5]]]],
  [
    'chat',
    [
      [[message], {}, { tools: 5 }],
      [[message], {}, { signal: 5 }],
      [[message], {}, { stream: true, tools: 5 }],
    ],
  ],
  ['embed', [[], [5], [null], [{}]]],
  ['score', [[], [5], [5, 5], ['a'], ['a', 'b'], [5, ['a']]]],
] as const)('refuses wrong arguments of LLM.%s', async (method, calls) => {
  for (const args of calls)
    await expectRefused(`${method}(${JSON.stringify(args)})`, () => loose(llm)[method]!(...args));
});

it.each([
  ['generate', [[], [5], [null], ['x'], [{}], [{ prompt: 5 }], [{ prompt: ['a'] }], [{ prompt: 'x', params: 5 }]]],
  ['generate', [[{ prompt: 'x' }, { signal: 5 }], [{ prompt: 'x', lora: 5 }], [{ prompt: 'x', priority: 'x' }]]],
  [
    'chat',
    [[], [5], [null], ['x'], [{}], [{ messages: 'x' }], [{ messages: [5] }], [{ messages: [message], tools: 5 }]],
  ],
  ['embed', [[], [5], [null], [{}]]],
  ['score', [[], [5], [null], [{}], [{ query: 5, document: 5 }]]],
  ['tokenize', [[], [5], [null], [{}]]],
  ['tokenizePrompt', [[], [5], ['x', { signal: 5 }]]],
  ['detokenize', [[], [5], [null], ['x'], [{}], [['a']], [[-1]], [[1.5]], [[1e9]]]],
  ['tokenBytes', [[], ['x'], [null], [1.5], [1e9]]],
  ['renderChat', [[], [5], ['x'], [[5]], [[message], { signal: 5 }]]],
  ['applyChatTemplate', [[], [5], [[null]]]],
] as const)('refuses wrong arguments of engine.%s', async (method, calls) => {
  for (const args of calls)
    await expectRefused(`${method}(${JSON.stringify(args)})`, () => loose(engine)[method]!(...args));
});

it('refuses wrong arguments of adapters and of orders about cached KV', async () => {
  for (const argument of [undefined, 5, 'x', {}, { name: 5, path: 5 }]) {
    await expectRefused('load', () => loose(engine.adapters!).load!(argument));
    await expectRefused('unload', () => loose(engine.adapters!).unload!(argument));
    if (argument !== 'x') await expectRefused('pin', () => loose(engine.kv!).pin!(argument));
  }
  for (const options of [{ ttlSeconds: '5' }, { places: 5 }, { places: ['moon'] }])
    await expectRefused('pin', () => loose(engine.kv!).pin!({ prompt: 'x' }, options));
});

it('refuses what is no engine, such as the promise of one', async () => {
  for (const engineLike of [undefined, null, {}, 'x', Promise.resolve(engine)]) {
    await expectRefused('createServer', () => loose({ createServer }).createServer!(engineLike));
    await expectRefused('kvasir', () => loose({ kvasir }).kvasir!(engineLike));
  }
});
