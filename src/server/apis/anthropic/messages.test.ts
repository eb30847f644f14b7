import Anthropic from '@anthropic-ai/sdk';
import { describe, expect, it } from 'vitest';
import { closeServers, serveLetters } from '../responses/served-letters.suite.ts';

/** `/v1/messages` by Anthropic's client. */
closeServers();

const model = 'letters';
const max_tokens = 1000;
const user = (content: Anthropic.MessageParam['content']) => ({ role: 'user', content }) as const;
const clientOf = (origin: string, apiKey = 'none') => new Anthropic({ baseURL: origin, apiKey, maxRetries: 0 });
const weather: Anthropic.Tool = {
  name: 'get_weather',
  description: 'The weather of a city.',
  input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  cache_control: { type: 'ephemeral' },
};
const parts = (...texts: string[]) => texts.map((text) => ({ type: 'text', text }));
const call = '<tool_call>{"name":"get_weather","arguments":{"city":"Rome","days":12345678901234567890}}</tool_call>';

async function served(
  options: Parameters<typeof serveLetters>[0] = {},
  server: Parameters<typeof serveLetters>[1] = {},
) {
  const all = await serveLetters(options, server);
  return { ...all, anthropic: clientOf(all.origin) };
}

describe('an answer', () => {
  it('is a message with the usage of the prompt cache', async () => {
    const { anthropic } = await served({ answer: 'Sunny.', stats: { cachedTokens: 4 } });
    const message = await anthropic.messages.create({ model, max_tokens, messages: [user('Rome?')] });
    const { input_tokens, ...usage } = message.usage as unknown as Record<string, number>;
    expect(message).toMatchObject({
      id: expect.stringMatching(/^msg_[0-9a-f]{32}$/),
      type: 'message',
      role: 'assistant',
      model,
      content: [{ type: 'text', text: 'Sunny.', citations: null }],
      stop_reason: 'end_turn',
      stop_sequence: null,
      // Anthropic's schema requires all fields, also those of its own servers.
      stop_details: null,
      container: null,
    });
    expect(usage).toEqual({
      cache_creation_input_tokens: 0,
      cache_read_input_tokens: 4,
      output_tokens: 6,
      cache_creation: null,
      inference_geo: null,
      output_tokens_details: null,
      server_tool_use: null,
      service_tier: 'standard',
    });
    const counted = await anthropic.messages.countTokens({ model, messages: [user('Rome?')] });
    expect(counted.input_tokens).toBe(input_tokens! + 4);
    expect(message._request_id).toMatch(/^req-/);
  });

  it('says why it ended', async () => {
    const { anthropic } = await served({ answer: 'Sunny. Warm.' });
    const cut = await anthropic.messages.create({ model, max_tokens: 3, messages: [user('Rome?')] });
    expect([cut.stop_reason, cut.stop_sequence, cut.content]).toEqual([
      'max_tokens',
      null,
      [{ type: 'text', text: 'Sun', citations: null }],
    ]);
    const stop_sequences = ['Warm'];
    const stopped = await anthropic.messages.create({ model, max_tokens, stop_sequences, messages: [user('Rome?')] });
    expect([stopped.stop_reason, stopped.stop_sequence]).toEqual(['stop_sequence', 'Warm']);
  });

  it('has thoughts, text and calls as blocks, with all digits of numbers', async () => {
    const { origin } = await served({ answer: `<think>Hm.</think>I look.${call}`, template: 'qwen3' });
    const body = { model, max_tokens, tools: [weather], messages: [user('Rome?')] };
    const headers = { 'content-type': 'application/json' };
    const text = await (
      await fetch(`${origin}/v1/messages`, { method: 'POST', headers, body: JSON.stringify(body) })
    ).text();
    expect(text).toContain('"input":{"city":"Rome","days":12345678901234567890}');
    const { content, stop_reason } = JSON.parse(text);
    expect(content).toMatchObject([
      { type: 'thinking', thinking: 'Hm.', signature: expect.stringMatching(/./) },
      { type: 'text', text: 'I look.', citations: null },
      {
        type: 'tool_use',
        id: expect.stringMatching(/./),
        name: 'get_weather',
        input: { city: 'Rome' },
        caller: { type: 'direct' },
      },
    ]);
    expect(stop_reason).toBe('tool_use');
  });

  it('that fills the context says so, as if max_tokens were not given', async () => {
    const { anthropic } = await served({ answer: 'x'.repeat(5000) });
    const { stop_reason, usage } = await anthropic.messages.create({
      model,
      max_tokens: 9000,
      messages: [user('Rome?')],
    });
    expect([stop_reason, usage.input_tokens + usage.output_tokens]).toEqual(['model_context_window_exceeded', 5000]);
  });

  it('of calls that were cut has an empty input', async () => {
    const { anthropic } = await served({ answer: call });
    const cut = { model, max_tokens: call.length - 30, tools: [weather], messages: [user('Rome?')] };
    const { content, stop_reason } = await anthropic.messages.create(cut);
    expect(stop_reason).toBe('max_tokens');
    for (const block of content) if (block.type === 'tool_use') expect(block.input).toEqual({});
  });
});

describe('a stream', () => {
  it('has all types of events, in their order, and gives the same message', async () => {
    const { anthropic } = await served({ answer: `<think>Hm.</think>I look.${call}${call}`, template: 'qwen3' });
    const body = { model, max_tokens, tools: [weather], messages: [user('Rome?')] };
    const types: string[] = [];
    const stream = anthropic.messages.stream(body);
    stream.on('streamEvent', ({ type }) => types.at(-1) !== type && types.push(type));
    const streamed = await stream.finalMessage();
    const block = ['content_block_start', 'content_block_delta', 'content_block_stop'];
    expect(types).toEqual(['message_start', ...block, ...block, ...block, ...block, 'message_delta', 'message_stop']);
    const whole = await anthropic.messages.create(body);
    const withoutIds = ({ content }: Anthropic.Message) => content.map((each) => ({ ...each, id: undefined }));
    expect(withoutIds(streamed)).toEqual(withoutIds(whole));
    expect([streamed.stop_reason, streamed.usage]).toEqual([whole.stop_reason, whole.usage]);
  });

  it('names each event by its type, without [DONE]', async () => {
    const { origin } = await served({ answer: 'Hi' });
    const body = JSON.stringify({ model, max_tokens, stream: true, messages: [user('Rome?')] });
    const headers = { 'content-type': 'application/json' };
    const text = await (await fetch(`${origin}/v1/messages?beta=true`, { method: 'POST', headers, body })).text();
    const events = text.trim().split('\n\n');
    for (const event of events) {
      const [, name, data] = /^event: (\w+)\ndata: (.*)$/.exec(event)!;
      expect(JSON.parse(data!).type).toBe(name);
    }
    expect(events.length).toBeGreaterThan(5);
  });

  it('ends with an error event if the engine fails', async () => {
    const { anthropic } = await served({ answer: 'Sunny.', failAtStep: 3 });
    const stream = anthropic.messages.stream({ model, max_tokens, messages: [user('Rome?')] });
    await expect(stream.finalMessage()).rejects.toThrow(/overloaded_error/);
  });
});

describe('a request', () => {
  it('becomes the messages of a chat', async () => {
    const { anthropic, rendered } = await served({ answer: 'Sunny.' });
    await anthropic.messages.create({
      model,
      max_tokens,
      system: [
        { type: 'text', text: 'x-anthropic-billing-header: cc_version=2.1.0; cch=1f2e3;' },
        { type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } },
      ],
      tools: [weather],
      messages: [
        user([{ type: 'text', text: 'Rome?', cache_control: { type: 'ephemeral' } }]),
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 'Hm.', signature: 'abc' },
            { type: 'redacted_thinking', data: 'gAAA' },
            { type: 'text', text: 'I look.' },
            { type: 'tool_use', id: 'toolu_1', name: 'get_weather', input: { city: 'Rome' } },
          ],
        },
        user([
          {
            type: 'tool_result',
            tool_use_id: 'toolu_1',
            content: [
              { type: 'text', text: '21 degrees' },
              { type: 'tool_reference', tool_name: 'get_forecast' },
            ],
          },
          { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'A guide.' } },
          { type: 'text', text: 'And now?' },
        ]),
      ],
    });
    const called = { id: 'toolu_1', function: { name: 'get_weather', arguments: { city: 'Rome' } } };
    expect(rendered[0]!.messages).toMatchObject([
      { role: 'system', content: parts('Be brief.') },
      { role: 'user', content: parts('Rome?') },
      { role: 'assistant', content: parts('I look.'), reasoning_content: 'Hm.', tool_calls: [called] },
      { role: 'tool', content: parts('21 degrees', 'The tool get_forecast is available.'), tool_call_id: 'toolu_1' },
      { role: 'user', content: parts('A guide.', 'And now?') },
    ]);
  });

  it('with the billing line in a text of Claude Code has the prompt without it', async () => {
    const { anthropic, rendered } = await served({ answer: 'Sunny.' });
    const system = 'x-anthropic-billing-header: cc_version=2.1.0; cch=00000;\nBe brief.';
    await anthropic.messages.create({ model, max_tokens, system, messages: [user('Rome?')] });
    expect(rendered[0]!.messages[0]).toMatchObject({ role: 'system', content: 'Be brief.' });
  });

  it('may require calls, forbid them, or name one', async () => {
    const { anthropic, rendered, engine } = await served({ answer: call });
    const ask = (tool_choice: Anthropic.ToolChoice) =>
      anthropic.messages.create({ model, max_tokens, tools: [weather], tool_choice, messages: [user('Rome?')] });
    for (const type of ['auto', 'any', 'none'] as const) await ask({ type });
    await ask({ type: 'tool', name: 'get_weather', disable_parallel_tool_use: true });
    expect(engine.requests.map(({ grammar }) => grammar !== undefined)).toEqual([false, true, false, true]);
    expect(rendered.map(({ variables }) => (variables as { tools?: unknown[] }).tools?.length ?? 0)).toEqual([
      1, 1, 1, 1,
    ]);
  });

  it('chooses thoughts, effort and a schema', async () => {
    const { anthropic, rendered, engine } = await served({ answer: '{"a":1}' });
    const ask = (fields: object) =>
      anthropic.messages.create({ model, max_tokens, messages: [user('Rome?')], ...fields });
    await ask({ thinking: { type: 'enabled', budget_tokens: 1024 } });
    await ask({ thinking: { type: 'disabled' } });
    await ask({ output_config: { effort: 'low', format: { type: 'json_schema', schema: { type: 'object' } } } });
    expect(rendered.map(({ variables }) => variables)).toMatchObject([
      { enable_thinking: true },
      { enable_thinking: false },
      { reasoning_effort: 'low' },
    ]);
    expect(engine.requests.map(({ grammar }) => grammar !== undefined)).toEqual([false, false, true]);
  });

  it('that ends with an answer is continued', async () => {
    const { anthropic, engine } = await served({ answer: 'Sunny.' });
    await anthropic.messages.create({
      model,
      max_tokens,
      messages: [user('Rome?'), { role: 'assistant', content: 'It is ' }],
    });
    const prompt = engine.detokenize(engine.requests[0]!.prompt as ArrayLike<number>, { skipSpecialTokens: false });
    expect(prompt.endsWith('It is ')).toBe(true);
  });

  it('may have fields of vLLM, and of servers that have more', async () => {
    const { engine, post } = await served({ answer: 'Sunny.' });
    const search = { type: 'web_search_20250305', name: 'web_search', max_uses: 5 };
    const fields = {
      seed: 7,
      min_p: 0.1,
      cache_salt: 'a',
      mcp_servers: [],
      metadata: { user_id: 'u' },
      tools: [search],
    };
    const body = { model, max_tokens, messages: [user('Rome?')], ...fields };
    const { status, headers } = await post(body, '/v1/messages');
    expect([status, headers.get('warning')]).toEqual([
      200,
      '299 kvasir "ignored: mcp_servers, tools[0] (web_search_20250305)"',
    ]);
    expect(engine.requests[0]).toMatchObject({ cacheSalt: 'a', params: { seed: 7n, minP: 0.1 } });
  });

  it.each([
    [{ messages: [] }, 400, 'invalid_request_error', /messages/],
    [{ model: 'other' }, 404, 'not_found_error', /other/],
    [{ messages: [{ role: 'robot', content: 'a' }] }, 400, 'invalid_request_error', /messages\[0\]\.role/],
    [
      { messages: [user([{ type: 'image', source: { type: 'url', url: 'http://x/y.png' } }])] },
      400,
      'invalid_request_error',
      /messages\[0\]\.content\[0\].*"image".*reads text only/,
    ],
    [{ system: [{ type: 'text' }] }, 400, 'invalid_request_error', /system\[0\]\.text/],
    [{ tools: [{ name: 'a' }] }, 400, 'invalid_request_error', /tools\[0\]\.input_schema/],
    [{ tool_choice: { type: 'tool' } }, 400, 'invalid_request_error', /tool_choice\.name/],
    [{ max_tokens: 0 }, 400, 'invalid_request_error', /max_tokens/],
  ])('with %j gets an error in Anthropic’s form', async (fields, status, type, message) => {
    const { post } = await served({});
    const body = { model, max_tokens, messages: [user('Rome?')], ...fields };
    const answer = await post(body, '/v1/messages');
    expect([answer.status, answer.body.type, answer.body.error!.type]).toEqual([status, 'error', type]);
    expect(answer.body.error!.message).toMatch(message);
  });

  it('may not have more blocks than the model reads tokens', async () => {
    const { post } = await served({});
    const blocks = Array.from({ length: 20_001 }, () => ({ type: 'text' as const, text: '' }));
    const answer = await post({ model, max_tokens, messages: [user(blocks)] }, '/v1/messages');
    expect(answer.status).toBe(400);
    expect(answer.body.error!.message).toMatch(/a list with 1 to \d+ messages and blocks in all, got 20001/);
  });

  it('sends its key in x-api-key', async () => {
    const { origin } = await served({ answer: 'Sunny.' }, { apiKey: 'secret' });
    const ask = (key: string) =>
      clientOf(origin, key).messages.create({ model, max_tokens, messages: [user('Rome?')] });
    expect((await ask('secret')).content).toHaveLength(1);
    await expect(ask('wrong')).rejects.toThrow(Anthropic.AuthenticationError);
    await expect(ask('wrong')).rejects.toThrow(/authentication_error/);
  });
});
