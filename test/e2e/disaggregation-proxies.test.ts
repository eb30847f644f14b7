import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildCommand, killCommands, serve } from '../support/cli-process.ts';
import {
  hasVllmProxy,
  noVllmProxy,
  type RunningProxy,
  startSidecar,
  startVllmProxy,
} from '../support/disaggregation-proxies.ts';
import { hasSidecar, noSidecar } from '../support/llm-d.ts';
import { needs } from '../support/needs.ts';
import { freePort, hasRedisServer, needsRedisServer, RedisServer } from '../support/redis-server.ts';

/** Proxies of others, unchanged, in front of a prefill and a decode server that meet in Redis. */
const story = 'a little fox who lived in the garden and wanted to find the red ball before the evening. '.repeat(6);
const messages = [{ role: 'user', content: `Tell me of ${story}` }];
const chat = { path: '/v1/chat/completions', messages, temperature: 0.8, seed: 5 };
const completion = {
  path: '/v1/completions',
  prompt: `Once upon a time there was ${story}`,
  temperature: 0.8,
  seed: 7,
};
const streamed = { stream: true, stream_options: { include_usage: true } };
const questions: Record<string, Question> = {
  completion: { ...completion, max_tokens: 16 },
  'completion with min_tokens': { ...completion, max_tokens: 16, min_tokens: 4 },
  'two choices': { ...completion, max_tokens: 12, n: 2, logprobs: 2 },
  'streamed completion': { ...completion, max_tokens: 16, ...streamed },
  chat: { ...chat, max_completion_tokens: 16 },
  'streamed chat': { ...chat, max_tokens: 16, ...streamed },
};
type Question = { readonly path: string; readonly [field: string]: unknown };

interface ResponseBody {
  readonly output: readonly [{ readonly content: unknown }];
  readonly usage: { readonly input_tokens: number; readonly input_tokens_details: { readonly cached_tokens: number } };
}

interface Answer {
  readonly text: string;
  readonly cached: number;
  readonly prompt: number;
}

async function ask(origin: string, { path, ...body }: Question, headers: Record<string, string> = {}): Promise<Answer> {
  const response = await fetch(origin + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ ignore_eos: true, ...body }),
  });
  const content = await response.text();
  expect(response.status, content).toBe(200);
  const events = content.split('\n\n').filter((event) => event.startsWith('data: '));
  if (body.stream === true) expect(events.pop()).toBe('data: [DONE]');
  const parts = (body.stream === true ? events.map((event) => event.slice(6)) : [content]).map((part) =>
    JSON.parse(part),
  );
  const { usage } = parts.at(-1);
  const choices = parts.flatMap((part) => part.choices);
  return {
    text: choices
      .map(({ index, text, message, delta }) => `${index}${text ?? (message ?? delta).content ?? ''}`)
      .join(''),
    cached: usage.prompt_tokens_details.cached_tokens,
    prompt: usage.prompt_tokens,
  };
}

const wholeBlocks = (tokens: number): number => 16 * Math.floor((tokens - 1) / 16);
const servers: Awaited<ReturnType<typeof serve>>[] = [];
const portOf = (index: number): number => Number(new URL(servers[index]!.origin).port);
const expected: Record<string, string> = {};
let redis: RedisServer;
let salts = 0;
/** With a new salt, no server has KV of the prompt. It does not change the text. */
const withSalt = (question: Question): Question => ({ ...question, cache_salt: `salt ${++salts}` });

/** Each answer has the text of a server alone, and all full blocks of its prompt come from the prefill server. */
async function expectTransfers(proxy: RunningProxy, headers: Record<string, string> = {}): Promise<void> {
  const asked = Object.entries(questions).map(async ([name, question]) => {
    const { text, cached, prompt } = await ask(proxy.origin, withSalt(question), headers);
    expect(text, name).toBe(expected[name]);
    expect(cached, name).toBe(wholeBlocks(prompt));
  });
  await Promise.all(asked);
}

describe('proxies of others', needs(hasRedisServer, needsRedisServer), () => {
  beforeAll(async () => {
    if (!hasRedisServer || !(hasVllmProxy || hasSidecar)) return;
    await buildCommand();
    redis = await RedisServer.start();
    // Long enough for a busy machine: the decode server waits for each block that is promised.
    const extra = { tiers: ['host:64MiB', redis.url], kv_load_policy: 'always', remote_prefill_timeout_seconds: 60 };
    const config = { kv_connector: 'OffloadingConnector', kv_role: 'kv_both', kv_connector_extra_config: extra };
    const flags = ['--kv-transfer-config', JSON.stringify(config)];
    servers.push(...(await Promise.all([serve(flags), serve(flags)])));
    for (const [name, question] of Object.entries(questions))
      expected[name] = (await ask(servers[1]!.origin, withSalt(question))).text;
  });

  afterAll(async () => {
    killCommands();
    if (hasRedisServer && (hasVllmProxy || hasSidecar)) await redis.stop();
  });

  describe('vLLM’s toy proxy', needs(hasVllmProxy, noVllmProxy), () => {
    it('the decode server loads what the prefill server computed', async () => {
      const proxy = await startVllmProxy([portOf(0)], [portOf(1)]);
      await expectTransfers(proxy);
      await proxy.stop();
    });
  });

  describe('llm-d’s routing sidecar', needs(hasSidecar, noSidecar), () => {
    it('the decode server loads what the prefill server computed, and computes if there is no prefill server', async () => {
      const proxy = await startSidecar(portOf(1));
      const through = (port: number) => ({
        'x-prefiller-host-port': `127.0.0.1:${port}`,
        'x-request-id': 'of the client',
      });
      await expectTransfers(proxy, through(portOf(0)));
      const responses = { path: '/v1/responses', input: story, temperature: 0, max_output_tokens: 8 };
      const post = async (origin: string, headers: Record<string, string>) => {
        const { path, ...body } = withSalt(responses);
        const answer = await fetch(origin + path, {
          method: 'POST',
          headers: { 'content-type': 'application/json', ...headers },
          body: JSON.stringify(body),
        });
        return (await answer.json()) as ResponseBody;
      };
      const [alone, sent] = [await post(servers[1]!.origin, {}), await post(proxy.origin, through(portOf(0)))];
      expect(sent.output[0].content).toEqual(alone.output[0].content);
      // 0.7 sends responses to the decode server alone, 0.8 as it sends chats.
      const { input_tokens, input_tokens_details } = sent.usage;
      expect([0, wholeBlocks(input_tokens)]).toContain(input_tokens_details.cached_tokens);

      const withDeadServer = through(await freePort());
      for (const [name, question] of Object.entries(questions))
        expect(await ask(proxy.origin, withSalt(question), withDeadServer)).toMatchObject({
          text: expected[name],
          cached: 0,
        });
      await proxy.stop();
    });
  });
});
