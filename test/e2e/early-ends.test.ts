/**
 * Answers that end early, seen by the clients that people use: each raises an error, or reports a finish reason that it knows.
 * docs/health-and-shutdown.md has the table.
 */
import { copyFileSync, mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import OpenAI from 'openai';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Server } from '../../src/server/server.ts';
import { askAll, type Outcome, PythonClients, pythonClients, readSlowly } from '../support/answer-clients.ts';
import { buildCommand, killCommands, serve } from '../support/cli-process.ts';
import { LetterEngine } from '../support/letter-engine.ts';
import { itInLongForm } from '../support/long-form.ts';
import { childrenOf } from '../support/processes.ts';
import { temporaryFolder, writeTinyModel } from '../support/tiny-model.ts';
import { until } from '../support/until.ts';

const folder = temporaryFolder();
const original = folder.file('tiny.gguf');
const context = 8192;

beforeAll(async () => {
  await writeTinyModel(original, { architecture: 'llama', type: 'Q8_0', fillsInMiddle: true, context });
  await buildCommand();
}, 60_000);
afterEach(killCommands);
afterAll(() => folder.remove());

type Served = Awaited<ReturnType<typeof serve>>;

const pool = ['--kv-cache-memory', '128MiB'];

/** Requests that the engines have. */
async function openRequests({ origin }: Served): Promise<number> {
  const text = await (await fetch(`${origin}/metrics`)).text();
  const counts = text.matchAll(/^vllm:num_requests_(?:running|waiting)\{.*\} (\d+)$/gm);
  return Array.from(counts, ([, count]) => Number(count)).reduce((sum, count) => sum + count, 0);
}

interface Asked {
  readonly maxTokens?: number;
  /** Without finish reasons: only for answers that are errors. */
  readonly withAgents?: boolean;
}

/** All clients in the middle of their answers. */
async function inTheMiddle(server: Served, { maxTokens = 8000, withAgents = true }: Asked = {}) {
  const scripts = [...pythonClients.openai, ...(withAgents ? pythonClients.agents : [])];
  const python = scripts.map((script) => new PythonClients(script));
  await Promise.all(python.map((clients) => clients.ready()));
  const request = { origin: server.origin, model: 'tiny', maxTokens };
  const node = askAll(request);
  const others = python.map((clients) => clients.ask(request));
  await node.begun;
  const count = python.reduce((sum, clients) => sum + clients.count, node.count);
  await expect.poll(() => openRequests(server), { timeout: 60_000, interval: 20 }).toBe(count);
  return async (): Promise<Record<string, Outcome>> => {
    const ofPython = (await Promise.all(others)).flatMap((outcomes) => Object.entries(outcomes));
    const named = ofPython.map(([name, outcome]) => [`Python: ${name}`, outcome] as const);
    return { ...(await node.outcomes), ...Object.fromEntries(named) };
  };
}

/** Each client raises an error with these words. */
function expectErrors(outcomes: Record<string, Outcome>, words: string): void {
  for (const [name, outcome] of Object.entries(outcomes)) {
    const error = { raised: expect.any(String), message: expect.stringContaining(words) };
    // The status of the last event, which is one of OpenAI's.
    const expected = /responses, streamed/.test(name) && 'ended' in outcome ? { ended: 'failed' } : error;
    expect([name, outcome]).toEqual([name, expected]);
  }
}

/** Each client has a finish reason of its API. */
function expectWhole(outcomes: Record<string, Outcome>): void {
  const others = { responses: 'incomplete', messages: 'max_tokens', infill: 'limit' };
  for (const [name, outcome] of Object.entries(outcomes)) {
    const [, reason = 'length'] = Object.entries(others).find(([api]) => name.includes(api)) ?? [];
    expect([name, outcome]).toEqual([name, { ended: reason }]);
  }
}

describe('an answer', () => {
  it('is an error for each client if the end of the shutdown timeout ends it', async () => {
    const server = await serve([original, ...pool, '--shutdown-timeout', '0']);
    const outcomes = await inTheMiddle(server);
    server.child.kill('SIGTERM');
    expectErrors(await outcomes(), 'The engine is shutting down.');
    expect(await server.exited).toEqual([143, null]);
  });

  // Tests of recovery kill ranks too, and tests of the policy lose KV.
  itInLongForm('is whole if a rank is killed, and an error if the rank cannot be started again', async () => {
    const path = folder.file('ranks.gguf');
    copyFileSync(original, path);
    const server = await serve([path, ...pool, '--pipeline-parallel-size', '2', '--served-model-name', 'tiny']);
    const recovered = await inTheMiddle(server, { maxTokens: 400, withAgents: false });
    process.kill(childrenOf(server.child.pid!)[1]!, 'SIGKILL');
    expectWhole(await recovered());
    const outcomes = await inTheMiddle(server);
    writeFileSync(`${path}.new`, 'another model');
    renameSync(`${path}.new`, path);
    process.kill(childrenOf(server.child.pid!)[1]!, 'SIGKILL');
    expectErrors(await outcomes(), 'The engine failed while it computed this request.');
  });

  it('is whole if its model is unloaded meanwhile, and an error if the process of the model is killed', async () => {
    const models = folder.file('models');
    mkdirSync(models);
    copyFileSync(original, join(models, 'tiny.gguf'));
    const server = await serve(['--model-dir', models, ...pool]);
    const unloaded = await inTheMiddle(server, { maxTokens: 400, withAgents: false });
    expect((await server.post('/models/unload', { model: 'tiny' })).status).toBe(200);
    expectWhole(await unloaded());
    const outcomes = await inTheMiddle(server);
    process.kill(childrenOf(server.child.pid!)[0]!, 'SIGKILL');
    expectErrors(await outcomes(), 'The process of the model `tiny` ended before the answer.');
  });

  itInLongForm('is an error if its KV is lost and the policy is fail', async () => {
    const config = JSON.stringify({
      kv_connector: 'SharedStorageConnector',
      kv_role: 'kv_both',
      kv_load_failure_policy: 'fail',
      kv_connector_extra_config: { shared_storage_path: folder.file('kv') },
    });
    const server = await serve([original, ...pool, '--enable-fault-injection', '--kv-transfer-config', config]);
    const outcomes = await inTheMiddle(server);
    expect((await server.post('/cache/lose', { count: 4096 })).status).toBe(200);
    expectErrors(await outcomes(), 'kv_load_failure_policy is fail');
  });

  it('is an error for clients that read too slowly: their connections are cut', async () => {
    const engine = new LetterEngine({ maxModelLen: 1_000_000, fimTokens: { prefix: 1, suffix: 2, middle: 3 } });
    const server = new Server(engine, { version: '0.0.0', logLevel: 'silent', clientTimeoutMs: 300 });
    const origin = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
    const outcomes = await readSlowly({ origin, model: 'letters', maxTokens: 900_000 }, (count) =>
      until(() => engine.stats().aborts === count),
    );
    for (const outcome of outcomes) expect(outcome).toMatchObject([expect.any(String), { raised: expect.any(String) }]);
    await server.close();
  });
});

it('after the restart, the repeated request of a client finds its prompt in the tiers', async () => {
  const tiers = ['--kv-tier', `disk:${folder.file('tier')}:1GiB`, '--kv-load-policy', 'always'];
  const first = await serve([original, ...pool, ...tiers, '--shutdown-timeout', '0']);
  const { port } = new URL(first.origin);
  const client = new OpenAI({ baseURL: `${first.origin}/v1`, apiKey: 'none', maxRetries: 30 });
  const prompt = 'Once upon a time there was a fox. '.repeat(20);
  const body = { model: 'tiny', prompt, max_tokens: 2000, temperature: 0, ...{ ignore_eos: true } };
  const answer = client.completions.create(body);
  const generated = async () => {
    const text = await (await fetch(`${first.origin}/metrics`)).text();
    return Number(/^vllm:generation_tokens_total\{.*\} (\d+)$/m.exec(text)?.[1]);
  };
  await expect.poll(generated, { timeout: 60_000, interval: 20 }).toBeGreaterThan(16);
  await first.stop();
  const second = await serve([original, ...pool, ...tiers, '--port', port]);
  const { choices, usage } = await answer;
  expect(choices[0]!.finish_reason).toBe('length');
  const { external_tokens } = usage!.prompt_tokens_details as unknown as { readonly external_tokens: number };
  expect(external_tokens).toBeGreaterThan(usage!.prompt_tokens / 2);
  const alone = await serve([original, ...pool]);
  const again = await (await alone.post('/v1/completions', body)).json();
  expect(choices[0]!.text).toBe((again as OpenAI.Completion).choices[0]!.text);
  await second.stop();
});
