/** A server of several models whose processes break, hang and end. Each fault ends the requests of one model, and its next request loads it. */
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync, truncateSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { writeAdapter } from '../../bench/make-model/adapter-maker.ts';
import type { CliContext } from '../../src/cli/context.ts';
import { ModelCatalog } from '../../src/cli/models/model-catalog.ts';
import { SocketFolder } from '../../src/cli/models/socket-folder.ts';
import { type ServeFlags, serveCommand } from '../../src/cli/serve.ts';
import { buildCommand, killCommands, mainInModules, serve } from '../support/cli-process.ts';
import { modelFaults } from '../support/model-faults.ts';
import { childrenOf } from '../support/processes.ts';
import { until } from '../support/until.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-heal-'));
const models = join(folder, 'models');
const demo = join('models', 'kvasir-demo.gguf');
const longFolder = join(folder, 'long'.repeat(30));
const faults = modelFaults(folder);
beforeAll(async () => {
  mkdirSync(models);
  mkdirSync(longFolder);
  symlinkSync('.', join(models, 'self'));
  for (const name of ['first', 'second']) copyFileSync(demo, join(models, `${name}.gguf`));
  await buildCommand();
}, 60_000);
afterEach(killCommands);
afterAll(() => rmSync(folder, { recursive: true }));

async function start(...args: readonly string[]) {
  const server = await serve(['--model-dir', models, ...args], faults.environment, { main: mainInModules });
  const json = async (path: string) => (await (await fetch(server.origin + path)).json()) as Record<string, unknown>;
  const textOf = async (model: string): Promise<string> => {
    const answer = await server.complete({ model, max_tokens: 8, temperature: 0 });
    return ((await answer.json()) as { choices: [{ text: string }] }).choices[0].text;
  };
  const stateOf = async (model: string) => (await json(`/v1/models/${model}`)).status;
  return { ...server, json, textOf, stateOf };
}

describe('a model of several', () => {
  it('whose step runs out of memory fails, is named by health, and its next request loads it', async () => {
    const { json, textOf, complete, stateOf, child } = await start();
    const text = await textOf('first');
    expect(await textOf('second')).toBe(text);
    const before = childrenOf(child.pid!);
    faults.order('first', 'memory');
    const stream = await complete({ model: 'first', max_tokens: 100, ignore_eos: true, stream: true });
    await stream.text();
    await expect.poll(() => stateOf('first')).toBe('failed');
    expect(await json('/health')).toMatchObject({
      status: 'degraded',
      message: expect.stringContaining('The engine of the model first stopped after an error'),
      troubles: [{ model: 'first', state: 'failed' }],
    });
    expect(await stateOf('second')).toBe('loaded');
    expect([await textOf('first'), await textOf('second')]).toEqual([text, text]);
    expect(await json('/health')).toMatchObject({ status: 'ok' });
    expect(childrenOf(child.pid!).filter((id) => before.includes(id))).toHaveLength(1);
  });

  it.each([
    ['does not answer', 'loop', 'did not answer for 2 s and was killed'],
    ['computes a step without an end', 'step', 'computed one step for'],
  ] as const)('whose process %s is killed, and other models answer meanwhile', async (_, fault, reason) => {
    const { json, textOf, complete, logged, post, origin } = await start('--worker-timeout', '2');
    const text = await textOf('first');
    await textOf('second');
    const stored = (await (
      await post('/v1/responses', { model: 'second', input: 'x', max_output_tokens: 2 })
    ).json()) as {
      readonly id: string;
    };
    faults.order('first', fault);
    const hangs = complete({ model: 'first', max_tokens: 100 });
    await expect.poll(() => textOf('second')).toBe(text);
    const answers = await Promise.all([
      fetch(`${origin}/v1/responses/${stored.id}`),
      fetch(`${origin}/metrics`),
      fetch(`${origin}/health`),
    ]);
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
    await logged(new RegExp(`model first .*${reason}`));
    await (await hangs).text();
    expect(await json('/health')).toMatchObject({ troubles: [{ model: 'first', state: 'failed' }] });
    expect(await textOf('first')).toBe(text);
  });

  it('that is stopped by SIGSTOP is named by health, and replaced', async () => {
    const { json, textOf, complete, logged, child } = await start('--worker-timeout', '2');
    const text = await textOf('first');
    const [first] = childrenOf(child.pid!);
    process.kill(first!, 'SIGSTOP');
    const hangs = complete({ model: 'first', max_tokens: 100 });
    await expect.poll(async () => (await json('/health')).status).toBe('degraded');
    await logged(/model first did not answer for 2 s and was killed/);
    expect((await hangs).status).toBe(503);
    expect(await textOf('first')).toBe(text);
  });
});

it.each([
  ['a TMPDIR whose path is too long for sockets', () => ({ TMPDIR: longFolder })],
  ['a folder of models that links to itself', () => ({})],
])('%s does not matter', async (_, environment) => {
  const server = await serve(['--model-dir', models], environment());
  expect((await server.complete({ model: 'first', max_tokens: 1 })).status).toBe(200);
  expect((await server.complete({ model: 'second', max_tokens: 1 })).status).toBe(200);
  await server.stop();
  expect(server.child.exitCode).toBe(0);
});

it('SIGTERM while a model loads ends the server at once', async () => {
  const { complete, child, json, exited, log } = await start('--shutdown-timeout', '600');
  const waits = complete({ model: 'first', max_tokens: 1 });
  await until(() => childrenOf(child.pid!).length === 1);
  expect(await json('/v1/models/first')).toMatchObject({ status: 'loading' });
  child.kill('SIGTERM');
  expect((await waits).status).toBe(503);
  await exited;
  expect([child.exitCode, log()]).toEqual([0, expect.stringContaining('the running request ended')]);
});

it('an adapter that is loaded at run time is found by its name, until it is unloaded', async () => {
  const adapter = join(folder, 'adapter.lora');
  await writeAdapter(adapter, demo);
  const server = await serve(['--model-dir', models, '--enable-runtime-lora', '--api-key', 'secret']);
  const key = { authorization: 'Bearer secret' };
  const post = async (path: string, body: object) => (await server.post(path, body, key)).status;
  const ask = () => post('/v1/completions', { model: 'sql', prompt: 'x', max_tokens: 1 });
  expect(await post('/v1/completions', { model: 'first', prompt: 'x', max_tokens: 1 })).toBe(200);
  expect(await ask()).toBe(404);
  expect(await post('/v1/load_lora_adapter?model=first', { lora_name: 'sql', lora_path: adapter })).toBe(200);
  expect(await ask()).toBe(200);
  const listed = await (await fetch(`${server.origin}/v1/models/sql`, { headers: key })).json();
  expect(listed).toMatchObject({ id: 'sql', root: 'first' });
  expect(await post('/v1/unload_lora_adapter?model=sql', { lora_name: 'sql' })).toBe(200);
  expect(await ask()).toBe(404);
});

it('/tokenize takes texts that are much longer than the context', async () => {
  const server = await serve(['--model-dir', models]);
  const answer = await server.post('/tokenize', { model: 'first', prompt: 'Once upon a '.repeat(70_000) });
  expect([answer.status, await answer.json()]).toEqual([
    200,
    expect.objectContaining({ count: expect.toSatisfy((count: number) => count > 210_000), max_model_len: 8192 }),
  ]);
});

it('a model that was unloaded because it was idle finds its KV in a disk tier at its first request', async () => {
  const server = await serve([
    '--model-dir',
    models,
    '--model-idle-timeout',
    '1',
    '--kv-tier',
    `disk:${join(folder, 'kv')}`,
  ]);
  const cached = async () => {
    const answer = await server.complete({ model: 'first', prompt: 'One two three. '.repeat(30), max_tokens: 4 });
    const { usage } = (await answer.json()) as {
      readonly usage: {
        readonly prompt_tokens: number;
        readonly prompt_tokens_details: { readonly cached_tokens: number };
      };
    };
    return [usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens] as const;
  };
  const [tokens, before] = await cached();
  expect(before).toBe(0);
  await server.logged(/the model first is unloaded .*reason=idle/);
  // All whole blocks.
  expect(await cached()).toEqual([tokens, 16 * Math.floor((tokens - 1) / 16)]);
});

it('a file that is rewritten while its model loads is named as the cause', async () => {
  const path = join(folder, 'rewritten.gguf');
  copyFileSync(demo, path);
  const command = serveCommand({ version: '1' } as CliContext, () => undefined);
  const flags: ServeFlags = { ...command.opts<ServeFlags>(), threads: 1, kvCacheMemory: 64 * 1024 ** 2 };
  const sockets = new SocketFolder();
  const given = new Map([['rewritten', path]]);
  const parts = { given, hub: 'none', flagsOf: () => flags, socketPath: () => sockets.next() } as const;
  const catalog = new ModelCatalog(parts, { memoryMaxBytes: 1024 ** 3, shareOnGpu: undefined });
  const prepared = await catalog.prepare((await catalog.find('rewritten'))!, () => undefined);
  // Another program has written half of the new file.
  truncateSync(path, statSync(path).size / 2);
  const nothing = (): void => undefined;
  const hooks = { onProgress: nothing, onIdle: nothing, onBroken: nothing, onStored: nothing, responses: new Map() };
  const process = prepared.start(hooks);
  await expect(process.ready).rejects.toThrow();
  await expect(prepared.checkFiles?.()).rejects.toMatchObject({ code: 'KVASIR_MODEL_FILE_CHANGED' });
  process.kill();
  await process.gone;
  sockets.remove();
});
