/** llm-d's index of KV blocks, unchanged, follows the events of servers. Routers ask it which server has the most of a prompt. */
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { buildCommand, killCommands, serve } from '../support/cli-process.ts';
import { hasKvIndexer, KvIndexer, noKvIndexer } from '../support/llm-d.ts';
import { needs } from '../support/needs.ts';

beforeAll(buildCommand);
afterEach(killCommands);

const model = 'demo';
/** 80 blocks of 16 tokens. */
const smallPool = ['--kv-cache-memory', '4MB', '--max-num-seqs', '4', '--served-model-name', model];

async function start(name: string, format: string, more: readonly string[] = []) {
  const events = { enable_kv_cache_events: true, endpoint: 'tcp://*:0', topic: `kv@${name}@${model}` };
  const config = JSON.stringify({ ...events, event_format: format });
  const server = await serve([...smallPool, '--kv-events-config', config, ...more]);
  const [source] = (await (await fetch(`${server.origin}/kv_event_sources`)).json()) as [{ endpoint: string }];
  const ask = async (prompt: readonly number[]): Promise<void> => {
    const response = await server.complete({ prompt, max_tokens: 1 });
    expect(response.status, await response.text()).toBe(200);
  };
  const reset = () => server.post('/reset_prefix_cache', {});
  return { name, endpoint: source.endpoint.replace('*', '127.0.0.1'), ask, reset };
}

const promptOf = (start: number, length: number): number[] => Array.from({ length }, (_, i) => (start + 7 * i) % 250);

describe('llm-d’s index of KV blocks', needs(hasKvIndexer, noKvIndexer), () => {
  it('scores the server highest that has the most blocks of a prompt', async () => {
    const [a, b] = await Promise.all([start('a', 'map'), start('b', 'array', ['--kv-offloading-size', '0.1'])]);
    const indexer = new KvIndexer({ a: a.endpoint, b: b.endpoint });
    try {
      // It does not replay events, so it knows what came after its subscriptions.
      for (const server of [a, b])
        for (let i = 0; ; i++) {
          const prompt = promptOf(i, 17);
          await server.ask(prompt);
          if (server.name in (await indexer.score(model, prompt))) break;
        }
      const prompt = promptOf(100, 100);
      const scores = () => indexer.score(model, prompt);
      await a.ask(prompt);
      await b.ask(prompt.slice(0, 40));
      await expect.poll(scores).toEqual({ a: 6, b: 2 });
      await b.ask(prompt);
      await expect.poll(scores).toEqual({ a: 6, b: 6 });
      // A block in host memory has 0.8 points.
      await b.reset();
      await expect.poll(async () => (await scores()).b).toBeCloseTo(4.8);
      // The pool of the other server evicts the prompt.
      let start = 0;
      const evict = async () => {
        await a.ask(promptOf(start++, 230));
        return (await scores()).a ?? 0;
      };
      await expect.poll(evict).toBe(0);
      await a.ask(prompt);
      await expect.poll(async () => (await scores()).a).toBe(6);
      await a.reset();
      await expect.poll(async () => Object.keys(await scores())).toEqual(['b']);
    } finally {
      indexer.kill();
    }
  });
});
