import { afterEach, describe, expect, it } from 'vitest';
import { LetterEngine } from '../../test/support/letter-engine.ts';
import { writeExactJson } from '../base/exact-json.ts';
import type { RenderedPrompt } from '../engine/chat/rendered-prompt.ts';
import type { ChatRequest } from '../engine/contract.ts';
import type { Tool } from '../tools/tool.ts';
import { Server, type ServerOptions } from './server.ts';

const servers: Server[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) await server.app.close();
});

const weather = {
  type: 'function',
  function: { name: 'get_weather', description: 'The weather.', parameters: { type: 'object', properties: {} } },
};
const question = { role: 'user', content: 'Rome?' };
const asking = { messages: [question], tools: [weather] };
const call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>';
const templates = {
  hermes: '{% if tools %}<tool_call>{% endif %}{{ tool_calls }}',
  mistral: '{{ tools }}[TOOL_CALLS]',
  ids: '{{ tools }}[TOOL_CALLS][CALL_ID][ARGS]{{ tool_calls }}',
  lfm2: 'List of tools: <|tool_list_start|>[{{ tools }}',
  llama: '{{ tools }}<|python_tag|>',
  unknown: '{{ tools }}<tool_call><invoke name=',
  openai: '{{ tools }}<|channel|>',
  none: '{{ messages }}',
  qwen3: '{% if tools %}<tool_call>{% endif %}{{ content.split("</think>") }}',
};

/** A server of a model that always gives this answer. */
async function serve(
  answer: string,
  template: keyof typeof templates = 'hermes',
  { control, ...options }: Partial<ServerOptions> & { readonly control?: string } = {},
) {
  const chatTemplate = templates[template];
  const engine = new LetterEngine({
    ...{ answer, chatTemplate, maxModelLen: 5000 },
    ...(control === undefined ? {} : { control }),
  });
  const rendered: { messages: unknown; options: unknown }[] = [];
  const { renderChat } = engine;
  engine.renderChat = (messages, given) => {
    rendered.push({ messages, options: given?.variables });
    return renderChat.call(engine, messages, given);
  };
  const server = new Server(engine, { version: '1', logLevel: 'silent', ...options });
  servers.push(server);
  const origin = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
  const post = async (body: object | string, path = '/v1/chat/completions') => {
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(`${origin}${path}`, {
      method: 'POST',
      headers,
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
    return { status: response.status, text: await response.text() };
  };
  const ask = async (body: object) => {
    const { status, text } = await post(body);
    return { status, ...JSON.parse(text) };
  };
  /** The deltas of a stream, put together as clients do it. */
  const stream = async (body: object) => {
    const { text } = await post({ ...body, stream: true });
    const message = { content: '', reasoning: '', calls: [] as { id: string; name: string; arguments: string }[] };
    let reason: string | null = null;
    for (const line of text.split('\n\n').filter((event) => event.startsWith('data: {'))) {
      const [{ delta, finish_reason }] = JSON.parse(line.slice(6)).choices;
      message.content += delta.content ?? '';
      message.reasoning += delta.reasoning_content ?? '';
      for (const piece of delta.tool_calls ?? []) {
        if (piece.id !== undefined) message.calls.push({ id: piece.id, name: piece.function.name, arguments: '' });
        message.calls[piece.index]!.arguments += piece.function.arguments;
      }
      reason = finish_reason;
    }
    return { ...message, reason };
  };
  return { ask, post, stream, rendered, engine };
}

describe('tools', () => {
  it('are shown to the template, and calls are in the answer', async () => {
    const { ask, rendered } = await serve(`I look.\n${call}`);
    const { choices } = await ask(asking);
    expect(choices).toEqual([
      {
        index: 0,
        message: {
          role: 'assistant',
          content: 'I look.',
          refusal: null,
          annotations: [],
          tool_calls: [
            {
              id: expect.stringMatching(/^call_[0-9a-f]{24}$/),
              type: 'function',
              function: { name: 'get_weather', arguments: '{"city": "Rome"}' },
            },
          ],
        },
        logprobs: null,
        finish_reason: 'tool_calls',
        stop_reason: null,
      },
    ]);
    expect(rendered[0]!.options).toEqual({ tools: [weather] });
  });

  it('give streams whose deltas add up to the same answer', async () => {
    const { ask, stream } = await serve(`I look.\n${call}\n${call}`);
    const streamed = await stream(asking);
    const [{ message, finish_reason }] = (await ask(asking)).choices;
    expect(streamed).toMatchObject({ content: message.content, reason: finish_reason, reasoning: '' });
    expect(streamed.calls.map(({ name, arguments: text }) => ({ name, arguments: text }))).toEqual(
      message.tool_calls.map(({ function: called }: { function: object }) => called),
    );
    expect(new Set(streamed.calls.map(({ id }) => id)).size).toBe(2);
  });

  it('with an answer of calls only have no content', async () => {
    const { ask } = await serve(call);
    const [{ message }] = (await ask(asking)).choices;
    expect(message.content).toBeNull();
  });

  it('give one call if calls are not parallel', async () => {
    const { ask, stream } = await serve(`${call}${call}`);
    const single = { ...asking, parallel_tool_calls: false };
    expect((await ask(single)).choices[0].message.tool_calls).toHaveLength(1);
    expect((await stream(single)).calls).toHaveLength(1);
  });

  it.each(['required', 'auto'])('that are cut leave no part of a tag in the answer of any API: %s', async (choice) => {
    const { post } = await serve(`${call}\n${call}`);
    const { name, description, parameters } = weather.function;
    const asked = { model: 'letters', messages: [question] };
    const anthropicChoice = { type: choice === 'required' ? 'any' : choice };
    const anthropicTools = [{ name, description, input_schema: parameters }];
    for (const limit of [call.length - 4, call.length + 8]) {
      const requests: [string, object][] = [
        ['/v1/chat/completions', { ...asking, tool_choice: choice, max_tokens: limit }],
        [
          '/v1/responses',
          {
            input: 'Rome?',
            tools: [{ type: 'function', ...weather.function }],
            tool_choice: choice,
            max_output_tokens: limit,
          },
        ],
        ['/v1/messages', { ...asked, tools: anthropicTools, tool_choice: anthropicChoice, max_tokens: limit }],
        ['/api/chat', { ...asked, tools: [weather], options: { num_predict: limit } }],
      ];
      for (const [path, body] of requests)
        for (const stream of [false, true]) {
          const { status, text } = await post({ ...body, stream }, path);
          expect({ path, stream, status }).toEqual({ path, stream, status: 200 });
          expect(text).toContain('get_weather');
          expect(text).not.toMatch(/<\/?tool/);
        }
    }
  });

  it('keep the reason of an answer that was cut', async () => {
    const { ask } = await serve(call);
    const [{ message, finish_reason }] = (await ask({ ...asking, max_tokens: 60 })).choices;
    expect(finish_reason).toBe('length');
    expect(message.tool_calls[0].function.arguments).toMatch(/^\{"cit/);
  });

  it.each([[{ tools: [] }], [{}]])('are off with %j', async (fields) => {
    const { ask, rendered } = await serve(call);
    const [{ message, finish_reason }] = (await ask({ messages: [question], ...fields })).choices;
    expect(message).toEqual({ role: 'assistant', content: call, refusal: null, annotations: [] });
    expect(finish_reason).toBe('stop');
    expect(rendered[0]!.options).toEqual({});
  });

  it('are forbidden with tool_choice none, and the prompt has the tools as before, so it is cached', async () => {
    const { ask, rendered, engine } = await serve(call);
    const { tokenize } = engine;
    engine.tokenize = (text, options) => (text === '<tool_call>' ? [7] : tokenize.call(engine, text, options));
    const asked = { messages: [question], tools: [weather], logit_bias: { 7: 5, 8: 1 } };
    await ask(asked);
    const [{ message, finish_reason }] = (await ask({ ...asked, tool_choice: 'none' })).choices;
    expect(message).toMatchObject({ content: call });
    expect([message.tool_calls, finish_reason]).toEqual([undefined, 'stop']);
    expect(rendered[1]).toEqual(rendered[0]);
    const [auto, none] = engine.requests;
    expect(none!.prompt).toEqual(auto!.prompt);
    expect(none!.grammar).toBeUndefined();
    // The token that begins calls.
    expect([...(none!.params!.logitBias as Map<number, number>)]).toEqual([
      [7, -10_000],
      [8, 1],
    ]);
    await ask({ messages: [question], tools: [], tool_choice: 'none' });
    expect(engine.requests[2]!.params!.logitBias).toBeUndefined();
  });

  it('and results of earlier calls reach the template', async () => {
    const { ask, rendered } = await serve('Sunny.');
    const earlier = [
      question,
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'c1', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Rome"}' } }],
      },
      { role: 'tool', tool_call_id: 'c1', content: 'sun' },
    ];
    expect((await ask({ messages: earlier, tools: [weather] })).status).toBe(200);
    expect(rendered[0]!.messages).toEqual([
      question,
      {
        role: 'assistant',
        content: '',
        tool_calls: [{ id: 'c1', type: 'function', function: { name: 'get_weather', arguments: { city: 'Rome' } } }],
      },
      { role: 'tool', content: 'sun', tool_call_id: 'c1' },
    ]);
  });

  it('of Mistral have ids of nine letters and digits, and control tokens are kept', async () => {
    const control = '[TOOL_CALLS]';
    const { ask, engine } = await serve(`${control}[{"name": "get_weather", "arguments": {}}]`, 'mistral', { control });
    const [{ message }] = (await ask(asking)).choices;
    expect(message.tool_calls[0].id).toMatch(/^[0-9a-z]{9}$/);
    expect(engine.requests[0]!.params).toMatchObject({ skipSpecialTokens: false });
  });

  it('of gpt-oss: its channels are read without tools too', async () => {
    const answer = '<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.';
    const { ask, stream } = await serve(answer, 'openai');
    const [{ message }] = (await ask({ messages: [question] })).choices;
    expect(message).toEqual({
      role: 'assistant',
      content: 'Yes.',
      refusal: null,
      annotations: [],
      reasoning_content: 'Hm.',
    });
    expect(await stream({ messages: [question] })).toMatchObject({ content: 'Yes.', reasoning: 'Hm.', reason: 'stop' });
  });

  it('are content if the answer has the name of another tool, or no arguments', async () => {
    const schema = { type: 'object', properties: { name: { type: 'string' }, age: { type: 'integer' } } };
    const response_format = { type: 'json_schema', json_schema: { name: 'person', schema } };
    for (const answer of ['{"name":"Bob","age":3}', '{"name": "get_weather", "age": 3}']) {
      const { ask, stream } = await serve(answer, 'llama');
      const [{ message, finish_reason }] = (await ask({ ...asking, response_format })).choices;
      expect([message.content, message.tool_calls, finish_reason]).toEqual([answer, undefined, 'stop']);
      expect(await stream({ ...asking, response_format })).toMatchObject({
        content: answer,
        calls: [],
        reason: 'stop',
      });
    }
  });

  it('keep the digits of numbers and the order of names, in calls and in schemas', async () => {
    const { post, rendered } = await serve('Sunny.');
    const text = '{"id":1234567890123456789,"10":1.0,"2":{}}';
    const parameters = '{"type":"object","properties":{"b":{"const":9007199254740993},"10":{}}}';
    const calls = `[{"id":"c","type":"function","function":{"name":"f","arguments":${JSON.stringify(text)}}}]`;
    const messages = `[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":${calls}}]`;
    const tools = `[{"type":"function","function":{"name":"f","parameters":${parameters}}}]`;
    expect((await post(`{"messages":${messages},"tools":${tools}}`)).status).toBe(200);
    const [{ messages: shown, options }] = rendered as [{ messages: unknown; options: unknown }];
    expect(writeExactJson(shown)).toContain(`"arguments":${text}`);
    expect(writeExactJson(options)).toContain(parameters);
  });

  it('of earlier answers have limits: deep lists are refused at once', async () => {
    const { ask } = await serve('Sunny.');
    const called = { name: 'f', arguments: '['.repeat(3_000_000) };
    const messages = [{ role: 'assistant', content: null, tool_calls: [{ id: 'c', function: called }] }];
    const { status, error } = await ask({ messages });
    expect([status, error.param]).toEqual([400, 'messages[0].tool_calls[0].function.arguments']);
    expect(error.message).toContain('more than 64 nested levels');
  });

  it('of Mistral keep the ids of the model, if they are new', async () => {
    const written = '[TOOL_CALLS]get_weather[CALL_ID]abcdef123[ARGS]{}';
    const { ask } = await serve(written + written, 'ids');
    const [{ message }] = (await ask(asking)).choices;
    const [first, second] = message.tool_calls.map(({ id }: { id: string }) => id);
    expect(first).toBe('abcdef123');
    expect(second).toMatch(/^[0-9a-f]{9}$/);
    const again = (await ask({ ...asking, messages: [{ role: 'user', content: 'abcdef123' }] })).choices[0];
    expect(again.message.tool_calls[0].id).not.toBe('abcdef123');
  });

  it('in a format that is not known are logged once', async () => {
    const lines: string[] = [];
    const { ask } = await serve(call, 'unknown', {
      logLevel: 'warn',
      logDestination: { write: (line) => lines.push(line) },
    });
    expect((await ask(asking)).choices[0].message.tool_calls).toHaveLength(1);
    await ask(asking);
    expect(lines).toEqual([expect.stringContaining('the chat template shows tools in a format that is not known')]);
    await serve(call, 'hermes', { logLevel: 'warn', logDestination: { write: (line) => lines.push(line) } });
    expect(lines).toHaveLength(1);
  });

  it('are read in the format that the server was started with', async () => {
    const { ask } = await serve('{"name": "get_weather", "parameters": {}}', 'hermes', { toolFormat: 'llama3_json' });
    expect((await ask(asking)).choices[0].message.tool_calls).toHaveLength(1);
  });
});

describe('a chat', () => {
  const named = { type: 'function', function: { name: 'get_weather' } };
  const schema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
  const begun = { role: 'assistant', content: 'In Rome' };
  const format = { type: 'json_schema', json_schema: { name: 'place', schema } };
  type Case = readonly [
    name: string,
    template: keyof typeof templates,
    api: object,
    library: Omit<ChatRequest, 'messages'>,
  ];
  const tools = [weather] as unknown as Tool[];
  const cases: readonly Case[] = [
    ['without tools', 'hermes', {}, {}],
    ['with tools', 'hermes', { tools }, { tools }],
    ['with tools that the template cannot show', 'none', { tools }, { tools }],
    ['with calls in control tokens', 'mistral', { tools }, { tools }],
    ['with required calls', 'hermes', { tools, tool_choice: 'required' }, { tools, toolChoice: 'required' }],
    ['with a named call', 'lfm2', { tools, tool_choice: named }, { tools, toolChoice: { name: 'get_weather' } }],
    ['with forbidden calls', 'hermes', { tools, tool_choice: 'none' }, { tools, toolChoice: 'none' }],
    ['with a schema', 'qwen3', { response_format: format }, { params: { structuredOutputs: { json: schema } } }],
    ['with an effort', 'hermes', { reasoning_effort: 'low' }, { variables: { reasoning_effort: 'low' } }],
    ['that goes on', 'openai', { continue_final_message: true }, { continueFinalMessage: true }],
    ['with parameters', 'hermes', { top_k: -1, seed: 7, stop: 'x' }, { params: { topK: -1, seed: 7, stop: 'x' } }],
  ];

  it.each(cases)('%s is the same request from the library and over HTTP', async (name, template, api, library) => {
    const { ask, rendered, engine } = await serve(call, template);
    const messages = 'continueFinalMessage' in library ? [question, begun] : [question];
    expect((await ask({ ...api, messages })).status).toBe(200);
    for await (const _ of engine.chat({ ...library, messages }));
    const [overHttp, own] = engine.requests;
    expect(engine.tokenize(own!.prompt as RenderedPrompt)).toEqual(Array.from(overHttp!.prompt as Int32Array));
    const { maxTokens: _rest, ...params } = overHttp!.params!;
    const { structuredOutputs: _composed, ...others } = own!.params!;
    expect(others).toEqual(params);
    expect(own!.grammar?.key).toBe(overHttp!.grammar?.key);
    expect(own!.grammar !== undefined).toBe(/schema|required|named/.test(name));
    expect(rendered.slice(rendered.length / 2)).toEqual(rendered.slice(0, rendered.length / 2));
  });
});

describe('thoughts of a model', () => {
  const answer = `<think>\nHm.\n</think>\n\nYes.\n${call}`;

  it('are apart from the content, with and without tools', async () => {
    const { ask, stream } = await serve(answer, 'qwen3');
    const [{ message }] = (await ask(asking)).choices;
    expect(message).toMatchObject({ content: 'Yes.', reasoning_content: '\nHm.\n' });
    expect(message.tool_calls).toHaveLength(1);
    expect(await stream(asking)).toMatchObject({ content: 'Yes.', reasoning: '\nHm.\n', reason: 'tool_calls' });
    const [plain] = (await ask({ messages: [question] })).choices;
    expect(plain.message).toMatchObject({ content: `Yes.\n${call}`, reasoning_content: '\nHm.\n' });
  });

  it('are content if the server was started so, or if the template has none', async () => {
    const off = await serve('<think>Hm.</think>Yes.', 'qwen3', { reasoningFormat: 'none' });
    expect((await off.ask({ messages: [question] })).choices[0].message.content).toBe('<think>Hm.</think>Yes.');
    const other = await serve('<think>Hm.</think>Yes.', 'hermes');
    expect((await other.ask({ messages: [question] })).choices[0].message.content).toBe('<think>Hm.</think>Yes.');
  });

  it('begin every answer with deepseek_r1', async () => {
    const { ask } = await serve('Hm.</think>Yes.', 'none', { reasoningFormat: 'deepseek_r1' });
    const [{ message }] = (await ask({ messages: [question] })).choices;
    expect(message).toMatchObject({ content: 'Yes.', reasoning_content: 'Hm.' });
  });

  it('have an effort that the template reads', async () => {
    const { ask, rendered } = await serve('Yes.');
    await ask({ messages: [question], reasoning_effort: 'low' });
    await ask({ messages: [question], reasoning_effort: 'none', chat_template_kwargs: { a: 1 } });
    expect(rendered.map(({ options }) => options)).toEqual([
      { reasoning_effort: 'low' },
      { enable_thinking: false, a: 1 },
    ]);
    expect((await ask({ messages: [question], reasoning_effort: 'much' })).error.message).toMatch(/one of none/);
  });
});
