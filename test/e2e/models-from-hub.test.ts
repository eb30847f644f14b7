import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text as readText } from 'node:stream/consumers';
import { Ollama } from 'ollama';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { backgroundTimers } from '../../src/base/background-timers.ts';
import { systemClock } from '../../src/base/clock.ts';
import { ModelCatalog } from '../../src/cli/models/model-catalog.ts';
import type { ServeFlags } from '../../src/cli/serve.ts';
import { ModelPool } from '../../src/server/models/model-pool.ts';
import { servedModels } from '../../src/server/models/served-models.ts';
import { Server } from '../../src/server/server.ts';
import { buildCommand, killCommands, serve, smallPool, start } from '../support/cli-process.ts';
import { HubServer } from '../support/hub-server.ts';
import { describeInLongForm } from '../support/long-form.ts';
import { needs } from '../support/needs.ts';
import { runHere } from '../support/run-here.ts';
import { writeTinyModel } from '../support/tiny-model.ts';

const demo = readFileSync('models/kvasir-demo.gguf');
const name = 'hf:kvasir/demo-GGUF:kvasir-demo';
const prompt = ['--prompt', 'Once upon a time', '--max-tokens', '8', '--temperature', '0', ...smallPool];

let hub: HubServer;
let folder: string;
const blobs = () => readdirSync(join(folder, 'hub', 'models--kvasir--demo-GGUF', 'blobs'));

beforeAll(async () => {
  await buildCommand();
  hub = await HubServer.start();
  hub.publish('kvasir/demo-GGUF', { 'kvasir-demo.gguf': demo });
});
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'kvasir-pull-'));
  vi.stubEnv('HF_ENDPOINT', hub.endpoint);
  vi.stubEnv('HF_HOME', folder);
});
afterEach(() => {
  killCommands();
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true });
});
afterAll(() => hub.stop());

describe('kvasir pull, list and rm', () => {
  it('download a model, show it and remove it', async () => {
    const pulled = await runHere(['pull', name]);
    expect(pulled).toMatchObject({ code: 0, stderr: '' });
    expect(readFileSync(pulled.stdout.trim()).equals(demo)).toBe(true);
    const listed = await runHere(['list']);
    expect(listed.stdout).toMatch(/^hf:kvasir\/demo-GGUF:kvasir-demo +4\.2 MiB +[0-9a-f]{8}$/m);
    const { models } = JSON.parse((await runHere(['list', '--json'])).stdout);
    expect(models).toMatchObject([{ name, bytes: demo.length, paths: [pulled.stdout.trim()] }]);
    const removed = await runHere(['rm', 'kvasir/demo-GGUF']);
    expect(removed.stdout).toBe(`removed ${name} (4.2 MiB)\n`);
    expect(readdirSync(join(folder, 'hub'))).toEqual([]);
    expect((await runHere(['list'])).stdout).toMatch(/^No models are downloaded to .*kvasir pull hf:/);
    expect(await runHere(['rm', name])).toMatchObject({ code: 1, stderr: expect.stringMatching(/is not downloaded/) });
  });

  it.each([
    ['a name that is not one', ['pull', 'hf:demo'], 2, /"demo" is not a repository like owner\/name/],
    ['an unknown repository', ['pull', 'nobody/none'], 1, /status 401 for nobody\/none at main: Repository not found/],
    ['an unknown quantization', ['pull', 'kvasir/demo-GGUF:Q3_K'], 2, /has no model Q3_K. It has: kvasir-demo/],
    [
      'a repository as a path',
      ['serve', '--port', '0', 'kvasir/demo'],
      2,
      /There is no file kvasir\/demo.*hf:kvasir\/demo-GGUF/,
    ],
    ['no name', ['pull'], 2, /missing required argument 'name'/],
  ])('refuse %s', async (_, args, code, message) => {
    const { stderr, code: found } = await runHere(args);
    expect(stderr).toMatch(message);
    expect(found).toBe(code);
  });

  // In a process that can be killed: a `mkdir` that never ends keeps a thread of its process.
  const title = 'refuse a folder below /proc, where the recursive mkdir of Node never ends';
  it(title, needs(existsSync('/proc/self'), 'no /proc'), async () => {
    const child = start(['pull', name], { HF_HUB_CACHE: '/proc/nothing/hub' });
    const [out, error] = [readText(child.stdout), readText(child.stderr)];
    expect(await once(child, 'close')).toEqual([1, null]);
    expect(await out).toBe('');
    expect(await error).toMatch(
      /The folder \/proc\/nothing\/hub for downloaded models cannot be used: ENOENT.*HF_HUB_CACHE/,
    );
  });

  it('continue a download that Ctrl-C stopped', async () => {
    hub.contentFaults.push({ kind: 'silence', afterBytes: 1_000_000 });
    const child = start(['pull', name]);
    const [out, error] = [readText(child.stdout), readText(child.stderr)];
    await vi.waitFor(() => expect(blobs()).toHaveLength(1), { timeout: 60_000 });
    child.kill('SIGINT');
    const [code] = (await once(child, 'exit')) as [number];
    expect([code, await out]).toEqual([130, '']);
    expect(await error).toContain('Run the command again to continue the download.');
    expect((await runHere(['list'])).stdout).toMatch(/^hf:kvasir\/demo-GGUF +\S+ \S+, incomplete/m);
    const again = await runHere(['pull', name]);
    expect(readFileSync(again.stdout.trim()).equals(demo)).toBe(true);
    expect(blobs()).toHaveLength(1);
  });
});

describe('other commands', () => {
  it('download a model that they need, and later start without the hub', async () => {
    const local = await runHere(['generate', ...prompt]);
    const pulled = await runHere(['generate', '--model', name, ...prompt]);
    expect(pulled).toMatchObject({ code: 0, stdout: local.stdout });
    vi.stubEnv('HF_HUB_OFFLINE', '1');
    expect(await runHere(['generate', '--model', name, ...prompt])).toMatchObject({ code: 0, stdout: local.stdout });
    const { complete, stop } = await serve([name], { HF_HOME: folder, HF_HUB_OFFLINE: '1' });
    const response = await complete({ max_tokens: 8, temperature: 0 });
    expect(((await response.json()) as { model: string }).model).toBe('kvasir-demo');
    expect(await stop()).not.toContain('error');
  });
});

it('a server answers /health while it downloads its model, and ends at SIGTERM', async () => {
  hub.contentFaults.push({ kind: 'silence', afterBytes: 1_000_000 });
  const child = start(['serve', '--port', '0', name, ...smallPool]);
  const exited = once(child, 'exit');
  let log = '';
  child.stderr.on('data', (piece) => (log += piece));
  const patience = { timeout: 120_000, interval: 20 };
  await expect.poll(() => log, patience).toMatch(/listening on http/);
  const [, origin] = /listening on (http:\S+)/.exec(log)!;
  const health = async () => JSON.parse(await (await fetch(`${origin}/health`)).text());
  await expect
    .poll(health, patience)
    .toMatchObject({ status: 'loading', phase: 'downloading', totalBytes: demo.length });
  child.kill('SIGTERM');
  expect(await exited).toEqual([143, null]);
});

/** A server that may download any model, without the processes of models. */
async function serveAnyModel(which: 'any' | 'downloaded' = 'any') {
  const [flags, unused] = [{} as ServeFlags, () => expect.fail('no model is loaded')];
  const limits = { memoryMaxBytes: 1, shareOnGpu: unused };
  const catalog = new ModelCatalog({ given: new Map(), hub: which, flagsOf: () => flags, socketPath: unused }, limits);
  const pool = new ModelPool(catalog, {
    memoryMaxBytes: 1,
    idleTimeoutMs: Infinity,
    waitMaxMs: 1,
    responseStoreMaxBytes: 1,
    timers: backgroundTimers,
    clock: systemClock,
    log: unused,
  });
  const server = new Server(servedModels(pool), { version: '0', logLevel: 'silent' });
  const origin = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
  return { origin, ollama: new Ollama({ host: origin }), [Symbol.asyncDispose]: () => server.close() };
}

describe('Ollama’s /api/pull', () => {
  const ofOllama = 'hf.co/kvasir/demo-GGUF:kvasir-demo';

  it('downloads a model by its name in Ollama, with progress, and lists it with its facts', async () => {
    await using served = await serveAnyModel();
    const { ollama } = served;
    expect((await ollama.list()).models).toEqual([]);
    const lines = [];
    for await (const line of await ollama.pull({ model: ofOllama, stream: true })) lines.push(line);
    expect([lines[0]!.status, lines.at(-1)!.status]).toEqual(['pulling manifest', 'success']);
    const received = lines.flatMap(({ completed }) => completed ?? []);
    expect(received.at(-1)).toBe(demo.length);
    expect(received).toEqual(received.toSorted((a, b) => a - b));
    const details = { parameter_size: '4.07M', quantization_level: 'Q8_0' };
    expect((await ollama.list()).models).toMatchObject([{ name, size: demo.length, details }]);
    for (const model of [name, ofOllama, `${ofOllama.replace(/:.*/, '')}:latest`, `https://${ofOllama}`])
      expect((await ollama.show({ model })).details, model).toMatchObject(details);
    expect(await ollama.pull({ model: name })).toEqual({ status: 'success' });
    expect(blobs()).toHaveLength(1);
  });

  it('says what the hub has answered', async () => {
    await using served = await serveAnyModel();
    const refused = served.ollama.pull({ model: 'hf.co/kvasir/none' });
    await expect(refused).rejects.toMatchObject({ status_code: 502, message: expect.stringMatching(/kvasir\/none/) });
    const wrong = served.ollama.pull({ model: 'hf.co/kvasir' });
    await expect(wrong).rejects.toMatchObject({ status_code: 400, message: expect.stringMatching(/owner\/name/) });
    // A name that an expression would read for hours.
    const headers = { 'content-type': 'application/json' };
    const body = JSON.stringify({ model: `hf.co/a/b${'?'.repeat(2_000_000)}\n` });
    for (const path of ['/api/show', '/api/chat', '/v1/completions'])
      expect((await fetch(served.origin + path, { method: 'POST', headers, body })).status, path).toBe(404);
    for (const model of ['llama3', '../demo', '/etc/passwd'])
      await expect(served.ollama.pull({ model })).rejects.toMatchObject({ status_code: 403 });
  });

  it('downloads nothing with --hub-models downloaded, and succeeds for a model that is', async () => {
    await using served = await serveAnyModel('downloaded');
    await expect(served.ollama.pull({ model: ofOllama })).rejects.toMatchObject({ status_code: 403 });
    await runHere(['pull', name]);
    const asked = hub.descriptionRequests;
    expect(await served.ollama.pull({ model: ofOllama })).toEqual({ status: 'success' });
    expect(hub.descriptionRequests).toBe(asked);
  });

  it('of a client that leaves ends, and the next one continues it', async () => {
    await using served = await serveAnyModel();
    hub.contentFaults.push({ kind: 'silence', afterBytes: 1_000_000 });
    const first = await served.ollama.pull({ model: name, stream: true });
    const second = served.ollama.pull({ model: name });
    for await (const { completed = 0 } of first) if (completed > 0) break;
    first.abort();
    expect(await second).toEqual({ status: 'success' });
    expect(hub.contentRequests.at(-1)!.range).toMatch(/^bytes=[1-9]/);
  });
});

describeInLongForm('a server of several models', () => {
  it('downloads an hf: name that a request asks for, and has drafts and embeddings beside it', async () => {
    const embedder = join(folder, 'embedder.gguf');
    await writeTinyModel(embedder, { architecture: 'nomic-bert', type: 'F16' });
    const config = join(folder, 'server.json');
    const model = join(process.cwd(), 'models', 'kvasir-demo.gguf');
    const drafted = { model, 'spec-model': name, 'spec-tokens': 4 };
    const models = { drafted, embedder: { model: embedder, pooling: 'mean', 'served-model-name': ['text-embedding'] } };
    writeFileSync(config, JSON.stringify({ models }));
    const server = await serve(['--config', config, '--hub-models', 'any']);
    const textOf = async (asked: string) => {
      const answer = await server.complete({ model: asked, max_tokens: 16, temperature: 0 });
      return ((await answer.json()) as { choices: [{ text: string }] }).choices[0].text;
    };
    const text = await textOf(name);
    expect(blobs().length).toBe(1);
    expect(await textOf('drafted')).toBe(text);
    const vectors = await server.post('/v1/embeddings', { model: 'text-embedding', input: 'a text' });
    expect(await vectors.json()).toMatchObject({ model: 'embedder', data: [{ index: 0 }] });
    expect((await server.complete({ model: 'hf:nobody/none' })).status).toBeGreaterThanOrEqual(400);
    const metrics = await (await fetch(`${server.origin}/metrics`)).text();
    expect(metrics).toMatch(/^vllm:spec_decode_num_accepted_tokens_total\{model_name="drafted",engine="0"\} [1-9]/m);
    await server.stop();
  });
});
