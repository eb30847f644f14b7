import { once } from 'node:events';
import { connect } from 'node:net';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { createEngine } from '../../src/compose.ts';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import { Server } from '../../src/server/server.ts';

/** The bundled model, the real engine and OpenAI's client, over real sockets. */
const model = 'models/kvasir-demo.gguf';
const name = 'kvasir-demo';
const PATIENCE = { timeout: 120_000, interval: 10 };

let engine: AsyncEngine;
let server: Server;
let port = 0;
let client: OpenAI;

beforeAll(async () => {
  engine = await createEngine({ model, kvCacheMemory: 64 * 1024 ** 2, threads: 1 });
  server = new Server(engine, { version: '0.0.0', logLevel: 'error', choicesMax: 32 });
  port = await server.listen(0, '127.0.0.1');
  client = new OpenAI({ baseURL: `http://127.0.0.1:${port}/v1`, apiKey: 'none', maxRetries: 0 });
});
afterAll(async () => {
  await server.app.close();
  await engine.close();
});

/** Waits until no request is left and every block is free or cached. */
async function expectIdle(): Promise<void> {
  await vi.waitFor(() => {
    const { running, waiting, blocks } = engine.stats();
    expect({ running, waiting, referenced: blocks.referenced }).toEqual({ running: 0, waiting: 0, referenced: 0 });
  }, PATIENCE);
  const { blocks } = engine.stats();
  expect(blocks.free + blocks.cached).toBe(blocks.total);
}

const prompt = 'Once upon a time';
const messages = [{ role: 'user', content: 'Tell me a story about a fox.' }] as const;

describe('/v1/completions', () => {
  it('returns the same text with and without streaming', async () => {
    const body = { model: name, prompt, max_tokens: 60, temperature: 0 };
    const whole = await client.completions.create(body);
    let text = '';
    let chunks = 0;
    for await (const chunk of await client.completions.create({ ...body, stream: true })) {
      text += chunk.choices[0]!.text;
      chunks++;
    }
    expect(text).toBe(whole.choices[0]!.text);
    expect(text.length).toBeGreaterThan(60);
    expect(chunks).toBeGreaterThan(10);
    expect(whole.usage).toMatchObject({ prompt_tokens: 4, completion_tokens: 60, total_tokens: 64 });
    expect(whole.choices[0]!.finish_reason).toBe('length');
  });

  it('repeats a text with a seed, and generates others without', async () => {
    const ask = async (seed?: number) => {
      const seeded = seed === undefined ? {} : { seed };
      const { choices } = await client.completions.create({ model: name, prompt, max_tokens: 40, n: 2, ...seeded });
      return choices.map((choice) => choice.text);
    };
    const [first, second] = [await ask(7), await ask(7)];
    expect(second).toEqual(first);
    expect(first[0]).not.toBe(first[1]);
    expect(await ask(8)).not.toEqual(first);
    expect(await ask()).not.toEqual(await ask());
  });

  it('accepts tokens and lists of prompts, and returns the choices in their order', async () => {
    const prompts = [prompt, 'The little mouse', 'In the garden'];
    const common = { model: name, max_tokens: 12, temperature: 0 };
    const alone = [];
    for (const text of prompts) {
      alone.push((await client.completions.create({ ...common, prompt: text })).choices[0]!.text);
    }
    const together = await client.completions.create({ ...common, prompt: prompts });
    expect(together.choices.map((choice) => choice.text)).toEqual(alone);
    const tokens = prompts.map((text) => engine.tokenize(text));
    const asTokens = await client.completions.create({ ...common, prompt: tokens });
    expect(asTokens.choices.map((choice) => choice.text)).toEqual(alone);
  });

  it('ends before a stop string, also inside a token', async () => {
    const body = { model: name, prompt, max_tokens: 60, temperature: 0 };
    const free = (await client.completions.create(body)).choices[0]!.text;
    const stop = free.slice(21, 26);
    const expected = free.slice(0, free.indexOf(stop));
    const stopped = await client.completions.create({ ...body, stop });
    expect(stopped.choices[0]).toMatchObject({ text: expected, finish_reason: 'stop', stop_reason: stop });
    let streamed = '';
    for await (const chunk of await client.completions.create({ ...body, stop, stream: true })) {
      streamed += chunk.choices[0]!.text;
    }
    expect(streamed).toBe(expected);
  });

  it('returns logprobs', async () => {
    const body = { model: name, prompt, max_tokens: 10, temperature: 0, logprobs: 3 };
    const { choices } = await client.completions.create(body);
    const { tokens, token_logprobs, top_logprobs, text_offset } = choices[0]!.logprobs!;
    expect(tokens!.join('')).toBe(choices[0]!.text);
    expect(tokens!.map((_, i) => [...tokens!.slice(0, i).join('')].length)).toEqual(text_offset);
    for (const [i, token] of tokens!.entries()) {
      const top = top_logprobs![i]!;
      expect(Object.keys(top)).toHaveLength(3);
      expect(top[token]).toBe(token_logprobs![i]);
      expect(token_logprobs![i]).toBe(Math.max(...Object.values(top)));
      expect(Object.values(top).reduce((sum, logprob) => sum + Math.exp(logprob), 0)).toBeLessThanOrEqual(1.000001);
    }
  });
});

describe('/v1/chat/completions', () => {
  it('returns the same text with and without streaming, and the usage', async () => {
    const body = { model: name, messages: [...messages], max_tokens: 60, temperature: 0 };
    const whole = await client.chat.completions.create(body);
    const stream = await client.chat.completions.create({
      ...body,
      stream: true,
      stream_options: { include_usage: true },
    });
    let text = '';
    const finish: (string | null)[] = [];
    let usage: unknown;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? '';
      if (chunk.choices[0] !== undefined) finish.push(chunk.choices[0].finish_reason);
      usage = chunk.usage ?? usage;
    }
    expect(text).toBe(whole.choices[0]!.message.content);
    expect(finish.at(-1)).toBe(whole.choices[0]!.finish_reason);
    expect(finish.slice(0, -1).every((reason) => reason === null)).toBe(true);
    expect(usage).toMatchObject({
      prompt_tokens: whole.usage!.prompt_tokens,
      completion_tokens: whole.usage!.completion_tokens,
    });
  });

  it("works with the stream helper of OpenAI's client", async () => {
    const stream = client.chat.completions.stream({
      model: name,
      messages: [...messages],
      max_tokens: 30,
      temperature: 0,
    });
    const whole = await client.chat.completions.create({
      model: name,
      messages: [...messages],
      max_tokens: 30,
      temperature: 0,
    });
    expect((await stream.finalChatCompletion()).choices[0]!.message.content).toBe(whole.choices[0]!.message.content);
  });

  it('returns logprobs with bytes', async () => {
    const body = { model: name, messages: [...messages], max_tokens: 10, temperature: 0 };
    const { choices } = await client.chat.completions.create({ ...body, logprobs: true, top_logprobs: 2 });
    const content = choices[0]!.logprobs!.content!;
    expect(Buffer.from(content.flatMap((token) => token.bytes!)).toString()).toBe(choices[0]!.message.content);
    expect(content.every((token) => token.top_logprobs.length === 2)).toBe(true);
    expect(content.every((token) => token.top_logprobs[0]!.token === token.token)).toBe(true);
  });
});

describe('the prefix cache', () => {
  const long = `${prompt} `.repeat(60);
  const ask = async (extra: object = {}) => {
    const { usage } = await client.completions.create({ model: name, prompt: long, max_tokens: 2, ...extra });
    return usage!.prompt_tokens_details!.cached_tokens!;
  };

  it('is reported in the usage, and separated by cache salts', async () => {
    expect(await ask()).toBe(0);
    expect(await ask()).toBeGreaterThan(100);
    expect(await ask({ cache_salt: 'a' })).toBe(0);
    expect(await ask({ cache_salt: 'a' })).toBeGreaterThan(100);
    expect(await ask({ cache_salt: 'b' })).toBe(0);
  });
});

describe('a client', () => {
  it('lists the models', async () => {
    const models = [];
    for await (const card of client.models.list()) models.push(card.id);
    expect(models).toEqual([name]);
    expect((await client.models.retrieve(name)).id).toBe(name);
  });

  it("gets the errors of OpenAI's API", async () => {
    const create = (extra: object) => client.completions.create({ model: name, prompt, ...extra } as never);
    await expect(create({ temperature: -1 })).rejects.toBeInstanceOf(OpenAI.BadRequestError);
    await expect(create({ model: 'other' })).rejects.toBeInstanceOf(OpenAI.NotFoundError);
    await expect(create({ prompt: 'word '.repeat(20_000) })).rejects.toMatchObject({ code: 'context_length_exceeded' });
    await expect(create({ top_p: 7 })).rejects.toMatchObject({ status: 400, param: 'top_p' });
    await expect(create({ min_tokens: 100_000, max_tokens: 100_000 })).rejects.toBeInstanceOf(OpenAI.BadRequestError);
    expect((await client.completions.create({ model: name, prompt, max_tokens: 1 })).usage!.completion_tokens).toBe(1);
    await expectIdle();
  });

  it('that disconnects releases its blocks', async () => {
    const endless = { model: name, prompt, max_tokens: 8000, ignore_eos: true } as never;
    const controller = new AbortController();
    const answer = client.completions.create(endless, { signal: controller.signal });
    await vi.waitFor(() => expect(engine.stats().running).toBe(1), PATIENCE);
    controller.abort();
    await expect(answer).rejects.toBeInstanceOf(OpenAI.APIUserAbortError);
    await expectIdle();
  });

  it('whose connection ends during a stream releases its blocks', async () => {
    const body = JSON.stringify({ prompt, max_tokens: 8000, ignore_eos: true, stream: true, n: 3 });
    const socket = connect(port, '127.0.0.1');
    socket.write(
      `POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
    await once(socket, 'data');
    expect(engine.stats().blocks.referenced).toBeGreaterThan(0);
    socket.destroy();
    await expectIdle();
  });

  it('gets its completion while other clients disconnect', async () => {
    const before = engine.stats().aborts;
    const outcomes = await Promise.allSettled(
      Array.from({ length: 60 }, async (_, i) => {
        const controller = new AbortController();
        if (i % 3 === 0) setTimeout(() => controller.abort(), 5 + i);
        const { signal } = controller;
        const body = { model: name, prompt: `${prompt} ${i % 7}`, max_tokens: 5 + (i % 40), seed: i } as const;
        if (i % 2 === 0) return await client.completions.create(body, { signal });
        let tokens = 0;
        for await (const _chunk of await client.completions.create({ ...body, stream: true }, { signal })) tokens++;
        return tokens;
      }),
    );
    for (const [i, { status }] of outcomes.entries()) if (i % 3 !== 0) expect(status).toBe('fulfilled');
    await expectIdle();
    expect(engine.stats().aborts).toBeGreaterThanOrEqual(before);
  });
});

describe('/tokenize and /detokenize', () => {
  const post = async (path: string, body: object) => {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    return JSON.parse(await response.text());
  };

  it.each(['Once upon a time', 'naïve 🦊 façade', 'a\u0000b', '<|im_start|>user\nhi<|im_end|>\n', ' \n\t '])(
    'are inverses for %j',
    async (text) => {
      const { tokens, count, max_model_len } = await post('/tokenize', { prompt: text, add_special_tokens: false });
      expect(count).toBe(tokens.length);
      expect(max_model_len).toBe(engine.model.maxModelLen);
      expect(await post('/detokenize', { tokens })).toEqual({ prompt: text, content: text });
    },
  );

  it('render a conversation like the chat endpoint', async () => {
    const { count } = await post('/tokenize', { messages });
    const chat = await client.chat.completions.create({ model: name, messages: [...messages], max_tokens: 1 });
    expect(chat.usage!.prompt_tokens).toBe(count);
  });
});
