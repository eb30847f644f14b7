import type OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createEngine } from '../../src/compose.ts';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import { toolFormats } from '../../src/tools/formats.ts';
import { serveEngine } from '../support/served-model.ts';

/** The bundled model, which knows nothing of JSON, and OpenAI's client: constrained outputs over real sockets. */
const model = 'kvasir-demo';
let engine: AsyncEngine;
const closers: (() => Promise<void>)[] = [];
let client: OpenAI;

async function open(options: Parameters<typeof serveEngine>[1] = {}): Promise<OpenAI> {
  const { client: opened, close } = await serveEngine(engine, options);
  closers.push(close);
  return opened;
}

beforeAll(async () => {
  engine = await createEngine({ model: 'models/kvasir-demo.gguf', kvCacheMemory: 64 * 1024 ** 2, threads: 1 });
  client = await open();
});
afterAll(async () => {
  for (const close of closers) await close();
  await engine.close();
});

// An answer in the format openai begins with free text, which is short after this message.
const messages = [{ role: 'user', content: 'Thank you for the story!' }] as const;
const base = { model, messages: [...messages], max_tokens: 300, temperature: 0.7, seed: 3 };
const fox = {
  type: 'object',
  properties: {
    name: { type: 'string', minLength: 1, maxLength: 12 },
    legs: { type: 'integer', minimum: 0, maximum: 4 },
    colours: { type: 'array', items: { enum: ['red', 'grey'] }, minItems: 1, maxItems: 3 },
  },
  required: ['name', 'legs', 'colours'],
  additionalProperties: false,
};

describe('response_format', () => {
  const response_format = { type: 'json_schema', json_schema: { name: 'fox', strict: true, schema: fox } } as const;

  it('gives JSON that matches the schema, the same with a stream', async () => {
    const { choices } = await client.chat.completions.create({ ...base, response_format, n: 2 });
    for (const { message, finish_reason } of choices) {
      expect(finish_reason).toBe('stop');
      const answer = JSON.parse(message.content!);
      expect(Object.keys(answer)).toEqual(['name', 'legs', 'colours']);
      expect([0, 1, 2, 3, 4]).toContain(answer.legs);
      expect(answer.name.length).toBeLessThanOrEqual(12);
    }
    let streamed = '';
    for await (const { choices } of await client.chat.completions.create({ ...base, response_format, stream: true })) {
      streamed += choices[0]?.delta.content ?? '';
    }
    expect(streamed).toBe(choices[0]!.message.content);
  });

  it('works in /v1/responses and in completions', async () => {
    const text = { format: { type: 'json_schema' as const, name: 'fox', schema: fox } };
    const response = await client.responses.create({ model, input: 'A fox.', text, max_output_tokens: 300 });
    expect(JSON.parse(response.output_text)).toHaveProperty('legs');
    const structured_outputs = { choice: ['red', 'grey'] };
    const completion = await client.completions.create({ model, prompt: 'The fox is', structured_outputs } as never);
    expect(['red', 'grey']).toContain((completion as OpenAI.Completion).choices[0]!.text);
  });

  it('is refused with the keyword that cannot be compiled, and with its place', async () => {
    const schema = { type: 'object', properties: { a: { type: 'array', uniqueItems: true } } };
    const format = { type: 'json_schema', json_schema: { name: 'a', strict: true, schema } } as const;
    for (const stream of [false, true]) {
      await expect(client.chat.completions.create({ ...base, response_format: format, stream })).rejects.toMatchObject({
        status: 400,
        param: 'response_format.json_schema.schema',
        message: expect.stringContaining('values only at #/properties/a/uniqueItems'),
      });
    }
  });
});

describe('required calls of tools', () => {
  const tool = (name: string, properties: object) =>
    ({
      type: 'function',
      function: { name, parameters: { type: 'object', properties, required: Object.keys(properties) } },
    }) as const;
  const tools = [
    tool('get_weather', { city: { enum: ['Rome', 'Oslo'] }, days: { type: 'integer', minimum: 1, maximum: 9 } }),
    tool('add', { a: { type: 'integer', minimum: 0, maximum: 99 } }),
  ];

  it.each(toolFormats)('match the schemas in the format %s', async (toolFormat) => {
    const formatted = await open({ toolFormat });
    const once = { ...base, tools, parallel_tool_calls: false };
    const { choices } = await formatted.chat.completions.create({ ...once, tool_choice: 'required' });
    const [{ message, finish_reason }] = choices as [OpenAI.ChatCompletion.Choice];
    expect(finish_reason).toBe('tool_calls');
    expect(message.content).toBeNull();
    expect(message.tool_calls).toHaveLength(1);
    const [call] = message.tool_calls as [OpenAI.ChatCompletionMessageFunctionToolCall];
    const given = JSON.parse(call.function.arguments);
    if (call.function.name === 'add') expect(given.a).toBeLessThan(100);
    else expect(['Rome', 'Oslo']).toContain(given.city);

    const tool_choice = { type: 'function', function: { name: 'add' } } as const;
    const named = await formatted.chat.completions.create({ ...base, tools, tool_choice });
    const calls = named.choices[0]!.message.tool_calls as OpenAI.ChatCompletionMessageFunctionToolCall[];
    expect(calls.map((one) => one.function.name)).toEqual(['add']);
    expect(JSON.parse(calls[0]!.function.arguments)).toEqual({ a: expect.any(Number) });
  });

  it('are refused with a schema that cannot be compiled', async () => {
    const { type, function: add } = tool('add', { a: { type: 'array', uniqueItems: true } });
    const wrong = [{ type, function: { ...add, strict: true } }];
    await expect(
      client.chat.completions.create({ ...base, tools: wrong, tool_choice: 'required' }),
    ).rejects.toMatchObject({
      status: 400,
      message: expect.stringContaining('#/properties/a/uniqueItems of the parameters of the tool `add`'),
    });
  });

  it('and a format of the content: the answer is one or the other', async () => {
    const response_format = { type: 'json_schema', json_schema: { name: 'fox', schema: fox } } as const;
    for (let seed = 0; seed < 4; seed++) {
      const { choices } = await client.chat.completions.create({ ...base, seed, tools, response_format });
      const { message, finish_reason } = choices[0]!;
      if (finish_reason === 'length') continue;
      if (message.tool_calls === undefined) expect(JSON.parse(message.content!)).toHaveProperty('legs');
      else expect(finish_reason).toBe('tool_calls');
    }
  });
});

describe('thoughts', () => {
  it('come before the content and are not restricted', async () => {
    const thinking = await open({ reasoningFormat: 'deepseek_r1' });
    const structured_outputs = { regex: 'yes|no' };
    const stop = { logit_bias: {} };
    const answer = await thinking.chat.completions.create({
      ...base,
      ...stop,
      max_tokens: 60,
      structured_outputs,
    } as never);
    const { message, finish_reason } = (answer as OpenAI.ChatCompletion).choices[0]!;
    // The model never ends its thoughts, so there is no content yet.
    if (finish_reason === 'length') expect(message.content ?? '').toBe('');
    else expect(message.content).toMatch(/^(yes|no)$/);
  });
});
