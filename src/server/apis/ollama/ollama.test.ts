import { Ollama } from 'ollama';
import { describe, expect, it } from 'vitest';
import { closeServers, serveLetters } from '../responses/served-letters.suite.ts';

/** `/api` by Ollama's client. */
closeServers();

const model = 'letters:latest';
const messages = [{ role: 'user', content: 'Rome?' }];
const weather = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'The weather of a city.',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
};
const call = '<tool_call>{"name":"get_weather","arguments":{"city":"Rome","days":12345678901234567890}}</tool_call>';

async function served(
  options: Parameters<typeof serveLetters>[0] = {},
  server: Parameters<typeof serveLetters>[1] = {},
) {
  const all = await serveLetters(options, server);
  return { ...all, ollama: new Ollama({ host: all.origin }) };
}

async function postText(origin: string, path: string, body: object): Promise<string> {
  const headers = { 'content-type': 'application/json' };
  return (await fetch(origin + path, { method: 'POST', headers, body: JSON.stringify(body) })).text();
}

async function gathered<T>(stream: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const each of stream) all.push(each);
  return all;
}

describe('a chat', () => {
  it('is answered in whole, with counts and durations', async () => {
    const { ollama } = await served({ answer: 'Sunny.' });
    const answer = await ollama.chat({ model, messages });
    expect(answer).toMatchObject({
      model: 'letters',
      message: { role: 'assistant', content: 'Sunny.' },
      done: true,
      done_reason: 'stop',
      load_duration: 0,
      eval_count: 6,
    });
    expect(answer.prompt_eval_count).toBeGreaterThan(0);
    expect(answer.total_duration).toBe(answer.prompt_eval_duration + answer.eval_duration);
    expect(new Date(answer.created_at).getTime()).toBeGreaterThan(0);
  });

  it('is answered in lines that give the same text', async () => {
    const { ollama } = await served({ answer: `<think>Hm.</think>I look.${call}`, template: 'qwen3' });
    const request = { model, messages, tools: [weather], options: { num_predict: -1, num_ctx: 4096 } };
    const lines = await gathered(await ollama.chat({ ...request, stream: true }));
    const { message } = await ollama.chat(request);
    expect(lines.map(({ message: { content } }) => content).join('')).toBe('I look.');
    expect(lines.map(({ message: { thinking } }) => thinking ?? '').join('')).toBe('Hm.');
    const called = [{ function: { name: 'get_weather', arguments: { city: 'Rome', days: expect.any(Number) } } }];
    expect(lines.flatMap(({ message: { tool_calls } }) => tool_calls ?? [])).toMatchObject(called);
    expect(message).toMatchObject({ content: 'I look.', thinking: 'Hm.', tool_calls: called });
    expect(lines.map(({ done }) => done)).toEqual([...lines.slice(1).map(() => false), true]);
    expect(lines.at(-1)!.done_reason).toBe('stop');
  });

  it('streams by default, as lines of JSON with all digits of arguments', async () => {
    const { origin } = await served({ answer: call });
    const headers = { 'content-type': 'application/json' };
    const body = JSON.stringify({ model, messages, tools: [weather] });
    const response = await fetch(`${origin}/api/chat`, { method: 'POST', headers, body });
    expect(response.headers.get('content-type')).toBe('application/x-ndjson');
    const text = await response.text();
    for (const line of text.trimEnd().split('\n')) JSON.parse(line);
    expect(text).toContain('"days":12345678901234567890');
  });

  it('has the options and the history of Ollama’s clients', async () => {
    const { ollama, engine, rendered } = await served({ answer: 'Sunny.' });
    await ollama.chat({
      model,
      messages: [
        { role: 'system', content: 'Be brief.' },
        ...messages,
        {
          role: 'assistant',
          content: '',
          thinking: 'Hm.',
          tool_calls: [{ function: { name: 'get_weather', arguments: { city: 'Rome' } } }],
        },
        { role: 'tool', tool_name: 'get_weather', content: '21 degrees' },
      ],
      tools: [weather],
      think: false,
      format: { type: 'object' },
      keep_alive: '5m',
      options: {
        temperature: 0.5,
        top_k: 7,
        top_p: 0.9,
        min_p: 0.1,
        seed: 3,
        stop: ['X'],
        repeat_penalty: 1.1,
        num_predict: 9,
        num_ctx: 2048,
      },
    });
    const { params, grammar } = engine.requests[0]!;
    expect(params).toMatchObject({
      temperature: 0.5,
      topK: 7,
      topP: 0.9,
      minP: 0.1,
      seed: 3n,
      stop: ['X'],
      repetitionPenalty: 1.1,
      maxTokens: 9,
    });
    expect(grammar).toBeDefined();
    expect(rendered[0]!.variables).toMatchObject({ enable_thinking: false });
    expect(rendered[0]!.messages).toMatchObject([
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'Rome?' },
      { role: 'assistant', tool_calls: [{ id: 'call_1', function: { name: 'get_weather' } }] },
      { role: 'tool', tool_call_id: 'call_1', content: '21 degrees' },
    ]);
  });

  it('says which options have no effect', async () => {
    const { post } = await served({ answer: 'Sunny.' });
    const { headers } = await post(
      { model, messages, stream: false, options: { num_ctx: 2048, mirostat: 1 } },
      '/api/chat',
    );
    expect(headers.get('warning')).toBe('299 kvasir "ignored: options.num_ctx, options.mirostat"');
  });

  it.each([false, true])('has positive durations, because clients divide by them (stream: %j)', async (stream) => {
    // A clock that stands still.
    const { post, origin } = await served({ answer: 'Sunny.' }, { clock: { nowMs: () => 5 } });
    const body = { model, messages, stream };
    const last = stream
      ? JSON.parse((await postText(origin, '/api/chat', body)).trimEnd().split('\n').at(-1)!)
      : (await post(body, '/api/chat')).body;
    expect(last).toMatchObject({ done: true, eval_count: 6, eval_duration: 1 });
  });

  it('measures the first token in both forms', async () => {
    for (const stream of [false, true]) {
      let nowMs = 0;
      const beforeStep = async () => {
        nowMs += 10;
      };
      const { origin } = await served({ answer: 'Sunny.', beforeStep }, { clock: { nowMs: () => nowMs } });
      const last = (await postText(origin, '/api/chat', { model, messages, stream })).trimEnd().split('\n').at(-1)!;
      expect(JSON.parse(last)).toMatchObject({
        prompt_eval_duration: 10e6,
        eval_duration: 50e6,
        total_duration: 60e6,
      });
    }
  });

  it('that ends with a message of the assistant continues it', async () => {
    const { ollama, engine, rendered } = await served({ answer: ' rain.' });
    const begun = [...messages, { role: 'assistant', content: 'Sun and' }];
    expect((await ollama.chat({ model, messages: begun })).message.content).toBe(' rain.');
    expect(rendered[0]!.messages.at(-1)!.content).toMatch(/^Sun and/);
    expect(engine.detokenize(engine.requests[0]!.prompt as ArrayLike<number>)).toMatch(/Sun and$/);
    // An answer with calls, whose results are not there, is not continued.
    const called = { role: 'assistant', content: '', tool_calls: [{ function: { name: 'a', arguments: {} } }] };
    expect((await ollama.chat({ model, messages: [...messages, called] })).message.content).toBe(' rain.');
  });

  it('has no limit of tokens with `num_predict` 0 or less, and draws the seed if it is negative', async () => {
    for (const num_predict of [0, -1, -2]) {
      const { ollama, engine } = await served({ answer: 'Sunny.' });
      const { done_reason } = await ollama.chat({ model, messages, options: { num_predict, seed: -1 } });
      expect([done_reason, engine.requests[0]!.params!.seed]).toEqual(['stop', undefined]);
    }
  });

  it('that fails in a stream ends with a line that says so', async () => {
    const { ollama } = await served({ answer: 'Sunny.', failAtStep: 3 });
    await expect(ollama.chat({ model, messages, stream: true }).then(gathered)).rejects.toThrow(/./);
  });
});

describe('logprobs', () => {
  const token = (letter: string) => ({ token: letter, logprob: -0.5, bytes: [letter.charCodeAt(0)] });

  it.each([
    ['/api/chat', { messages }],
    ['/api/generate', { prompt: 'Rome?' }],
    ['/api/generate', { prompt: 'Rome?', raw: true }],
  ])('of %s with %j are in the lines of their tokens, and all in a whole answer', async (path, asked) => {
    const { post, origin } = await served({ answer: 'Hi.' });
    const { body } = await post({ model, ...asked, logprobs: true, stream: false }, path);
    expect(body.logprobs).toEqual([...'Hi.'].map(token));
    const lines = (await postText(origin, path, { model, ...asked, logprobs: true, top_logprobs: 2 }))
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(lines.flatMap(({ logprobs }) => logprobs ?? []).map((each) => each.token)).toEqual([...'Hi.']);
    for (const { logprobs } of lines.slice(0, -1)) expect(logprobs[0].top_logprobs).toHaveLength(2);
    expect(lines.at(-1)).not.toHaveProperty('logprobs');
  });

  it('are absent unless they are asked for, also with `top_logprobs`', async () => {
    const { post } = await served({ answer: 'Hi.' });
    expect((await post({ model, messages, top_logprobs: 3, stream: false }, '/api/chat')).body).not.toHaveProperty(
      'logprobs',
    );
    for (const top_logprobs of [-1, 21]) {
      const { status, body } = await post({ model, messages, logprobs: true, top_logprobs }, '/api/chat');
      expect([status, body.error]).toEqual([400, expect.stringMatching(/`top_logprobs`/)]);
    }
  });
});

describe('generate', () => {
  it('answers the prompt as a chat, or completes it with `raw`', async () => {
    const { ollama, rendered, engine } = await served({ answer: 'Sunny.' });
    const answer = await ollama.generate({ model, prompt: 'Rome?', system: 'Be brief.' });
    expect(answer).toMatchObject({
      model: 'letters',
      response: 'Sunny.',
      done: true,
      done_reason: 'stop',
      eval_count: 6,
    });
    expect(rendered[0]!.messages).toMatchObject([
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'Rome?' },
    ]);
    const raw = await gathered(await ollama.generate({ model, prompt: 'Rome?', raw: true, stream: true }));
    expect(raw.map(({ response }) => response).join('')).toBe('Sunny.');
    expect([rendered.length, engine.requests.length]).toEqual([1, 2]);
  });

  it('fills a gap before `suffix`', async () => {
    const { ollama, engine } = await served({ answer: 'a + b', fimTokens: { prefix: 1, suffix: 2, middle: 3 } });
    const { response } = await ollama.generate({ model, prompt: 'return ', suffix: ';' });
    expect(response).toBe('a + b');
    expect(Array.from(engine.requests[0]!.prompt as ArrayLike<number>).slice(0, 1)).toEqual([1]);
  });
});

describe('the model', () => {
  it('is listed, shown and embeds', async () => {
    const { ollama } = await served({ pooling: 'mean' });
    const { models } = await ollama.list();
    expect(models).toMatchObject([{ name: 'letters', model: 'letters', details: { format: 'gguf' } }]);
    expect((await ollama.ps()).models).toMatchObject([{ name: 'letters', size_vram: 0 }]);
    const shown = await ollama.show({ model });
    expect(shown.capabilities).toEqual(['completion', 'tools', 'embedding']);
    expect(shown.template).toContain('tool_call');
    const { embeddings } = await ollama.embed({ model, input: ['a', 'b'] });
    expect(embeddings).toHaveLength(2);
    expect(await ollama.version()).toEqual({ version: expect.stringMatching(/^0\.\d+\.\d+$/) });
  });

  it.each([
    ['/api/chat', { model: 'other', messages }, 404, /other/],
    [
      '/api/chat',
      { model, messages: [{ role: 'user', content: 'a', images: ['iVBO'] }] },
      400,
      /images.*reads text only/,
    ],
    ['/api/chat', { model, messages, options: { temperature: 'hot' } }, 400, /temperature/],
    ['/api/generate', { model, prompt: 'a', format: 'xml' }, 400, /format/],
    ['/api/embed', { model, input: 'a' }, 400, /pooling/],
    ['/api/show', { model: 'other' }, 404, /other/],
  ])('%s with %j gets an error in Ollama’s form', async (path, body, status, message) => {
    const { post } = await served();
    const answer = await post(body, path);
    expect([answer.status, Object.keys(answer.body)]).toEqual([status, ['error']]);
    expect(answer.body.error).toMatch(message);
  });
});
