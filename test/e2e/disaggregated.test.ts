import { once } from 'node:events';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createRouter } from '../../examples/disaggregated/router.ts';
import { buildCommand, killCommands, run, serve } from '../support/cli-process.ts';
import { inLongForm, isLongForm, itInLongForm } from '../support/long-form.ts';
import { needs } from '../support/needs.ts';
import { freePort, hasRedisServer, needsRedisServer, RedisServer } from '../support/redis-server.ts';

/** Prefill and decode on different servers, which meet in Redis. Every process is killed while clients read. */
const story = 'a little fox who lived in the garden and wanted to find the red ball before the evening. '.repeat(8);
const user = (content: string) => [{ role: 'user', content }];
/** Greedy and seeded, streams and whole answers, both APIs. */
const questions = [
  { path: '/v1/completions', prompt: `Once upon a time there was ${story}`, temperature: 0, stream: true },
  { path: '/v1/completions', prompt: `The story begins with ${story}`, temperature: 0.8, seed: 7, stream: true },
  { path: '/v1/completions', prompt: `In the morning came ${story}`, temperature: 0.8, seed: 8, n: 2, logprobs: 2 },
  { path: '/v1/chat/completions', messages: user(`Tell me of ${story}`), temperature: 0.8, seed: 9, stream: true },
  {
    path: '/v1/completions',
    prompt: `Every day, ${story}`,
    temperature: 0.8,
    seed: 10,
    n: 2,
    logprobs: 1,
    stream: true,
  },
].map((question) => ({ ...question, max_tokens: 48, ignore_eos: true, return_token_ids: true }));
type Question = (typeof questions)[number];

interface Choice {
  text: string;
  tokenIds: number[];
  logprobs: number[];
  finish: string | undefined;
}

/** Every piece of an answer with its events, so that a piece that is missing or sent twice is seen. */
async function ask(
  origin: string,
  question: Question & { cache_salt?: string },
  onChunk: () => void = () => undefined,
): Promise<Choice[]> {
  const { path, ...body } = question;
  const response = await fetch(origin + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify('stream' in body ? { ...body, stream_options: { include_usage: true } } : body),
  });
  const choices: Choice[] = [];
  const add = (part: string): { usage?: { completion_tokens: number } } => {
    const chunk = JSON.parse(part);
    for (const { index, text, delta, token_ids, logprobs, finish_reason } of chunk.choices) {
      choices[index] ??= { text: '', tokenIds: [], logprobs: [], finish: undefined };
      const choice = choices[index];
      choice.text += text ?? delta?.content ?? '';
      choice.tokenIds.push(...(token_ids ?? []));
      choice.logprobs.push(...(logprobs?.token_logprobs ?? []));
      if (finish_reason !== null) {
        expect(choice.finish).toBeUndefined();
        choice.finish = finish_reason;
      }
    }
    return chunk;
  };
  let text = '';
  for await (const piece of response.body!) {
    text += Buffer.from(piece).toString();
    onChunk();
  }
  expect(response.status, text).toBe(200);
  const events = text.split('\n\n').filter((event) => event.startsWith('data: '));
  const parts = 'stream' in question ? events.slice(0, -1).map((event) => event.slice(6)) : [text];
  if ('stream' in question) expect(events.at(-1)).toBe('data: [DONE]');
  const last = parts.map(add).at(-1)!;
  expect(last.usage?.completion_tokens).toBe(choices.reduce((sum, { tokenIds }) => sum + tokenIds.length, 0));
  return choices;
}

type Process = Awaited<ReturnType<typeof serve>>;
const servers = new Map<string, Process>();
const ports = new Map<string, number>();
let redis: RedisServer;
let router: Server;
let origin: string;
const expected: Choice[][] = [];

async function startServer(name: string): Promise<void> {
  const port = ports.get(name) ?? (await freePort());
  ports.set(name, port);
  const tiers = ['--kv-tier', 'host:64MiB', '--kv-tier', redis.url, '--kv-load-policy', 'always'];
  servers.set(name, await serve([...tiers, '--port', `${port}`]));
}

async function killServer(name: string): Promise<void> {
  const { child, exited } = servers.get(name)!;
  child.kill('SIGKILL');
  await exited;
}

const prefillers = ['prefill-1', 'prefill-2'];
const decoders = ['decode-1', 'decode-2'];
const originOf = (name: string): string => servers.get(name)!.origin;
let salts = 0;
/** With a new salt, no server has KV of the prompts. It does not change the text. */
function askAll(onChunk?: () => void): Promise<Choice[][]> {
  const cache_salt = `salt ${++salts}`;
  return Promise.all(questions.map((question) => ask(origin, { ...question, cache_salt }, onChunk)));
}

describe(
  'two prefill servers, two decode servers, Redis and the router',
  needs(hasRedisServer, needsRedisServer),
  () => {
    beforeAll(async () => {
      if (!hasRedisServer) return;
      await buildCommand();
      redis = await RedisServer.start();
      const plain = await serve();
      expected.push(...(await Promise.all(questions.map((question) => ask(plain.origin, question)))));
      await plain.stop();
      await Promise.all([...prefillers, ...decoders].map(startServer));
      router = createRouter({ prefill: prefillers.map(originOf), decode: decoders.map(originOf) });
      router.listen(0, '127.0.0.1');
      await once(router, 'listening');
      origin = `http://127.0.0.1:${(router.address() as AddressInfo).port}`;
    });

    afterAll(async () => {
      if (!hasRedisServer) return;
      router.close();
      router.closeAllConnections();
      killCommands();
      await redis.stop();
    });

    it('the requests of vLLM’s proxy: the decode server loads what the prefill server stored', async () => {
      const prompt = `A wolf met ${story}`;
      const body = { prompt, max_tokens: 12, temperature: 0, stream: false };
      const post = (name: string, sent: object) =>
        servers.get(name)!.post('/v1/completions', sent, { 'x-request-id': 'one', authorization: 'Bearer None' });
      const remote = { remote_engine_id: null, remote_block_ids: null, remote_host: null, remote_port: null };
      const kv_transfer_params = { do_remote_decode: true, do_remote_prefill: false, ...remote };
      const prefilled = JSON.parse(
        await (await post('prefill-1', { ...body, max_tokens: 1, kv_transfer_params })).text(),
      );
      const blocks = Math.floor(prefilled.usage.prompt_tokens / 16);
      expect(prefilled.kv_transfer_params).toMatchObject({
        do_remote_decode: false,
        do_remote_prefill: true,
        remote_block_ids: [Array.from({ length: blocks }, (_, i) => i)],
        stored_blocks: blocks,
      });
      const fields = { min_tokens: null, cache_hit_threshold: 0.8 };
      const sent = { ...body, ...fields, kv_transfer_params: prefilled.kv_transfer_params };
      const decoded = JSON.parse(await (await post('decode-1', sent)).text());
      expect(decoded).not.toHaveProperty('error');
      const { prompt_tokens, prompt_tokens_details } = decoded.usage;
      expect(prompt_tokens_details.loaded_tokens).toEqual({ redis: Math.min(blocks * 16, prompt_tokens - 1) });
      // llm-d's sidecar sends null if the prefill server had no answer.
      const alone = JSON.parse(await (await post('prefill-2', { ...body, kv_transfer_params: null })).text());
      expect(decoded.choices[0].text).toBe(alone.choices[0].text);
    });

    it('any process may be killed at any moment, and no text changes', async () => {
      const random = (below: number): number => Math.floor(Math.random() * below);
      const kinds = inLongForm(
        [
          ...Array.from({ length: 10 }, () => ['prefill', 'decode', 'redis', 'both redis and decode'][random(4)]!),
          ...['redis, which hangs', 'decode, which hangs', 'decode'],
        ],
        ['prefill', 'redis', 'decode'],
      );
      for (const [round, kind] of kinds.entries()) {
        // The sum of all chunks is about 200. Some moments are before the first one.
        const moment: { ms?: number; chunks?: number } =
          random(3) === 0 ? { ms: random(200) } : { chunks: random(150) };
        const killed: Promise<void>[] = [];
        let isKilled = false;
        const names = kind === 'prefill' ? prefillers : decoders;
        const name = kind.startsWith('redis') ? undefined : names[random(2)]!;
        const kill = (): void => {
          if (isKilled) return;
          if (kind === 'redis, which hangs') redis.pause();
          else if (kind === 'decode, which hangs') servers.get(name!)!.child.kill('SIGSTOP');
          else {
            if (name !== undefined) killed.push(killServer(name));
            if (kind.includes('redis')) killed.push(redis.kill());
          }
          isKilled = true;
        };
        let chunks = 0;
        const asking = askAll(() => {
          if (++chunks >= (moment.chunks ?? Infinity)) kill();
        });
        if (moment.ms !== undefined) {
          await sleep(moment.ms);
          kill();
        }
        expect(await asking, `round ${round}: ${kind} killed at ${JSON.stringify(moment)}`).toEqual(expected);
        kill();
        await Promise.all(killed);
        if (round === kinds.length - 1) break;
        if (kind.endsWith('which hangs')) await (name === undefined ? redis.kill() : killServer(name));
        if (kind.includes('redis')) await redis.run();
        if (name !== undefined) await startServer(name);
      }
    });

    itInLongForm(
      'a stream whose decode servers both die goes on at the next token, from a prefill server',
      async () => {
        let chunks = 0;
        let killed: Promise<unknown> | undefined;
        const alive = decoders.filter((name) => servers.get(name)!.child.signalCode === null);
        expect(alive.length).toBeGreaterThan(0);
        const choices = await ask(origin, questions[1]!, () => {
          if (++chunks === 5) killed = Promise.all(alive.map(killServer));
        });
        expect(killed).toBeDefined();
        expect(choices).toEqual(expected[1]);
        await killed;
        // Only the prefill servers are left.
        expect(await askAll()).toEqual(expected);
      },
    );

    if (isLongForm)
      it('kvasir bench disaggregated has a row for each way to serve', async () => {
        const lengths = ['--prompts', '1', '--prompt-len', '200', '--stream-prompt-len', '20', '--gen-len', '8'];
        const { code, stdout, stderr } = await run([
          ...['bench', 'disaggregated', '--repetitions', '1', '--json', '--kv-cache-memory', '16MiB', ...lengths],
        ]);
        expect(code, stderr).toBe(0);
        const { rows } = JSON.parse(stdout);
        expect(rows.map(({ name }: { name: string }) => name)).toEqual([
          'one server, 2 threads',
          'one server, 2 threads, no limit',
          'prefill and decode server, 1 thread each',
        ]);
        for (const { besideMs } of rows) expect(besideMs.p99).toBeGreaterThan(0);
      });
  },
);
