import { afterEach, describe, expect, it } from 'vitest';
import { LetterEngine, type LetterEngineOptions, lettersOf } from '../../test/support/letter-engine.ts';
import type { EngineHealth } from '../engine/contract.ts';
import { engineBroken } from '../engine/errors.ts';
import { Server, type ServerOptions } from './server.ts';

const servers: Server[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) await server.app.close();
});

async function serve(engineOptions: LetterEngineOptions = {}, options: Partial<ServerOptions> = {}) {
  const engine = new LetterEngine(engineOptions);
  const server = new Server(engine, { version: '1.2.3', logLevel: 'silent', ...options });
  servers.push(server);
  const origin = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
  const get = async (path: string) => {
    const response = await fetch(origin + path);
    return { status: response.status, body: JSON.parse(await response.text()) };
  };
  const post = async (path: string, body: unknown) => {
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(origin + path, { method: 'POST', headers, body: JSON.stringify(body) });
    return { status: response.status, headers: response.headers, text: await response.text() };
  };
  const json = async (path: string, body: unknown) => {
    const { status, text } = await post(path, body);
    return { status, ...JSON.parse(text) };
  };
  return { engine, server, get, post, json };
}

/** The JSON of every event without `[DONE]`, which must be the last event. */
function events(text: string) {
  const data = text
    .split('\n\n')
    .filter((event) => event.startsWith('data: '))
    .map((event) => event.slice(6));
  expect(data.at(-1)).toBe('[DONE]');
  return data.slice(0, -1).map((event) => JSON.parse(event));
}

describe('/v1/completions', () => {
  it('answers in the format of OpenAI', async () => {
    const { json } = await serve();
    const body = await json('/v1/completions', { model: 'letters', prompt: 'abc', max_tokens: 5 });
    expect(body).toEqual({
      status: 200,
      id: expect.stringMatching(/^cmpl-[0-9a-f]{32}$/),
      object: 'text_completion',
      created: expect.any(Number),
      model: 'letters',
      choices: [{ index: 0, text: lettersOf(3, 5), logprobs: null, finish_reason: 'length', stop_reason: null }],
      usage: {
        prompt_tokens: 3,
        completion_tokens: 5,
        total_tokens: 8,
        prompt_tokens_details: { cached_tokens: 0 },
      },
    });
  });

  it('generates 16 tokens by default, and fewer at the end of the context', async () => {
    const { json } = await serve({ maxModelLen: 20 });
    expect((await json('/v1/completions', { prompt: 'ab' })).usage.completion_tokens).toBe(16);
    expect((await json('/v1/completions', { prompt: 'abcdefghij' })).usage.completion_tokens).toBe(10);
  });

  it('accepts texts, tokens and lists of either, and numbers the choices by prompt', async () => {
    const { json } = await serve();
    const texts = async (prompt: unknown, n = 1) =>
      (await json('/v1/completions', { prompt, max_tokens: 2, n })).choices.map(
        (choice: { index: number; text: string }) => `${choice.index}${choice.text}`,
      );
    expect(await texts('ab')).toEqual([`0${lettersOf(2, 2)}`]);
    expect(await texts(['ab', 'abc'])).toEqual([`0${lettersOf(2, 2)}`, `1${lettersOf(3, 2)}`]);
    expect(await texts([1, 2, 3])).toEqual([`0${lettersOf(3, 2)}`]);
    expect(await texts([[1], [1, 2]])).toEqual([`0${lettersOf(1, 2)}`, `1${lettersOf(2, 2)}`]);
    expect(await texts(['ab', 'abc'], 2)).toEqual([
      `0${lettersOf(2, 2, 0)}`,
      `1${lettersOf(2, 2, 1)}`,
      `2${lettersOf(3, 2, 0)}`,
      `3${lettersOf(3, 2, 1)}`,
    ]);
  });

  it('counts a prompt once in the usage for all its completions', async () => {
    const { json } = await serve();
    const { usage } = await json('/v1/completions', { prompt: ['ab', 'abc'], max_tokens: 2, n: 3 });
    expect(usage).toMatchObject({ prompt_tokens: 5, completion_tokens: 12, total_tokens: 17 });
  });

  it('echoes the prompt before the completion', async () => {
    const { json, post } = await serve();
    const body = { prompt: ['ab', [99, 100, 101]], echo: true, max_tokens: 2 };
    expect((await json('/v1/completions', { ...body, prompt: ['ab', 'cde'] })).choices[1].text).toBe(
      `cde${lettersOf(3, 2)}`,
    );
    expect((await json('/v1/completions', { ...body, prompt: [99, 100, 101] })).choices[0].text).toBe(
      `cde${lettersOf(3, 2)}`,
    );
    const streamed = events((await post('/v1/completions', { ...body, prompt: 'ab', stream: true })).text);
    expect(streamed.map((chunk) => chunk.choices[0].text).join('')).toBe(`ab${lettersOf(2, 2)}`);
  });

  it('streams the same text, and usage if requested', async () => {
    const { post } = await serve();
    const { headers, text } = await post('/v1/completions', {
      prompt: 'abc',
      max_tokens: 5,
      n: 2,
      stream: true,
      stream_options: { include_usage: true },
    });
    expect(headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    const chunks = events(text);
    const usage = chunks.pop();
    expect(usage).toMatchObject({ choices: [], usage: { prompt_tokens: 3, completion_tokens: 10 } });
    for (const index of [0, 1]) {
      const mine = chunks.filter((chunk) => chunk.choices[0].index === index);
      expect(mine.map((chunk) => chunk.choices[0].text).join('')).toBe(lettersOf(3, 5, index));
      expect(mine.map((chunk) => chunk.choices[0].finish_reason)).toEqual([null, null, null, null, 'length']);
      expect(mine.every((chunk) => chunk.usage === null && chunk.id === usage.id)).toBe(true);
    }
  });

  it('reports the usage so far in every chunk if requested', async () => {
    const { post } = await serve();
    const options = { include_usage: true, continuous_usage_stats: true };
    const body = { prompt: 'abc', max_tokens: 3, stream: true, stream_options: options };
    const chunks = events((await post('/v1/completions', body)).text);
    expect(chunks.map((chunk) => chunk.usage.completion_tokens)).toEqual([1, 2, 3, 3]);
  });

  it('returns logprobs in the older format, with offsets into the text', async () => {
    const { json, post } = await serve();
    const body = { prompt: 'abc', max_tokens: 3, logprobs: 2 };
    const { choices } = await json('/v1/completions', body);
    const letters = [...lettersOf(3, 3)];
    const next = (letter: string) => String.fromCharCode(letter.charCodeAt(0) + 1);
    expect(choices[0].logprobs).toEqual({
      tokens: letters,
      token_logprobs: [-0.5, -0.5, -0.5],
      top_logprobs: letters.map((letter) => ({ [letter]: -0.5, [next(letter)]: -1.5 })),
      text_offset: [0, 1, 2],
    });
    const chunks = events((await post('/v1/completions', { ...body, stream: true })).text);
    expect(chunks.flatMap((chunk) => chunk.choices[0].logprobs.text_offset)).toEqual([0, 1, 2]);
  });

  it('ends at a stop string and returns it as stop_reason', async () => {
    const { json } = await serve();
    const stop = lettersOf(3, 5).slice(3);
    const { choices } = await json('/v1/completions', { prompt: 'abc', max_tokens: 9, stop: ['zzz', stop] });
    expect(choices[0]).toMatchObject({ finish_reason: 'stop', stop_reason: stop });
  });

  it('returns token ids if requested', async () => {
    const { json, post } = await serve();
    const body = { prompt: 'abc', max_tokens: 2, return_token_ids: true };
    const token_ids = [...Buffer.from(lettersOf(3, 2))];
    expect((await json('/v1/completions', body)).choices[0]).toMatchObject({
      token_ids,
      prompt_token_ids: [97, 98, 99],
    });
    const chunks = events((await post('/v1/completions', { ...body, stream: true })).text);
    expect(chunks.map((chunk) => chunk.choices[0].prompt_token_ids)).toEqual([[97, 98, 99], undefined]);
    expect(chunks.flatMap((chunk) => chunk.choices[0].token_ids)).toEqual(token_ids);
  });

  it("passes vLLM's extra fields to the engine under the engine's names", async () => {
    const { engine, json } = await serve();
    const body = {
      prompt: 'abc',
      max_tokens: 4,
      top_k: -1,
      min_p: 0.1,
      repetition_penalty: 1.1,
      min_tokens: 2,
      ignore_eos: true,
      stop_token_ids: [257],
      include_stop_str_in_output: true,
      skip_special_tokens: false,
      logit_bias: { 97: -100 },
      seed: -1,
      cache_salt: 'tenant',
      priority: -3,
      user: 'me',
      metadata: {},
    };
    expect((await json('/v1/completions', body)).status).toBe(200);
    expect(engine.requests[0]).toMatchObject({
      params: {
        maxTokens: 4,
        topK: 0,
        minP: 0.1,
        repetitionPenalty: 1.1,
        minTokens: 2,
        ignoreEos: true,
        stopTokenIds: [257],
        includeStopStrInOutput: true,
        skipSpecialTokens: false,
        logitBias: new Map([[97, -100]]),
        seed: 2n ** 64n - 1n,
      },
      cacheSalt: 'tenant',
      priority: -3,
    });
    expect(Object.keys(engine.requests[0]!.params!)).not.toContain('temperature');
  });
});

describe('/v1/chat/completions', () => {
  const messages = [{ role: 'user', content: 'hi' }];
  const promptLength = '.user\nhi.\n.assistant\n'.length;

  it('answers in the format of OpenAI', async () => {
    const { json } = await serve();
    expect(await json('/v1/chat/completions', { messages, max_tokens: 3 })).toEqual({
      status: 200,
      id: expect.stringMatching(/^chatcmpl-/),
      object: 'chat.completion',
      created: expect.any(Number),
      model: 'letters',
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content: lettersOf(promptLength, 3), refusal: null, annotations: [] },
          logprobs: null,
          finish_reason: 'length',
          stop_reason: null,
        },
      ],
      usage: expect.objectContaining({ prompt_tokens: promptLength, completion_tokens: 3 }),
    });
  });

  it('generates to the end of the context by default', async () => {
    const { json } = await serve({ maxModelLen: 60 });
    expect((await json('/v1/chat/completions', { messages })).usage.total_tokens).toBe(60);
  });

  it('prefers max_completion_tokens to the older max_tokens', async () => {
    const { json } = await serve();
    const body = { messages, max_tokens: 3, max_completion_tokens: 2 };
    expect((await json('/v1/chat/completions', body)).usage.completion_tokens).toBe(2);
    const completion = { prompt: 'a', max_tokens: 3, max_completion_tokens: 2 };
    expect((await json('/v1/completions', completion)).usage.completion_tokens).toBe(2);
  });

  it('ignores min_tokens if another server decodes: routers reduce max_tokens to 1', async () => {
    const { json, engine } = await serve();
    const kv_transfer_params = { do_remote_decode: true, do_remote_prefill: false };
    await json('/v1/completions', { prompt: 'a', max_tokens: 1, min_tokens: 4, kv_transfer_params });
    expect(engine.requests.at(-1)!.params?.minTokens).toBeUndefined();
  });

  it('joins text parts, and renders the role developer as system', async () => {
    const { engine, json } = await serve();
    const parts = [
      { type: 'text', text: 'a' },
      { type: 'text', text: 'b' },
    ];
    await json('/v1/chat/completions', {
      messages: [
        { role: 'developer', content: 'rules' },
        { role: 'user', content: parts, name: 'me' },
        { role: 'assistant', content: 'c', refusal: null, tool_calls: [] },
      ],
      max_tokens: 1,
    });
    const prompt = engine.detokenize(engine.requests[0]!.prompt as Int32Array, { skipSpecialTokens: false });
    expect(prompt).toBe(
      '<|im_start|>system\nrules<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\nc<|im_end|>\n<|im_start|>assistant\n',
    );
  });

  it('streams the role first, then the text, then the end', async () => {
    const { post } = await serve();
    const chunks = events((await post('/v1/chat/completions', { messages, max_tokens: 3, stream: true })).text);
    const [a, b, c] = [...lettersOf(promptLength, 3)];
    expect(chunks.map((chunk) => chunk.choices[0].delta)).toEqual([
      { role: 'assistant', content: '' },
      { content: a },
      { content: b },
      { content: c },
    ]);
    expect(chunks.map((chunk) => chunk.choices[0].finish_reason)).toEqual([null, null, null, 'length']);
    expect(chunks[0]).toMatchObject({ object: 'chat.completion.chunk' });
    expect(chunks[0]).not.toHaveProperty('usage');
  });

  it('returns logprobs in the newer format', async () => {
    const { json } = await serve();
    const body = { messages, max_tokens: 1, logprobs: true, top_logprobs: 1 };
    const letter = lettersOf(promptLength, 1);
    const token = { token: letter, logprob: -0.5, bytes: [letter.charCodeAt(0)] };
    expect((await json('/v1/chat/completions', body)).choices[0].logprobs).toEqual({
      content: [{ ...token, top_logprobs: [token] }],
    });
    const bare = { messages, max_tokens: 1, logprobs: true };
    expect((await json('/v1/chat/completions', bare)).choices[0].logprobs.content[0].top_logprobs).toEqual([]);
  });

  it('refuses a model without a template', async () => {
    const { json } = await serve({ hasChatTemplate: false });
    const { status, error } = await json('/v1/chat/completions', { messages });
    expect(status).toBe(400);
    expect(error.message).toContain('--chat-template');
  });
});

describe('the other routes', () => {
  it('list the model, and return it by name', async () => {
    const { get } = await serve();
    const list = (await get('/v1/models')).body;
    expect(list).toMatchObject({ object: 'list', data: [{ id: 'letters', object: 'model', max_model_len: 256 }] });
    expect((await get('/v1/models/letters')).body).toEqual(list.data[0]);
    expect((await get('/v1/models/other')).status).toBe(404);
  });

  it('report the worker processes that do not serve, and stay live until the engine is broken', async () => {
    const message = 'The worker process of rank 1 of 2 has not answered for 6 s.';
    const ranks = [{ rank: 'rank 1 of 2', processId: 7, state: 'silent' as const, message }];
    let health: EngineHealth = { status: 'recovering', message, ranks };
    const { get } = await serve({ health: () => health });
    expect(await get('/health')).toMatchObject({ status: 503, body: health });
    expect(await get('/health/live')).toMatchObject({ status: 200, body: { status: 'ok' } });
    health = { status: 'broken', message: 'The worker process is not restarted.' };
    expect(await get('/health')).toMatchObject({ status: 503, body: health });
    expect(await get('/health/live')).toMatchObject({ status: 503, body: health });
    health = { status: 'degraded', message: 'Compiling large grammars is not possible now.' };
    expect(await get('/health')).toMatchObject({ status: 200, body: health });
    expect(await get('/health/live')).toMatchObject({ status: 200, body: { status: 'ok' } });
    health = { status: 'ok' };
    expect(await get('/health')).toMatchObject({ status: 200, body: { status: 'ok' } });
  });

  it('report health and version', async () => {
    const { engine, get } = await serve();
    expect((await get('/health')).status).toBe(200);
    expect((await get('/version')).body).toEqual({ version: '1.2.3' });
    await engine.close();
    expect((await get('/health')).status).toBe(503);
  });

  it('refuse new requests after a shutdown has begun', async () => {
    const { server, get, post } = await serve();
    server.beginDrain();
    expect((await get('/health')).status).toBe(503);
    const { status, headers } = await post('/v1/completions', { prompt: 'a' });
    expect(status).toBe(503);
    expect(headers.get('retry-after')).toBe('1');
  });

  it('turn text into tokens and back', async () => {
    const { json } = await serve();
    expect(await json('/tokenize', { prompt: 'é<|im_end|>', return_token_strs: true })).toEqual({
      status: 200,
      count: 3,
      max_model_len: 256,
      tokens: [195, 169, 257],
      token_strs: ['\ufffd', '\ufffd', '<|im_end|>'],
    });
    expect(await json('/tokenize', { messages: [{ role: 'user', content: 'hi' }] })).toMatchObject({ count: 21 });
    const prompt = 'é<|im_end|>';
    expect(await json('/detokenize', { tokens: [195, 169, 257] })).toEqual({ status: 200, prompt, content: prompt });
  });

  it("turn text into tokens under llama-server's names", async () => {
    const { json } = await serve();
    const tokens = async (body: object) => (await json('/tokenize', body)).tokens;
    expect(await tokens({ content: 'a<|im_end|>' })).toEqual([97, 257]);
    expect(await tokens({ content: 'a<|', parse_special: false })).toEqual([97, 60, 124]);
    expect(await tokens({ content: 'aé', with_pieces: true })).toEqual([
      { id: 97, piece: 'a' },
      { id: 195, piece: [195] },
      { id: 169, piece: [169] },
    ]);
    expect(await tokens({ content: '' })).toEqual([]);
  });
});

describe('errors', () => {
  it('of a full queue have status 503 and retry-after', async () => {
    const { post } = await serve({ maxRequests: 0 });
    for (const stream of [false, true]) {
      const { status, headers, text } = await post('/v1/completions', { prompt: 'a', stream });
      expect(status).toBe(503);
      expect(headers.get('retry-after')).toBe('1');
      expect(JSON.parse(text).error).toMatchObject({ type: 'server_error', code: 'KVASIR_QUEUE_FULL' });
    }
  });

  it('of one prompt abort the other prompts of the request', async () => {
    const { engine, json } = await serve({ maxRequests: 2 });
    expect((await json('/v1/completions', { prompt: ['a', 'b', 'c'] })).status).toBe(503);
    expect(engine.stats()).toMatchObject({ running: 0, aborts: 2 });
  });

  it('of the server have no details in the answer', async () => {
    const { json } = await serve({ throws: new Error('secret path /models/letters.gguf') });
    expect(await json('/v1/completions', { prompt: 'a' })).toEqual({
      status: 500,
      error: { message: 'Internal server error.', type: 'server_error', param: null, code: 'internal_error' },
    });
  });

  it('of a broken engine have its stack in the log once, and their code in the line of each request', async () => {
    const lines: string[] = [];
    const broken = engineBroken({ reason: 'the runner failed' }, new Error('the runner failed'));
    const { json } = await serve(
      { throws: broken },
      { logLevel: 'info', logDestination: { write: (line) => lines.push(line) } },
    );
    for (let i = 0; i < 3; i++) expect((await json('/v1/completions', { prompt: 'a' })).status).toBe(503);
    const logged = () => lines.map((line) => JSON.parse(line) as { msg: string; error?: string });
    await expect.poll(() => logged().filter(({ msg }) => msg === 'request')).toHaveLength(3);
    expect(logged().filter(({ msg }) => msg === 'request failed')).toHaveLength(1);
    expect(lines.filter((line) => line.includes('"KVASIR_ENGINE_BROKEN"'))).toHaveLength(4);
  });

  it('of the engine have status 500, and are an event after the stream has begun', async () => {
    const { json, post } = await serve({ failAtStep: 3 });
    const { status, error } = await json('/v1/completions', { prompt: 'abc', max_tokens: 5 });
    expect(status).toBe(503);
    expect(error.code).toBe('KVASIR_GENERATION_FAILED');
    const streamed = await post('/v1/completions', { prompt: 'abc', max_tokens: 5, stream: true });
    expect(streamed.status).toBe(200);
    const data = streamed.text.split('\n\n').filter((event) => event !== '');
    expect(data).toHaveLength(3);
    expect(JSON.parse(data[2]!.slice(6)).error.code).toBe('KVASIR_GENERATION_FAILED');
  });
});
