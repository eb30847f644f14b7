/** The provider for the AI SDK with the real package, in both versions that have users. */
import * as ai7 from 'ai';
import * as ai6 from 'ai-6';
import { describe, expect, it } from 'vitest';
import { createKvasir, kvasir, kvasirEmbeddings } from '../../src/ai-sdk.ts';
import type { EngineOptions } from '../../src/engine/options.ts';
import { LetterEngine, type LetterEngineOptions } from '../support/letter-engine.ts';
import { smallDemo } from '../support/small-demo.ts';

const chatTemplate = '{% if tools %}<tool_call>{% endif %}{{ tool_calls }}{{ content.split("</think>") }}';
const model = (answer: string, options: LetterEngineOptions = {}) =>
  new LetterEngine({ answer, chatTemplate, maxModelLen: 5000, ...options });
const callOf = (city: string) => `<tool_call>\n{"name": "get_weather", "arguments": {"city": "${city}"}}\n</tool_call>`;
const prompt = 'What is the weather in Rome?';

/** Version 6 has the functions of version 7 that are used here. */
const versions = [
  ['7', ai7],
  ['6', ai6 as unknown as typeof ai7],
] as const;

describe.each(versions)('AI SDK %s', (_, ai) => {
  const inputSchema = ai.jsonSchema<{ city: string }>({
    type: 'object',
    properties: { city: { type: 'string' } },
    required: ['city'],
  });
  const tools = {
    get_weather: ai.tool({
      description: 'The weather of a city.',
      inputSchema,
      execute: async ({ city }) => `sunny in ${city}`,
    }),
  };

  it('generates text and thoughts, and reports usage', async () => {
    const engine = model('<think>Hm.</think>Sunny.', { stats: { cachedTokens: 5 } });
    const result = await ai.generateText({ model: kvasir(engine), prompt });
    expect(result.text).toBe('Sunny.');
    expect(result.reasoningText).toBe('Hm.');
    expect(result.finishReason).toBe('stop');
    expect(result.warnings ?? []).toEqual([]);
    const tokens = engine.tokenize(`<|im_start|>user\n${prompt}<|im_end|>\n<|im_start|>assistant\n`, {
      parseSpecial: true,
    }).length;
    expect(result.usage).toMatchObject({ inputTokens: tokens, outputTokens: '<think>Hm.</think>Sunny.'.length });
    expect(result.usage.inputTokenDetails.cacheReadTokens).toBe(5);
  });

  it('passes settings on', async () => {
    const engine = model('yes');
    await ai.generateText({
      model: kvasir(engine),
      prompt,
      maxOutputTokens: 7,
      temperature: 0.5,
      topP: 0.9,
      topK: 3,
      presencePenalty: 0.1,
      frequencyPenalty: 0.2,
      stopSequences: ['END'],
      seed: -1,
      providerOptions: { kvasir: { minP: 0.05, cacheSalt: 'salt', priority: 2 } },
    });
    expect(engine.requests[0]).toMatchObject({
      params: {
        maxTokens: 7,
        temperature: 0.5,
        topP: 0.9,
        topK: 3,
        presencePenalty: 0.1,
        frequencyPenalty: 0.2,
        stop: ['END'],
        seed: 2n ** 64n - 1n,
        minP: 0.05,
      },
      cacheSalt: 'salt',
      priority: 2,
    });
  });

  it('streams text and thoughts in their order', async () => {
    const { fullStream, usage, finishReason } = ai.streamText({
      model: kvasir(model('<think>Hm.</think>Sunny.')),
      prompt,
    });
    const kinds: string[] = [];
    let text = '';
    for await (const part of fullStream) {
      if (kinds.at(-1) !== part.type) kinds.push(part.type);
      if (part.type === 'text-delta') text += part.text;
    }
    expect(text).toBe('Sunny.');
    expect(kinds.filter((kind) => /^(text|reasoning)/.test(kind))).toEqual([
      'reasoning-start',
      'reasoning-delta',
      'reasoning-end',
      'text-start',
      'text-delta',
      'text-end',
    ]);
    expect(await finishReason).toBe('stop');
    expect((await usage).outputTokens).toBe('<think>Hm.</think>Sunny.'.length);
  });

  it('calls tools and answers with their results, streamed or not', async () => {
    const conversations: string[] = [];
    const engineOf = () => {
      const engine = model('');
      const answers = [`Let me see.\n${callOf('Rome')}${callOf('Oslo')}`, 'Sunny.'];
      engine.renderChat = async (messages, options) => {
        conversations.push(JSON.stringify(messages));
        engine.answer = answers[conversations.length % 2 === 1 ? 0 : 1]!;
        return LetterEngine.prototype.renderChat.call(engine, messages, options);
      };
      return engine;
    };
    const settings = { prompt, tools, stopWhen: ai.stepCountIs(3) };
    const whole = await ai.generateText({ model: kvasir(engineOf()), ...settings });
    const streamed = ai.streamText({ model: kvasir(engineOf()), ...settings });
    await streamed.consumeStream();
    for (const result of [whole, streamed]) {
      expect(await result.text).toBe('Sunny.');
      const [first] = await result.steps;
      expect(first!.finishReason).toBe('tool-calls');
      expect(first!.text).toBe('Let me see.');
      expect(first!.toolCalls.map(({ input }) => input)).toEqual([{ city: 'Rome' }, { city: 'Oslo' }]);
    }
    expect(conversations).toHaveLength(4);
    for (const second of [conversations[1]!, conversations[3]!]) {
      const [, assistant, ...results] = JSON.parse(second);
      expect(assistant).toMatchObject({
        role: 'assistant',
        content: 'Let me see.',
        tool_calls: [
          { function: { name: 'get_weather', arguments: { city: 'Rome' } } },
          { function: { arguments: { city: 'Oslo' } } },
        ],
      });
      expect(results.map(({ role, content }: { role: string; content: string }) => [role, content])).toEqual([
        ['tool', 'sunny in Rome'],
        ['tool', 'sunny in Oslo'],
      ]);
      expect(results.map(({ tool_call_id }: { tool_call_id: string }) => tool_call_id)).toEqual(
        assistant.tool_calls.map(({ id }: { id: string }) => id),
      );
    }
  });

  it('streams the input of a tool as it is generated', async () => {
    const { fullStream } = ai.streamText({
      model: kvasir(model(callOf('Rome'))),
      prompt,
      tools,
    });
    const pieces: string[] = [];
    for await (const part of fullStream) if (part.type === 'tool-input-delta') pieces.push(part.delta);
    expect(pieces.length).toBeGreaterThan(3);
    expect(JSON.parse(pieces.join(''))).toEqual({ city: 'Rome' });
  });

  it('ends with the reason of the signal when it aborts', async () => {
    const controller = new AbortController();
    const engine = model('x'.repeat(100), {
      beforeStep: async () => controller.abort(),
    });
    await expect(
      ai.generateText({ model: kvasir(engine), prompt, abortSignal: controller.signal, maxRetries: 0 }),
    ).rejects.toMatchObject({ name: 'AbortError' });
    await expect.poll(() => engine.stats().running).toBe(0);

    const late = new AbortController();
    const { fullStream } = ai.streamText({
      model: kvasir(model('x'.repeat(100))),
      prompt,
      abortSignal: late.signal,
    });
    const kinds: string[] = [];
    for await (const part of fullStream) {
      kinds.push(part.type);
      if (part.type === 'text-delta') late.abort();
    }
    expect(kinds.at(-1)).toBe('abort');
    expect(kinds.filter((kind) => kind === 'text-delta').length).toBeLessThan(100);
  });

  it('gives the errors of the engine unchanged', async () => {
    const ask = (engine: LetterEngine, extra: object = {}) =>
      ai.generateText({ model: kvasir(engine), prompt, maxRetries: 0, ...extra });
    await expect(ask(model('x', { failAtStep: 1 }))).rejects.toMatchObject({ code: 'KVASIR_GENERATION_FAILED' });
    await expect(ask(model('x'), { maxOutputTokens: 10_000 })).rejects.toMatchObject({
      code: 'KVASIR_PROMPT_TOO_LONG',
    });
    const options = { providerOptions: { kvasir: { minp: 0.1 } } };
    await expect(ask(model('x'), options)).rejects.toThrow('Did you mean `minP`?');
    const image = { type: 'image', image: new Uint8Array([137, 80, 78, 71, 13, 10, 26, 10]) };
    const messages = [{ role: 'user', content: [image] }];
    await expect(ask(model('x'), { prompt: undefined, messages })).rejects.toThrow('the model reads text only');
  });
});

describe('constrained output', () => {
  const schema = {
    type: 'object',
    properties: { name: { type: 'string', maxLength: 8 }, age: { type: 'integer', minimum: 0, maximum: 99 } },
    required: ['name', 'age'],
    additionalProperties: false,
  } as const;
  const city = {
    type: 'object',
    properties: { city: { type: 'string', maxLength: 8 } },
    required: ['city'],
    additionalProperties: false,
  } as const;

  it('follows the schema of an object and of a required tool', async () => {
    await using provider = createKvasir(smallDemo);
    const settings = { model: provider(), prompt: 'Tell me of a fox.', temperature: 0, maxOutputTokens: 120 };
    for (const [, ai] of versions) {
      const { object } = await ai.generateObject({
        ...settings,
        schema: ai.jsonSchema<{ name: string; age: number }>(schema),
      });
      expect(object).toEqual({ name: expect.any(String), age: expect.any(Number) });
      const get_weather = ai.tool({ inputSchema: ai.jsonSchema<{ city: string }>(city), execute: async () => 'sun' });
      for (const toolChoice of ['required', { type: 'tool', toolName: 'get_weather' }] as const) {
        const { toolCalls, finishReason } = await ai.generateText({
          ...settings,
          tools: { get_weather },
          toolChoice,
          // The bundled model would write calls until its length ends.
          providerOptions: { kvasir: { parallelToolCalls: false } },
        });
        expect(finishReason).toBe('tool-calls');
        expect(toolCalls[0]!.input).toEqual({ city: expect.any(String) });
      }
    }
  });
});

describe('createKvasir', () => {
  it('opens the model at the first request, and closes it', async () => {
    const options: EngineOptions = { ...smallDemo, servedModelName: 'demo' };
    const provider = createKvasir(options);
    expect(provider().modelId).toBe('demo');
    const settings = {
      model: provider.languageModel(),
      prompt: 'Tell me a story.',
      temperature: 0,
      maxOutputTokens: 20,
    };
    const { text, response } = await ai7.generateText(settings);
    expect(response.modelId).toBe('demo');
    const streamed = ai7.streamText(settings);
    expect(await streamed.text).toBe(text);
    const engine = await provider.engine();
    let chatted = '';
    const request = {
      messages: [{ role: 'user', content: settings.prompt }],
      params: { temperature: 0, maxTokens: 20 },
    };
    for await (const { content } of engine.chat(request)) chatted += content;
    expect(chatted).toBe(text);
    await provider.close();
    expect(engine.isHealthy()).toBe(false);
    await expect(ai7.generateText({ ...settings, maxRetries: 0 })).rejects.toMatchObject({
      code: 'KVASIR_ENGINE_CLOSED',
    });
  });
});

describe('embeddings', () => {
  const values = ['a fox', 'a long story about a lighthouse'];

  it.each(versions)('are those of the engine, with AI SDK %s', async (_, ai) => {
    await using provider = createKvasir({ ...smallDemo, pooling: 'mean' });
    const engine = await provider.engine();
    const { embeddings, usage } = await ai.embedMany({ model: provider.embeddingModel(), values });
    const expected = await Promise.all(values.map((prompt) => engine.embed({ prompt })));
    expect(embeddings).toEqual(expected.map(({ embedding }) => Array.from(embedding)));
    expect(usage.tokens).toBe(expected.reduce((sum, { stats }) => sum + stats.promptTokens, 0));
    const providerOptions = { kvasir: { dimensions: 3 } };
    const { embedding } = await ai.embed({ model: kvasirEmbeddings(engine), value: 'a fox', providerOptions });
    expect(embedding).toHaveLength(3);
    const misspelt = { kvasir: { dimension: 3 } };
    await expect(
      ai.embed({ model: provider.embeddingModel(), value: 'x', providerOptions: misspelt, maxRetries: 0 }),
    ).rejects.toThrow('Did you mean `dimensions`?');
  });

  it('of a model without pooling are refused with what to set', async () => {
    await using provider = createKvasir(smallDemo);
    const asked = ai7.embed({ model: provider.embeddingModel(), value: 'x', maxRetries: 0 });
    await expect(asked).rejects.toMatchObject({ code: 'KVASIR_POOLING_MISSING' });
  });
});
