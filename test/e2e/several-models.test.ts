/** `kvasir serve` with several models: processes, their ends, and the settings of models. */
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { writeAdapter } from '../../bench/make-model/adapter-maker.ts';
import { buildCommand, killCommands, serve } from '../support/cli-process.ts';
import { itInLongForm } from '../support/long-form.ts';
import { allGone, childrenOf } from '../support/processes.ts';
import { runHere } from '../support/run-here.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-several-'));
const demo = join('models', 'kvasir-demo.gguf');
beforeAll(async () => {
  for (const name of ['first', 'second']) copyFileSync(demo, join(folder, `${name}.gguf`));
  writeFileSync(join(folder, 'broken.gguf'), 'GGUF');
  await buildCommand();
}, 60_000);
afterEach(killCommands);
afterAll(() => rmSync(folder, { recursive: true }));

type Served = Awaited<ReturnType<typeof serve>>;
const cards = async ({ origin }: Served) =>
  (
    (await (await fetch(`${origin}/v1/models`)).json()) as {
      readonly data: readonly { readonly id: string; readonly status: string }[];
    }
  ).data;
const statesOf = async (server: Served) =>
  Object.fromEntries((await cards(server)).map(({ id, status }) => [id, status]));

describe('a server of several models', () => {
  it('loads files of a folder in processes; a killed one is started again, and none outlives the server', async () => {
    const server = await serve(['--model-dir', folder]);
    expect(await statesOf(server)).toEqual({ broken: 'unloaded', first: 'unloaded', second: 'unloaded' });
    const ask = (model: string) => server.complete({ model, max_tokens: 4, temperature: 0 });
    const texts = await Promise.all(
      ['first', 'second', 'first'].map(
        async (model) => ((await (await ask(model)).json()) as { choices: [{ text: string }] }).choices[0].text,
      ),
    );
    expect(new Set(texts).size).toBe(1);
    expect((await ask('broken')).status).toBe(503);
    expect(await statesOf(server)).toEqual({ broken: 'failed', first: 'loaded', second: 'loaded' });

    const processes = childrenOf(server.child.pid!);
    expect(processes.length).toBe(2);
    const stream = await server.complete({ model: 'first', max_tokens: 7000, ignore_eos: true, stream: true });
    const reader = stream.body!.pipeThrough(new TextDecoderStream()).getReader();
    await reader.read();
    process.kill(processes[0]!, 'SIGKILL');
    process.kill(processes[1]!, 'SIGKILL');
    let last = '';
    for (let part = await reader.read(); !part.done; part = await reader.read()) last = part.value;
    expect(last).toContain('KVASIR_MODEL_PROCESS_ENDED');
    expect((await ask('first')).status).toBe(200);

    const [again] = childrenOf(server.child.pid!);
    server.child.kill('SIGKILL');
    await allGone([again!, ...processes]);
  });

  it('serves files whose names are like flags and like names of a hub', async () => {
    const odd = mkdtempSync(join(tmpdir(), 'kvasir-odd-'));
    mkdirSync(join(odd, 'hf:owner'));
    const names = ['--help', 'hf:owner/name', '__proto__'];
    for (const name of names) copyFileSync(demo, join(odd, `${name}.gguf`));
    const server = await serve(['--model-dir', '.'], {}, { cwd: odd });
    for (const model of names) expect((await server.complete({ model, max_tokens: 1 })).status).toBe(200);
    expect(await statesOf(server)).toMatchObject(Object.fromEntries(names.map((name) => [name, 'loaded'])));
    await server.stop();
    rmSync(odd, { recursive: true });
  });

  itInLongForm('ends with its requests finished; models have the settings of their sections', async () => {
    const config = join(folder, 'server.yaml');
    const adapter = join(folder, 'adapter.lora');
    await writeAdapter(adapter, demo);
    const sections = `models:\n  small:\n    model: ${demo}\n    max-model-len: 64\n    served-model-name: [tiny, 'claude-*']\n    lora-modules: [sql=${adapter}]\n  large:\n    model: ${demo}\n`;
    writeFileSync(config, sections);
    const server = await serve(['--config', config, '--max-model-len', '128']);
    // An adapter's name loads its model.
    for (const model of ['sql', 'tiny', 'large', 'claude-opus-5'])
      expect((await server.complete({ model, max_tokens: 1 })).status).toBe(200);
    expect(await cards(server)).toMatchObject([
      { id: 'small', max_model_len: 64 },
      { id: 'tiny', root: 'small' },
      { id: 'sql', root: 'small' },
      { id: 'large', max_model_len: 128 },
    ]);
    const processes = childrenOf(server.child.pid!);
    const running = await server.complete({ model: 'large', max_tokens: 100, ignore_eos: true, stream: true });
    const log = await server.stop();
    expect(await running.text()).toContain('[DONE]');
    expect(log).toContain('shutting down');
    expect(server.child.exitCode).toBe(0);
    await allGone(processes);
  });
});

it.each([
  [{ a: { port: 9000 } }, /`models\.a`: `port` is no flag of a model/],
  [{ a: { 'max-model-len': 'x' } }, /`models\.a`: `max-model-len`: It must be a number of tokens/],
  [{ a: 7 }, /`models`: It must have the names of models/],
])('a wrong section is an error at the start: %j', async (models, problem) => {
  const config = join(folder, 'wrong.yaml');
  writeFileSync(config, JSON.stringify({ models }));
  expect(await runHere(['serve', '--port', '0', '--config', config])).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(problem),
  });
});

it.each([
  [[demo, demo], /Two models have the name `kvasir-demo`/],
  [[demo, join(folder, 'first.gguf'), '--served-model-name', 'x'], /--served-model-name/],
])('a wrong command line is an error: %j', async (args, problem) => {
  expect(await runHere(['serve', '--port', '0', ...args])).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(problem),
  });
});
