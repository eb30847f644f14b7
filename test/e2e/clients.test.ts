/** Clients of OpenAI's API from npm, as programs use them, against the server. `server.test.ts` has OpenAI's own client. */
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ChatOpenAI } from '@langchain/openai';
import { generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createEngine } from '../../src/compose.ts';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import { Server } from '../../src/server/server.ts';
import { LetterEngine } from '../support/letter-engine.ts';
import { smallDemo } from '../support/small-demo.ts';

const question = 'What is the weather in Rome?';
const call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>';
const chatTemplate = '{% if tools %}<tool_call>{% endif %}{{ tool_calls }}{{ content.split("</think>") }}';
const parameters = {
  type: 'object',
  properties: { city: { type: 'string' } },
  required: ['city'],
} as const;

/** A model that thinks, speaks, calls a tool, and answers when it has the result. */
const scripted = new LetterEngine({ chatTemplate, maxModelLen: 5000 });
const { renderChat } = scripted;
scripted.renderChat = (messages, options) => {
  scripted.answer = messages.at(-1)!.role === 'tool' ? 'Sunny.' : `<think>Hm.</think>Let me see.\n${call}`;
  return renderChat.call(scripted, messages, options);
};

const servers: Server[] = [];
const origins: Record<'demo' | 'scripted', string> = { demo: '', scripted: '' };
let demo: AsyncEngine;

async function serve(engine: AsyncEngine): Promise<string> {
  const server = new Server(engine, { version: '0.0.0', logLevel: 'silent', apiKey: 'secret' });
  servers.push(server);
  return `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}/v1`;
}

beforeAll(async () => {
  demo = await createEngine(smallDemo);
  origins.demo = await serve(demo);
  origins.scripted = await serve(scripted);
});
afterAll(async () => {
  for (const server of servers) await server.app.close();
  await demo.close();
});

/** The answer of the demo model, without a server. */
async function greedyAnswer(content: string, maxTokens: number): Promise<string> {
  const request = { messages: [{ role: 'user', content }], params: { temperature: 0, maxTokens } };
  let text = '';
  for await (const delta of demo.chat(request)) text += delta.content;
  return text;
}

describe('@ai-sdk/openai-compatible', () => {
  const model = (which: keyof typeof origins, name: string) =>
    createOpenAICompatible({ name: 'kvasir', baseURL: origins[which], apiKey: 'secret', includeUsage: true })(name);
  const get_weather = tool({
    description: 'The weather of a city.',
    inputSchema: jsonSchema<{ city: string }>(parameters),
    execute: async ({ city }) => `sunny in ${city}`,
  });

  it('generates and streams the text of the library', async () => {
    const settings = {
      model: model('demo', 'kvasir-demo'),
      prompt: 'Tell me a story.',
      temperature: 0,
      maxOutputTokens: 24,
    };
    const whole = await generateText(settings);
    expect(whole.text).toBe(await greedyAnswer('Tell me a story.', 24));
    expect(whole.usage.outputTokens).toBe(24);
    const streamed = streamText(settings);
    const pieces: string[] = [];
    for await (const piece of streamed.textStream) pieces.push(piece);
    expect(pieces.join('')).toBe(whole.text);
    expect(pieces.length).toBeGreaterThan(5);
    expect(await streamed.finishReason).toBe('length');
    expect((await streamed.usage).inputTokens).toBe(whole.usage.inputTokens);
  });

  it('thinks, calls tools and answers with their results, streamed or not', async () => {
    const settings = {
      model: model('scripted', 'letters'),
      prompt: question,
      tools: { get_weather },
      stopWhen: stepCountIs(3),
    };
    const streamed = streamText(settings);
    await streamed.consumeStream();
    for (const result of [await generateText(settings), streamed]) {
      expect(await result.text).toBe('Sunny.');
      const [first] = await result.steps;
      expect(first!.reasoningText).toBe('Hm.');
      expect(first!.text).toBe('Let me see.');
      expect(first!.finishReason).toBe('tool-calls');
      expect(first!.toolResults.map(({ output }) => output)).toEqual(['sunny in Rome']);
    }
  });

  it('gets errors with status and message', async () => {
    const settings = { model: model('demo', 'other'), prompt: 'x', maxRetries: 0 };
    await expect(generateText(settings)).rejects.toMatchObject({
      statusCode: 404,
      message: expect.stringContaining('This server serves `kvasir-demo`'),
    });
  });
});

describe('@langchain/openai', () => {
  const model = (which: keyof typeof origins, name: string, fields: object = {}) =>
    new ChatOpenAI({
      model: name,
      apiKey: 'secret',
      configuration: { baseURL: origins[which] },
      maxRetries: 0,
      ...fields,
    });
  const tools = [
    { type: 'function', function: { name: 'get_weather', description: 'The weather of a city.', parameters } },
  ] as const;

  it('generates and streams the text of the library', async () => {
    const chat = model('demo', 'kvasir-demo', { temperature: 0, maxTokens: 24 });
    const expected = await greedyAnswer('Tell me a story.', 24);
    const whole = await chat.invoke('Tell me a story.');
    expect(whole.content).toBe(expected);
    expect(whole.usage_metadata).toMatchObject({ output_tokens: 24 });
    const pieces: string[] = [];
    for await (const { content } of await chat.stream('Tell me a story.')) pieces.push(content as string);
    expect(pieces.join('')).toBe(expected);
    expect(pieces.length).toBeGreaterThan(5);
  });

  it('calls tools and answers with their results, streamed or not', async () => {
    const chat = model('scripted', 'letters').bindTools([...tools]);
    const first = await chat.invoke(question);
    expect(first.content).toBe('Let me see.');
    expect(first.tool_calls).toMatchObject([{ name: 'get_weather', args: { city: 'Rome' } }]);
    let streamed: Awaited<ReturnType<typeof chat.invoke>> | undefined;
    for await (const chunk of await chat.stream(question))
      streamed = streamed === undefined ? chunk : streamed.concat(chunk);
    expect(streamed?.content).toBe('Let me see.');
    expect(streamed?.tool_calls).toMatchObject([{ name: 'get_weather', args: { city: 'Rome' } }]);
    const result = { role: 'tool', tool_call_id: first.tool_calls![0]!.id!, content: 'sunny' };
    const last = await chat.invoke([{ role: 'user', content: question }, first, result]);
    expect(last.content).toBe('Sunny.');
  });

  it('gets errors of OpenAI', async () => {
    await expect(model('demo', 'kvasir-demo', { temperature: -1 }).invoke('x')).rejects.toMatchObject({ status: 400 });
    await expect(model('demo', 'kvasir-demo', { apiKey: 'wrong' }).invoke('x')).rejects.toMatchObject({ status: 401 });
  });
});
