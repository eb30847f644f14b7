/** LoRA adapters in engines and servers: names, loading and unloading while requests run, worker processes that die, bad files. */
import { copyFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type AdapterOptions, writeAdapter } from '../bench/make-model/adapter-maker.ts';
import { type MeasuredEngine, openMeasuredEngine } from '../src/compose.ts';
import type { AsyncEngine, OutputDelta } from '../src/engine/contract.ts';
import type { EngineOptions } from '../src/engine/options.ts';
import { Server, type ServerOptions } from '../src/server/server.ts';
import { buildCommand } from './support/cli-process.ts';
import { inLongForm, itInLongForm } from './support/long-form.ts';
import { allGone, childrenOf } from './support/processes.ts';
import { temporaryFolder, writeTinyModel } from './support/tiny-model.ts';
import { until } from './support/until.ts';

const folder = temporaryFolder();
const model = folder.file('base.gguf');
const [sql, poem] = [folder.file('sql.gguf'), folder.file('poem.gguf')];
const opened: MeasuredEngine[] = [];
const servers: Server[] = [];

beforeAll(async () => {
  await buildCommand();
  await writeTinyModel(model, { architecture: 'llama', type: 'Q8_0' });
  await writeAdapter(sql, model);
  await writeAdapter(poem, model, { seed: 9, rank: 4 });
});
afterEach(async () => {
  for (const server of servers.splice(0)) await server.close();
  for (const { engine } of opened.splice(0)) await engine.close();
  await allGone(childrenOf(process.pid));
});
afterAll(() => folder.remove());

const modules = () => [
  { name: 'sql', path: sql },
  { name: 'poem', path: poem },
];

async function open(options: Partial<EngineOptions> = {}): Promise<MeasuredEngine> {
  const restarts = { startsMax: 100, withinMs: 60_000, backoffMs: 0 };
  const measured = await openMeasuredEngine(
    { model, threads: 1, kvCacheMemory: 8 << 20, maxModelLen: 512, ...options },
    restarts,
  );
  opened.push(measured);
  return measured;
}

const prompt = Array.from({ length: 40 }, (_, i) => (i * 37) % 250);

interface Asked {
  readonly lora?: string | undefined;
  readonly maxTokens?: number;
  readonly onToken?: (count: number) => void;
}
async function completion(engine: AsyncEngine, { lora, maxTokens = 12, onToken }: Asked = {}) {
  const params = { maxTokens, temperature: 0, ignoreEos: true, logprobs: 1 };
  const deltas: OutputDelta[] = [];
  for await (const delta of engine.generate({ prompt, params, ...(lora === undefined ? {} : { lora }) })) {
    deltas.push(delta);
    onToken?.(deltas.length);
  }
  return {
    tokens: deltas.flatMap(({ tokenIds }) => tokenIds),
    logprobs: deltas.flatMap(({ logprobs }) => logprobs ?? []),
    error: deltas.at(-1)?.finish?.error,
  };
}
const all = (engine: AsyncEngine) =>
  Promise.all([undefined, 'sql', 'poem'].map((lora) => completion(engine, { lora })));

describe('an engine with adapters', () => {
  it('multiplies the scale of an adapter, and has other KV with another scale', async () => {
    const path = folder.file('quarter.gguf');
    const edit = (name: string, numbers: Float32Array): void => {
      if (name.endsWith('.lora_b')) for (let i = 0; i < numbers.length; i++) numbers[i]! /= 4;
    };
    await writeAdapter(path, model, { edit });
    const scaled = { name: 'scaled', path, scale: 4 };
    const { engine } = await open({ loraModules: [{ name: 'quarter', path }, scaled, ...modules()] });
    expect(engine.adapters!.list()[1]).toEqual(scaled);
    const [whole, wanted, quarter] = await Promise.all(
      ['scaled', 'sql', 'quarter'].map((lora) => completion(engine, { lora })),
    );
    expect(whole).toEqual(wanted);
    expect(quarter!.logprobs).not.toEqual(wanted!.logprobs);
  });

  it('has the logprobs of a prompt by the output head of the adapter', async () => {
    const path = folder.file('ends.gguf');
    await writeAdapter(path, model, { changesEnds: true });
    const { engine } = await open({ loraModules: [{ name: 'ends', path }, ...modules()] });
    for (const lora of ['ends', 'sql', undefined]) {
      const { tokens, logprobs } = await completion(engine, { lora, maxTokens: 20 });
      const params = { maxTokens: 1, promptLogprobs: 0 };
      const asked = { prompt: [...prompt, ...tokens], params, ...(lora === undefined ? {} : { lora }) };
      const scored: OutputDelta[] = [];
      for await (const delta of engine.generate(asked)) scored.push(delta);
      const ofPrompt = scored.flatMap(({ promptLogprobs }) => promptLogprobs ?? []).slice(prompt.length - 1);
      expect(ofPrompt.map((entry) => entry?.logprob)).toEqual(logprobs.map(({ logprob }) => logprob));
    }
  });

  itInLongForm(
    'has the same tokens with one rank, with ranks in processes, and after both of them have died',
    async () => {
      const { engine } = await open({ loraModules: modules() });
      const expected = await all(engine);
      expect(new Set(expected.map(({ tokens }) => tokens.join())).size).toBe(3);
      const apart = await open({ loraModules: modules(), pipelineParallelSize: 2 });
      expect(await all(apart.engine)).toEqual(expected);
      const killed = apart.processIds();
      let tokens = 0;
      const onToken = (count: number): void => {
        tokens = count;
        if (count === 5) for (const id of killed) process.kill(id, 'SIGKILL');
      };
      const during = completion(apart.engine, { lora: 'sql', onToken });
      expect(await during).toEqual(expected[1]);
      expect(tokens).toBe(12);
      expect(await all(apart.engine)).toEqual(expected);
    },
  );

  itInLongForm(
    'ends requests of an adapter whose file is gone when a process is replaced, and only these',
    async () => {
      const path = folder.file('gone.gguf');
      copyFileSync(sql, path);
      const { engine, processIds } = await open({
        loraModules: [...modules(), { name: 'gone', path }],
        pipelineParallelSize: 2,
      });
      const expected = await all(engine);
      expect((await completion(engine, { lora: 'poem' })).tokens).toEqual(expected[2]!.tokens);
      // Both names have this content: it is in memory once.
      await engine.adapters!.unload('sql');
      expect((await completion(engine, { lora: 'gone' })).tokens).toEqual(expected[1]!.tokens);
      rmSync(path);
      const [first] = processIds();
      process.kill(first!, 'SIGKILL');
      await until(() => processIds()[0] !== first);
      expect((await completion(engine, { lora: 'gone' })).error?.code).toBe('KVASIR_ADAPTER_LOST');
      expect((await completion(engine)).tokens).toEqual(expected[0]!.tokens);
      expect((await completion(engine, { lora: 'poem' })).tokens).toEqual(expected[2]!.tokens);
      expect(engine.health().status).toBe('ok');
      await engine.adapters!.unload('gone');
      await engine.adapters!.load({ name: 'gone', path: sql });
      expect((await completion(engine, { lora: 'gone' })).tokens).toEqual(expected[1]!.tokens);
    },
  );

  it('unloads an adapter while requests use it: they end with the same tokens, and later requests are refused', async () => {
    const { engine } = await open({ loraModules: modules() });
    const expected = await completion(engine, { lora: 'sql', maxTokens: 40 });
    let unloaded: Promise<void> | undefined;
    const onToken = (count: number): void => {
      if (count === 3) unloaded = engine.adapters!.unload('sql');
    };
    expect(await completion(engine, { lora: 'sql', maxTokens: 40, onToken })).toEqual(expected);
    await unloaded;
    expect(engine.adapters!.list().map(({ name }) => name)).toEqual(['poem']);
    await expect(completion(engine, { lora: 'sql' })).rejects.toThrow(/no LoRA adapter `sql`. Loaded: poem/);
    await engine.adapters!.load({ name: 'again', path: sql });
    expect(await completion(engine, { lora: 'again', maxTokens: 40 })).toEqual(expected);
  });

  it('loads and unloads adapters in any order beside requests, whose tokens stay the same', async () => {
    const { engine } = await open({ loraModules: modules(), maxLoras: 4 });
    const expected = await all(engine);
    const changes = (async () => {
      for (let i = 0; i < 6; i++) {
        await engine.adapters!.load({ name: `more ${i}`, path: i % 2 === 0 ? sql : poem });
        expect((await completion(engine, { lora: `more ${i}` })).tokens).toEqual(expected[1 + (i % 2)]!.tokens);
        await engine.adapters!.unload(`more ${i}`);
      }
    })();
    for (let i = 0; i < 8; i++) expect(await all(engine)).toEqual(expected);
    await changes;
  });

  it('refuses names that are taken and more adapters than the limit', async () => {
    const { engine } = await open({ loraModules: modules(), maxLoras: 2, servedModelName: ['base', 'alias'] });
    const load = (name: string) => engine.adapters!.load({ name, path: sql });
    for (const name of ['base', 'alias', 'sql'])
      await expect(load(name)).rejects.toThrow(/is that of the model or of a/);
    await expect(load('third')).rejects.toThrow(/There are 2 LoRA adapters/);
    await expect(load('')).rejects.toThrow(/`name` must be a text/);
    for (const scale of [0, -1, Number.NaN, 1e9])
      await expect(engine.adapters!.load({ name: 'x', path: sql, scale })).rejects.toThrow(/`scale` must be a number/);
    await expect(engine.adapters!.unload('third')).rejects.toThrow(/no LoRA adapter `third`/);
  });

  it('loads stored KV of its own adapter only', async () => {
    const kvTransferConfig = {
      kvConnector: 'SharedStorageConnector',
      kvRole: 'kv_both',
      kvConnectorExtraConfig: { shared_storage_path: folder.file('store') },
    } as const;
    const expected = await all((await open({ loraModules: modules() })).engine);
    const first = await open({ loraModules: modules(), kvTransferConfig });
    expect(await completion(first.engine, { lora: 'sql' })).toEqual(expected[1]);
    await first.engine.close();
    const external: number[] = [];
    const { engine } = await open({ loraModules: modules(), kvTransferConfig });
    for (const [i, lora] of [undefined, 'sql', 'poem'].entries()) {
      const before = engine.stats().externalTokens;
      expect(await completion(engine, { lora })).toEqual(expected[i]);
      external.push(engine.stats().externalTokens - before);
    }
    expect(external).toEqual([0, 32, 0]);
  });

  it('computes embeddings with an adapter', async () => {
    const { engine } = await open({ loraModules: modules(), pooling: 'mean' });
    const vectors = [await engine.embed({ prompt }), await engine.embed({ prompt, lora: 'sql' })];
    expect(vectors[0]!.embedding).not.toEqual(vectors[1]!.embedding);
    expect(vectors[1]!.stats.cachedTokens).toBe(0);
  });
});

describe('an adapter file that does not fit is refused, and the engine goes on', () => {
  const name = 'blk.0.attn_q.weight';
  const renamed = (to: string) => (tensors: Map<string, readonly number[]>) => {
    for (const part of ['lora_a', 'lora_b']) {
      tensors.set(`${to}.${part}`, tensors.get(`${name}.${part}`)!);
      tensors.delete(`${name}.${part}`);
    }
  };
  const shaped = (part: string, shape: readonly number[]) => (tensors: Map<string, readonly number[]>) =>
    void tensors.set(`${name}.${part}`, shape);
  const cases: readonly (readonly [string, AdapterOptions, RegExp])[] = [
    ['another architecture', { metadata: { 'general.architecture': 'qwen2' } }, /general.architecture is qwen2/],
    ['another kind of file', { metadata: { 'general.type': 'model' } }, /general.type is model/],
    ['another kind of adapter', { metadata: { 'adapter.type': 'dora' } }, /adapter.type is dora/],
    ['B without A', { change: (tensors) => void tensors.delete(`${name}.lora_a`) }, /lora_b without .*lora_a/],
    ['a rank above the limit', { rank: 65 }, /has rank 65, and 64 is the limit/],
    ['other inputs', { change: shaped('lora_a', [128, 8]) }, /are \[128, 8\] and \[8, 256\]/],
    ['other outputs', { change: shaped('lora_b', [8, 100]) }, /are \[256, 8\] and \[8, 100\]/],
    ['two ranks', { change: shaped('lora_a', [256, 4]) }, /so their ranks differ/],
    [
      'an unknown layer',
      { change: renamed('blk.9.attn_q.weight') },
      /changes blk.9.attn_q.weight, which the model does not have/,
    ],
    ['a norm', { change: renamed('blk.0.attn_norm.weight') }, /changes blk.0.attn_norm.weight, and adapters/],
    ['embeddings like other matrices', { change: renamed('token_embd.weight') }, /token_embd.weight .*ranks differ/],
    ['an output head of another size', { change: renamed('output.weight') }, /output.weight of the model is \[256/],
    [
      'a trained norm',
      { change: (tensors) => void tensors.set('blk.0.attn_norm.weight', [256]) },
      /trained norm blk.0.attn_norm.weight \(modules_to_save\)/,
    ],
    [
      'a whole tensor',
      { change: (tensors) => void tensors.set('blk.0.attn_q.weight', [256, 256]) },
      /is no matrix of a LoRA/,
    ],
    ['experts', { change: shaped('lora_a', [256, 8, 2]) }, /matrices of experts/],
    ['another type', { type: 'Q4_0', rank: 32 }, /of type Q4_0/],
    ['no matrices', { targets: /nothing/ }, /it has no matrices/],
    [
      'NaN',
      { edit: (tensor, numbers) => void numbers.fill(Number.NaN, 7, tensor.endsWith('ffn_up.weight.lora_b') ? 8 : 7) },
      /is not finite/,
    ],
    [
      'infinity in F16',
      { type: 'F16', edit: (_, numbers) => void numbers.fill(Number.POSITIVE_INFINITY, 3, 4) },
      /is not finite/,
    ],
  ];

  it.each(inLongForm(['uni', 'mp'] as const, ['uni'] as const))(
    'with the executor %s',
    async (distributedExecutorBackend) => {
      const { engine } = await open({ loraModules: modules(), maxLoraRank: 64, distributedExecutorBackend });
      const expected = await all(engine);
      const path = join(folder.path, 'bad.gguf');
      const load = () => engine.adapters!.load({ name: 'bad', path });
      for (const [what, options, message] of cases) {
        await writeAdapter(path, model, options);
        await expect(load(), what).rejects.toMatchObject({
          code: 'KVASIR_ADAPTER_UNUSABLE',
          message: expect.stringMatching(message),
        });
      }
      await writeAdapter(path, model);
      truncateSync(path, 5000);
      await expect(load()).rejects.toThrow(/cannot be used: .* is truncated/);
      writeFileSync(path, 'no GGUF');
      // Without the first bytes of the file, which the message of a model has.
      await expect(load()).rejects.toThrow(/cannot be used: it is not a GGUF file\. Give/);
      rmSync(path);
      await expect(load()).rejects.toThrow(/there is no such file/);
      await expect(engine.adapters!.load({ name: 'bad', path: folder.path })).rejects.toThrow(/it is not a file/);
      await expect(engine.adapters!.load({ name: 'bad', path: model })).rejects.toThrow(/general.type is missing/);
      expect(engine.adapters!.list()).toEqual(modules());
      expect(await all(engine)).toEqual(expected);
    },
  );

  it('at the start, with the file in the message', async () => {
    const missing = [{ name: 'x', path: folder.file('missing.gguf') }];
    await expect(open({ loraModules: missing })).rejects.toThrow(/missing.gguf cannot be used/);
  });
});

describe('a server with adapters', () => {
  async function serve(options: Partial<ServerOptions> = {}) {
    const { engine } = await open({ loraModules: modules(), servedModelName: 'base', pooling: 'mean' });
    const server = new Server(engine, { version: '1', logLevel: 'silent', ...options });
    servers.push(server);
    const origin = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
    const headers = { 'content-type': 'application/json', authorization: 'Bearer secret' };
    const post = async (path: string, body: object) => {
      const response = await fetch(`${origin}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
      const text = await response.text();
      return { status: response.status, text, json: () => JSON.parse(text) };
    };
    const get = async (path: string) => JSON.parse(await (await fetch(`${origin}${path}`, { headers })).text());
    return { engine, post, get };
  }

  it('chooses the adapter by `model` in each API, and answers with its name', async () => {
    const { post, get, engine } = await serve();
    const body = { prompt, max_tokens: 8, temperature: 0, ignore_eos: true };
    const texts = new Set<string>();
    for (const name of ['base', 'sql', 'poem']) {
      const answer = (await post('/v1/completions', { ...body, model: name })).json();
      expect(answer.model).toBe(name);
      texts.add(answer.choices[0].text);
      const lora = name === 'base' ? undefined : name;
      expect(answer.choices[0].text).toBe(engine.detokenize((await completion(engine, { lora, maxTokens: 8 })).tokens));
    }
    expect(texts.size).toBe(3);
    const messages = [{ role: 'user', content: 'Hello' }];
    const chats: readonly (readonly [string, object, string])[] = [
      ['/v1/chat/completions', { messages, max_tokens: 3 }, 'model'],
      ['/v1/messages', { messages, max_tokens: 3 }, 'model'],
      ['/api/chat', { messages, stream: false, options: { num_predict: 3 } }, 'model'],
      ['/api/generate', { prompt: 'Hello', stream: false, options: { num_predict: 3 } }, 'model'],
      ['/v1/responses', { input: 'Hello', max_output_tokens: 16 }, 'model'],
      ['/v1/embeddings', { input: 'Hello' }, 'model'],
      ['/api/embed', { input: 'Hello' }, 'model'],
    ];
    for (const [path, asked, key] of chats) {
      const answer = await post(path, { ...asked, model: 'sql' });
      expect(answer.status, `${path} ${answer.text}`).toBe(200);
      expect(answer.json()[key], path).toBe('sql');
    }
    const stream = await post('/v1/completions', { ...body, model: 'sql', stream: true });
    expect(stream.text).toContain('"model":"sql"');
    const cards: { id: string; parent: string | null }[] = (await get('/v1/models')).data;
    expect(cards.map(({ id, parent }) => [id, parent])).toEqual([
      ['base', null],
      ['sql', 'base'],
      ['poem', 'base'],
    ]);
    expect(await get('/v1/models/poem')).toMatchObject({ id: 'poem', parent: 'base' });
    const refused = await post('/v1/completions', { ...body, model: 'other' });
    expect(refused.status).toBe(404);
    expect(refused.json().error.message).toContain('serves `base`, `sql`, `poem`');
  });

  it('loads and unloads adapters for a client with a key, and only with the flag', async () => {
    const load = ['/v1/load_lora_adapter', { lora_name: 'new', lora_path: poem }] as const;
    for (const options of [{}, { enableRuntimeLora: true }, { apiKey: 'secret' }]) {
      const { post } = await serve(options);
      expect((await post(...load)).json().error).toMatchObject({ code: 'KVASIR_RUNTIME_LORA_OFF' });
    }
    const { post } = await serve({ enableRuntimeLora: true, apiKey: 'secret' });
    const body = { prompt, max_tokens: 8, temperature: 0, ignore_eos: true };
    expect(await post(...load)).toMatchObject({ status: 200, text: "Success: LoRA adapter 'new' added successfully." });
    const answers = [];
    for (const name of ['new', 'poem']) answers.push((await post('/v1/completions', { ...body, model: name })).json());
    expect(answers[0].choices[0].text).toBe(answers[1].choices[0].text);
    expect((await post(...load)).status).toBe(400);
    expect((await post('/v1/load_lora_adapter', { lora_name: 'x' })).status).toBe(400);
    const bad = await post('/v1/load_lora_adapter', { lora_name: 'x', lora_path: model });
    expect(bad.status).toBe(400);
    expect(bad.json().error.message).toContain('general.type is missing');
    const unload = ['/v1/unload_lora_adapter', { lora_name: 'new' }] as const;
    expect(await post(...unload)).toMatchObject({
      status: 200,
      text: "Success: LoRA adapter 'new' removed successfully.",
    });
    expect((await post(...unload)).status).toBe(404);
    expect((await post('/v1/completions', { ...body, model: 'new' })).status).toBe(404);
  });
});
