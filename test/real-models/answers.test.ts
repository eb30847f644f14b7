/** Chats, calls of tools and JSON of real models: prompts of their own templates, and answers in the forms that requests ask for. */
import Anthropic from '@anthropic-ai/sdk';
import { Ajv } from 'ajv';
import addFormats from 'ajv-formats';
import { Ollama } from 'ollama';
import type OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createEngine } from '../../src/compose.ts';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import { inLongForm } from '../support/long-form.ts';
import { needs } from '../support/needs.ts';
import { quotedAnswers } from '../support/quoted-answers.ts';
import { realModel, timeoutMs } from '../support/real-models.ts';
import { serveEngine } from '../support/served-model.ts';

const ajv = new Ajv({ strict: false });
addFormats.default(ajv);

const conversation = [
  { role: 'user', content: 'Name a colour.' },
  { role: 'assistant', content: '  Blue, <b>of course</b>.\n' },
  { role: 'user', content: 'Another? \u{1f642}' },
];
const system = { role: 'system', content: 'Answer in one word.' };

const smolDefault = 'You are a helpful AI assistant named SmolLM, trained by Hugging Face';
const qwenDefault = 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.';
const turn = (role: string, content: string): string => `<|im_start|>${role}\n${content}<|im_end|>\n`;
const turns = conversation.map(({ role, content }) => turn(role, content)).join('');
const start = '<|im_start|>assistant\n';

const functions = [
  {
    name: 'get_weather',
    properties: { city: { type: 'string', maxLength: 30 }, unit: { enum: ['celsius', 'fahrenheit'] } },
  },
  { name: 'set_timer', properties: { minutes: { type: 'integer', minimum: 1, maximum: 600 } } },
  { name: 'send_mail', properties: { to: { type: 'string', maxLength: 40 }, urgent: { type: 'boolean' } } },
  { name: 'search', properties: { words: { type: 'array', items: { type: 'string', maxLength: 15 }, maxItems: 4 } } },
].map(({ name, properties }) => ({
  name,
  description: `Call it to ${name.replace('_', ' ')}.`,
  parameters: { type: 'object', properties, required: Object.keys(properties), additionalProperties: false },
}));
const tools = functions.map((each) => ({ type: 'function' as const, function: each }));
const questions = [
  'What is the weather in Rome?',
  'Wake me in half an hour.',
  'Tell Anna that the train is late.',
  'Who painted the Mona Lisa?',
  'Hello!',
  'Write a poem about the sea.',
  '12 * 12 = ?',
  'Is it warmer in Oslo or in Bergen?',
];
const choices = [
  'required',
  ...functions.map(({ name }) => ({ type: 'function' as const, function: { name } })),
] as const;
/** Each question with each choice. */
const requests = questions.flatMap((content) => choices.map((tool_choice) => ({ content, tool_choice })));

const schemas = [
  {
    type: 'object',
    properties: { name: { type: 'string', maxLength: 20 }, age: { type: 'integer' } },
    required: ['name', 'age'],
  },
  { type: 'array', items: { enum: ['red', 'green', 'blue'] }, minItems: 1, maxItems: 3 },
  {
    type: 'object',
    properties: { at: { type: 'string', format: 'date' }, price: { type: 'number', minimum: 0, maximum: 100 } },
    required: ['at'],
  },
  { anyOf: [{ type: 'boolean' }, { type: 'null' }, { const: 'unknown' }] },
];

const models = [
  {
    ...realModel('smollm2'),
    // A call costs as much as all other tests with this model.
    requestCount: inLongForm(10, 0),
    schemaCount: inLongForm(4, 1),
    defaultSystem: smolDefault,
  },
  { ...realModel('qwen2.5-coder'), requestCount: 20, schemaCount: 2, defaultSystem: qwenDefault },
].slice(0, inLongForm(2, 1));

for (const { name, path, isThere, reason, requestCount, schemaCount, defaultSystem } of models)
  describe(name, needs(isThere, reason), () => {
    let engine: AsyncEngine;
    let client: OpenAI;
    let close: () => Promise<void>;
    beforeAll(async () => {
      if (!isThere) return;
      engine = await createEngine({ model: path, threads: 1, kvCacheMemory: 192 << 20, maxModelLen: 2048 });
      ({ client, close } = await serveEngine(engine));
    });
    afterAll(async () => {
      if (!isThere) return;
      await close();
      await engine.close();
    });
    const ask = (content: string, options: object) =>
      client.chat.completions.create({
        ...{ model: engine.model.name, messages: [{ role: 'user', content }], max_tokens: 200, temperature: 0 },
        ...options,
      } as OpenAI.ChatCompletionCreateParamsNonStreaming);
    /** Some of the list, from all over it. */
    const some = <T>(all: readonly T[], count: number): readonly T[] =>
      Array.from({ length: count }, (_, i) => all[Math.floor((i * all.length) / count)]!);

    it('renders prompts as its template says', () => {
      const rendered = (messages: readonly { role: string; content: string }[], addGenerationPrompt = true): string =>
        engine.applyChatTemplate(messages, { addGenerationPrompt }).text;
      expect(rendered(conversation)).toBe(turn('system', defaultSystem) + turns + start);
      expect(rendered([system, ...conversation])).toBe(turn('system', system.content) + turns + start);
      expect(rendered(conversation.slice(0, 2), false)).toBe(
        turn('system', defaultSystem) +
          conversation
            .slice(0, 2)
            .map(({ role, content }) => turn(role, content))
            .join(''),
      );
    });

    it(
      'calls the tool that a request names, or one of the tools if it requires a call',
      async () => {
        const answers = await Promise.all(
          some(requests, requestCount).map(async ({ content, tool_choice }) => ({
            tool_choice,
            answer: await ask(content, { tools, tool_choice, parallel_tool_calls: false }),
          })),
        );
        const wrong = answers.filter(({ answer, tool_choice }) => {
          const call = answer.choices[0]!.message.tool_calls?.[0];
          if (call?.type !== 'function' || answer.choices[0]!.finish_reason !== 'tool_calls') return true;
          if (typeof tool_choice === 'object' && call.function.name !== tool_choice.function.name) return true;
          const called = functions.find((each) => each.name === call.function.name);
          return called === undefined || !ajv.validate(called.parameters, JSON.parse(call.function.arguments));
        });
        expect(wrong).toEqual([]);
      },
      timeoutMs,
    );

    it(
      'gives the same text by the APIs of OpenAI, Anthropic and Ollama, in one part and in a stream',
      async () => {
        const { origin } = new URL(client.baseURL);
        const messages = [{ role: 'user' as const, content: 'Name a colour.' }];
        const max_tokens = 16;
        const name = engine.model.name;
        const { choices } = await ask('Name a colour.', { max_tokens });
        const anthropic = new Anthropic({ baseURL: origin, apiKey: 'none' });
        // The client's newest types do not have the temperature any more.
        const body = { model: name, max_tokens, messages, ...{ temperature: 0 } };
        const message = await anthropic.messages.create(body);
        const streamed = anthropic.messages.stream(body);
        const ollama = new Ollama({ host: origin });
        const asked = { model: name, messages, options: { temperature: 0, num_predict: max_tokens } };
        const lines: string[] = [];
        for await (const line of await ollama.chat({ ...asked, stream: true })) lines.push(line.message.content);
        const text = choices[0]!.message.content!;
        expect(text.length).toBeGreaterThan(1);
        expect([
          message.content,
          await streamed.finalText(),
          (await ollama.chat(asked)).message.content,
          lines.join(''),
        ]).toEqual([[{ type: 'text', text, citations: null }], text, text, text]);
      },
      timeoutMs,
    );

    it('answers with JSON that follows a schema', async () => {
      await Promise.all(
        some(schemas, schemaCount).map(async (schema) => {
          const response_format = { type: 'json_schema', json_schema: { name: 'answer', schema } };
          const { message, finish_reason } = (await ask('Answer with JSON.', { response_format })).choices[0]!;
          expect(finish_reason, message.content!).toBe('stop');
          expect(ajv.validate(schema, JSON.parse(message.content!)), message.content!).toBe(true);
        }),
      );
    });
  });

const coder = realModel('qwen2.5-coder');
for (const { name, path, isThere, reason } of inLongForm([coder], []))
  describe(name, needs(isThere, reason), () => {
    it(
      'fills a gap in code for an editor, whole and as a stream',
      async () => {
        const engine = await createEngine({ model: path, threads: 2, kvCacheMemory: 64 << 20, maxModelLen: 2048 });
        const { client, close } = await serveEngine(engine);
        const gap = {
          input_prefix: 'function add(a: number, b: number): number {\n',
          prompt: '  return ',
          input_suffix: '\n}\n\nconsole.log(add(1, 2));\n',
          temperature: 0,
          n_predict: 16,
          // This model goes on after the gap.
          stop: ['\n'],
        };
        const fill = async (body: object): Promise<string> => {
          const headers = { 'content-type': 'application/json' };
          const init = { method: 'POST', headers, body: JSON.stringify(body) };
          return (await fetch(new URL('/infill', client.baseURL), init)).text();
        };
        const { content, stop_type } = JSON.parse(await fill(gap)) as { content: string; stop_type: string };
        expect(content).toBe('a + b;');
        expect(stop_type).toBe('word');
        const events = (await fill({ ...gap, stream: true })).matchAll(/^data: (\{.*\})$/gm);
        const pieces = [...events].map(([, json]) => (JSON.parse(json!) as { content: string }).content);
        expect(pieces.length).toBeGreaterThan(1);
        expect(pieces.join('')).toBe(content);
        await close();
        await engine.close();
      },
      timeoutMs,
    );

    it(
      'gives the answers that the documents quote',
      async () => {
        const engine = await createEngine({ model: path, threads: 2, kvCacheMemory: 64 << 20, maxModelLen: 2048 });
        const { client, close } = await serveEngine(engine);
        const examples = quotedAnswers('real model');
        expect(examples.length).toBe(6);
        for (const { url, body, answer } of examples) {
          const headers = { 'content-type': 'application/json' };
          const answered = await fetch(new URL(url, client.baseURL), { method: 'POST', headers, body });
          expect(await answered.text()).toContain(answer);
        }
        await close();
        await engine.close();
      },
      timeoutMs,
    );
  });

const gemma = realModel('gemma3');
for (const { name, path, isThere, reason } of inLongForm([gemma], []))
  describe(name, needs(isThere, reason), () => {
    it('has no chat template, so a chat is refused with the reason', async () => {
      const engine = await createEngine({ model: path, threads: 1, kvCacheMemory: 64 << 20, maxModelLen: 512 });
      expect(() => engine.applyChatTemplate(conversation)).toThrow(/has no chat template/);
      await engine.close();
    });
  });
