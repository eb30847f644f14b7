import { describe, expect, it } from 'vitest';
import { LetterEngine, type LetterEngineOptions } from '../../../test/support/letter-engine.ts';
import { toyEngine, untilIdle } from '../../../test/support/toy-model.ts';
import { fittedTemplate } from '../../templates/fitted-template.ts';
import type { ChatDelta, ChatMessage, ChatRequest } from '../contract.ts';
import { OfflineLlm } from '../llm.ts';
import { RenderedPrompt } from './rendered-prompt.ts';

const question: ChatMessage = { role: 'user', content: 'Rome?' };
const weather = { type: 'function', function: { name: 'get_weather', parameters: { type: 'object' } } } as const;
const call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>';
const chatTemplate = '{% if tools %}<tool_call>{% endif %}{{ tool_calls }}{{ content.split("</think>") }}';
const asking: ChatRequest = { messages: [question], tools: [weather] };

const model = (answer: string, options: LetterEngineOptions = {}) =>
  new LetterEngine({ answer, chatTemplate, maxModelLen: 5000, ...options });

async function all<T>(stream: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = [];
  for await (const item of stream) items.push(item);
  return items;
}

/** The deltas put together as a reader does it. */
function joined(deltas: readonly ChatDelta[]) {
  const calls: { id?: string; name?: string; arguments: string }[] = [];
  for (const piece of deltas.flatMap(({ toolCalls }) => toolCalls)) {
    calls[piece.index] ??= { arguments: '' };
    const { index, arguments: text, ...head } = piece;
    calls[index] = { ...calls[index], ...head, arguments: calls[index]!.arguments + text };
  }
  const content = deltas.map((delta) => delta.content).join('');
  return { content, reasoning: deltas.map((delta) => delta.reasoning).join(''), toolCalls: calls };
}

describe('engine.chat', () => {
  it('streams thoughts, content and calls, and ends with the whole message', async () => {
    const deltas = await all(model(`<think>Hm.</think>Let me see.\n${call}${call}`).chat(asking));
    const { finish } = deltas.at(-1)!;
    expect(finish).toMatchObject({ reason: 'tool_calls' });
    expect(finish!.message).toEqual(joined(deltas));
    expect(finish!.message).toMatchObject({ content: 'Let me see.', reasoning: 'Hm.' });
    expect(finish!.message.toolCalls.map(({ name }) => name)).toEqual(['get_weather', 'get_weather']);
    expect(finish!.message.toolCalls.map((made) => JSON.parse(made.arguments))).toEqual([
      { city: 'Rome' },
      { city: 'Rome' },
    ]);
    expect(deltas.slice(0, -1).every((delta) => delta.finish === undefined)).toBe(true);
    const pieces = deltas.flatMap(({ toolCalls }) => toolCalls).filter((piece) => piece.index === 0);
    expect(pieces.length).toBeGreaterThan(5);
  });

  it('gives each of several answers its own parser', async () => {
    const deltas = await all(model(call).chat({ ...asking, params: { n: 2 } }));
    for (const index of [0, 1]) {
      const message = deltas.filter((delta) => delta.index === index).at(-1)!.finish!.message;
      expect(message.toolCalls).toHaveLength(1);
      expect(message).toEqual(joined(deltas.filter((delta) => delta.index === index)));
    }
  });

  it.each([{ ...asking, toolChoice: 'none' } as const, { messages: [question] }])(
    'gives calls as content if the model has no tools to call: %j',
    async (request) => {
      const deltas = await all(model(call).chat(request));
      expect(deltas.at(-1)!.finish).toMatchObject({
        reason: 'stop',
        message: { content: call, reasoning: '', toolCalls: [] },
      });
    },
  );

  it('gives one call if calls are not parallel, and thoughts as content if the caller says so', async () => {
    const engine = model(`<think>Hm.</think>${call}${call}`);
    const deltas = await all(engine.chat({ ...asking, parallelToolCalls: false, reasoningFormat: 'none' }));
    const { toolCalls, content, reasoning } = deltas.at(-1)!.finish!.message;
    expect(toolCalls).toHaveLength(1);
    expect({ content, reasoning }).toEqual({ content: '<think>Hm.</think>', reasoning: '' });
  });

  it('sends tools, calls, results and thoughts of earlier turns to the template', async () => {
    const engine = model('Sunny.');
    const rendered: { messages: unknown; variables: unknown }[] = [];
    const { renderChat } = engine;
    engine.renderChat = (messages, options) => {
      rendered.push({ messages, variables: options?.variables });
      return renderChat.call(engine, messages, options);
    };
    const message = { content: '', reasoning: 'Hm.', toolCalls: [{ id: 'c1', name: 'f', arguments: '{"a":1}' }] };
    const result = { role: 'tool', toolCallId: 'c1', content: 'sun' };
    const messages = [question, { role: 'assistant', ...message }, result];
    await all(engine.chat({ messages, tools: [weather], variables: { enable_thinking: true } }));
    const calls = [{ id: 'c1', type: 'function', function: { name: 'f', arguments: { a: 1 } } }];
    expect(rendered).toEqual([
      {
        messages: [
          question,
          { role: 'assistant', content: '', reasoning_content: 'Hm.', tool_calls: calls },
          { role: 'tool', tool_call_id: 'c1', content: 'sun' },
        ],
        variables: { enable_thinking: true, tools: [weather] },
      },
    ]);
  });

  it('sends parts of content as parts, and reads them as joined text elsewhere', async () => {
    const engine = model('Sunny.', { chatTemplate: 'plain' });
    const rendered: unknown[] = [];
    const { renderChat } = engine;
    engine.renderChat = (messages, options) => {
      rendered.push(messages);
      return renderChat.call(engine, messages, options);
    };
    const content = [
      { type: 'text', text: 'Rome' },
      { type: 'text', text: '?' },
    ] as const;
    await all(engine.chat({ messages: [{ role: 'user', content }] }));
    const begun = { role: 'assistant', content };
    await all(engine.chat({ messages: [question, begun], continueFinalMessage: true }));
    expect(rendered).toEqual([
      [{ role: 'user', content }],
      [question, { role: 'assistant', content: [content[0], { type: 'text', text: '?CONTINUE_FINAL_MESSAGE_TAG ' }] }],
    ]);
    expect(String(engine.requests[1]!.prompt)).toMatch(/Rome\n\?$/);
  });

  const turns =
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}" +
    '{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}';

  it.each([
    [
      'refuses a system message',
      "{% if messages[0].role == 'system' %}{{ raise_exception('No system role') }}{% endif %}",
    ],
    ['ignores a system message', "{% set messages = messages | rejectattr('role', 'equalto', 'system') | list %}"],
  ])('describes tools in the first message of the user if the template %s', async (_, before) => {
    const engine = model('Sunny.', { chatTemplate: before + turns });
    const template = fittedTemplate(before + turns, { bosToken: '', eosToken: '' });
    engine.renderChat = async (messages, options) => new RenderedPrompt(template.render(messages, options).text);
    const promptOf = (index: number): string => String(engine.requests[index]!.prompt);
    const called = { role: 'assistant', content: '', toolCalls: [{ id: 'c1', name: 'get_weather', arguments: '{}' }] };
    const result = { role: 'tool', toolCallId: 'c1', content: 'sun' };
    await all(engine.chat({ messages: [question, called, result], tools: [weather] }));
    expect(promptOf(0)).toMatch(
      /^\[user\]You may call functions[\s\S]*get_weather[\s\S]*\n\nRome\?\[assistant\]<tool_call>/,
    );
    expect(promptOf(0)).toContain('[user]<tool_response>\nsun');
    await all(engine.chat({ messages: [question] }));
    expect(promptOf(1)).toBe('[user]Rome?');
    const own = { messages: [{ role: 'assistant', content: 'Hello' }, question], tools: [weather] };
    await all(engine.chat(own));
    expect(promptOf(2)).toMatch(/^\[user\]You may call functions[\s\S]*<\/tool_call>\[assistant\]Hello\[user\]Rome\?$/);
  });

  it('reads tags that are control tokens by their ids, not by their text', async () => {
    const control = '[TOOL_CALLS]';
    const answer = `Write ${control} first. ${control}get_weather[ARGS]{"city": "${control}get_weather[ARGS]{}"}`;
    const engine = model(answer, { control });
    const { generate } = engine;
    // The first and the third are spelled with letters.
    engine.generate = async function* (...args) {
      let count = 0;
      for await (const { controls, ...delta } of generate.apply(engine, args)) {
        yield controls !== undefined && ++count === 2 ? { ...delta, controls } : delta;
      }
    };
    const deltas = await all(engine.chat({ ...asking, toolFormat: 'mistral' }));
    expect(deltas.at(-1)!.finish!.message).toMatchObject({
      content: 'Write [TOOL_CALLS] first.',
      toolCalls: [{ name: 'get_weather', arguments: '{"city": "[TOOL_CALLS]get_weather[ARGS]{}"}' }],
    });
  });

  it('keeps control tokens only for formats with tags that are control tokens', async () => {
    const engine = model('[TOOL_CALLS][{"name": "get_weather", "arguments": {}}]', { control: '[TOOL_CALLS]' });
    const deltas = await all(engine.chat({ ...asking, toolFormat: 'mistral' }));
    expect(deltas.at(-1)!.finish!.message.toolCalls).toMatchObject([{ name: 'get_weather', arguments: '{}' }]);
    expect(Object.entries(engine.requests[0]!.params!)).toEqual([['skipSpecialTokens', false]]);
    await all(engine.chat(asking));
    expect(Object.entries(engine.requests[1]!.params!)).toEqual([]);
  });

  it.each([
    [{ messages: 'Rome?' }, 'messages'],
    [{ messages: [] }, 'messages'],
    [{ messages: [null] }, 'messages[0].role'],
    [{ messages: [{ role: 'user' }] }, 'messages[0].content'],
    [{ messages: [question], tools: [{}] }, 'tools[0].function.name'],
    [{ messages: [question], tools: [weather, weather] }, 'tools[1].function.name'],
    [{ messages: [question], tools: [weather], toolChoice: 'perhaps' }, 'toolChoice'],
    [{ messages: [question], params: { temperature: -1 } }, 'temperature'],
  ])('refuses %j', async (request, parameter) => {
    const stream = model('x').chat(request as unknown as ChatRequest);
    await expect(stream.next()).rejects.toMatchObject({ code: 'KVASIR_INVALID_PARAMETER', fields: { parameter } });
  });

  it('frees everything if the reader leaves, at any time, and if the signal aborts', async () => {
    const { engine, scheduler } = toyEngine();
    const request = { messages: [question], params: { maxTokens: 60, ignoreEos: true } };
    await engine.chat(request).return!();
    for await (const delta of engine.chat(request)) {
      expect(delta.finish).toBeUndefined();
      break;
    }
    const reasons: (string | undefined)[] = [];
    const late = new AbortController();
    for await (const { finish } of engine.chat(request, { signal: late.signal })) {
      late.abort();
      reasons.push(finish?.reason);
    }
    const early = await all(engine.chat({ ...request, params: { n: 2 } }, { signal: AbortSignal.abort() }));
    expect(reasons.at(-1)).toBe('abort');
    expect(early.map(({ index, finish }) => [index, finish?.reason])).toEqual([
      [0, 'abort'],
      [1, 'abort'],
    ]);
    await untilIdle(scheduler);
    expect(scheduler.stats().blocks.referenced).toBe(0);
    await engine.close();
    await expect(engine.chat(request).next()).rejects.toMatchObject({ code: 'KVASIR_ENGINE_CLOSED' });
  });
});

describe('llm.chat', () => {
  it('streams the deltas of engine.chat, or resolves to the same messages', async () => {
    await using llm = new OfflineLlm(async () => model(`<think>Hm.</think>${call}`));
    const options = { tools: [weather] };
    const deltas = await all(llm.chat([question], {}, { ...options, stream: true }));
    const outputs = await llm.chat([[question], [question]], {}, options);
    expect(outputs).toHaveLength(2);
    for (const { outputs: answers, prompt } of outputs) {
      expect(answers[0]).toMatchObject({ finishReason: 'tool_calls', text: `<think>Hm.</think>${call}` });
      const withoutIds = ({ toolCalls, ...message }: NonNullable<ChatDelta['finish']>['message']) => ({
        ...message,
        calls: toolCalls.map(({ name, arguments: text }) => [name, text]),
      });
      expect(withoutIds(answers[0]!.message)).toEqual(withoutIds(deltas.at(-1)!.finish!.message));
      expect(prompt).toContain('Rome?');
    }
    expect(() => llm.chat([[question]] as never, {}, { stream: true })).toThrow('several conversations');
  });
});
