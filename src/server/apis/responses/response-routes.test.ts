import type OpenAI from 'openai';
import { describe, expect, it } from 'vitest';
import { closeServers, serveLetters } from './served-letters.suite.ts';

type Event = OpenAI.Responses.ResponseStreamEvent;
type Created = OpenAI.Responses.Response;

closeServers();

const model = 'letters';
const weather = {
  type: 'function',
  name: 'get_weather',
  description: 'The weather.',
  parameters: { type: 'object', properties: {} },
  strict: true,
} as const;
const call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>';

async function eventsOf(stream: AsyncIterable<Event>): Promise<Event[]> {
  const events: Event[] = [];
  for await (const event of stream) events.push(event);
  return events;
}

/** The types of events, each repetition once. */
const typesOf = (events: readonly Event[]): string[] =>
  events.map(({ type }) => type.replace('response.', '')).filter((type, i, all) => type !== all[i - 1]);

describe('POST /v1/responses', () => {
  it('answers in the format of OpenAI', async () => {
    const { client } = await serveLetters({ answer: 'Sunny.' });
    const response = await client.responses.create({ model, input: 'Rome?', instructions: 'Be brief.' });
    expect(response).toEqual({
      id: expect.stringMatching(/^resp_[0-9a-f]{32}$/),
      object: 'response',
      created_at: expect.any(Number),
      completed_at: expect.any(Number),
      model,
      status: 'completed',
      error: null,
      incomplete_details: null,
      output: [
        {
          type: 'message',
          id: expect.stringMatching(/^msg_[0-9a-f]{32}$/),
          status: 'completed',
          role: 'assistant',
          content: [{ type: 'output_text', text: 'Sunny.', annotations: [], logprobs: [] }],
        },
      ],
      output_text: 'Sunny.',
      usage: {
        input_tokens: expect.any(Number),
        input_tokens_details: { cached_tokens: 0 },
        output_tokens: 6,
        output_tokens_details: { reasoning_tokens: 0 },
        total_tokens: response.usage!.input_tokens + 6,
      },
      background: false,
      instructions: 'Be brief.',
      max_output_tokens: null,
      max_tool_calls: null,
      metadata: {},
      parallel_tool_calls: true,
      previous_response_id: null,
      prompt_cache_key: null,
      reasoning: { effort: null, summary: null },
      safety_identifier: null,
      service_tier: 'default',
      store: true,
      temperature: 1,
      text: { format: { type: 'text' } },
      tool_choice: 'auto',
      tools: [],
      top_logprobs: 0,
      presence_penalty: 0,
      frequency_penalty: 0,
      top_p: 1,
      truncation: 'disabled',
      user: null,
    });
  });

  it('repeats the fields of the request', async () => {
    const { client, engine } = await serveLetters({ answer: 'Sunny.' });
    const asked = {
      max_output_tokens: 4,
      max_tool_calls: 3,
      metadata: { topic: 'weather' },
      parallel_tool_calls: false,
      prompt_cache_key: 'key',
      reasoning: { effort: 'low' },
      safety_identifier: 'me',
      temperature: 0,
      tools: [weather],
      tool_choice: 'none',
      top_p: 0,
      truncation: 'auto',
      user: 'I',
      store: false,
    } as const;
    const response = await client.responses.create({ model, input: 'Rome?', ...asked, seed: 7 } as never);
    expect(response).toMatchObject({ ...asked, reasoning: { effort: 'low', summary: null } });
    expect(response).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } });
    expect(response).toMatchObject({ output: [{ status: 'incomplete', content: [{ text: 'Sunn' }] }] });
    expect(engine.requests[0]!.params).toMatchObject({ temperature: 0, maxTokens: 4, topP: 1e-300, seed: 7n });
  });

  it('reads items of every type', async () => {
    const { client, rendered } = await serveLetters({ answer: 'Sunny.' });
    await client.responses.create({
      model,
      instructions: 'Be brief.',
      tools: [weather],
      input: [
        { role: 'developer', content: 'Be kind.' },
        {
          role: 'user',
          content: [
            { type: 'input_text', text: 'Rome?' },
            { type: 'input_text', text: 'Today?' },
          ],
        },
        { type: 'reasoning', id: 'rs_1', summary: [], content: [{ type: 'reasoning_text', text: 'Hm.' }] },
        {
          type: 'message',
          id: 'msg_1',
          role: 'assistant',
          status: 'completed',
          content: [{ type: 'output_text', text: 'I look.', annotations: [] }],
        },
        { type: 'function_call', call_id: 'c1', name: 'get_weather', arguments: '{"city":"Rome"}' },
        { type: 'function_call', call_id: 'c2', name: 'get_weather', arguments: '' },
        { type: 'function_call_output', call_id: 'c1', output: 'sun' },
        { type: 'function_call_output', call_id: 'c2', output: [{ type: 'input_text', text: 'rain' }] },
        { role: 'assistant', content: [{ type: 'refusal', refusal: 'No.' }] as never },
        { role: 'user', content: '' },
      ],
    });
    const called = { name: 'get_weather', arguments: { city: 'Rome' } };
    expect(rendered[0]!.messages).toEqual([
      { role: 'system', content: 'Be brief.' },
      { role: 'system', content: 'Be kind.' },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'Rome?' },
          { type: 'text', text: 'Today?' },
        ],
      },
      {
        role: 'assistant',
        content: 'I look.',
        reasoning_content: 'Hm.',
        tool_calls: [
          { id: 'c1', type: 'function', function: called },
          { id: 'c2', type: 'function', function: { ...called, arguments: {} } },
        ],
      },
      { role: 'tool', tool_call_id: 'c1', content: 'sun' },
      { role: 'tool', tool_call_id: 'c2', content: 'rain' },
      { role: 'assistant', content: 'No.' },
      { role: 'user', content: '' },
    ]);
    const { strict, type, ...described } = weather;
    expect(rendered[0]!.variables).toEqual({ tools: [{ type, function: described }] });
    expect(strict).toBe(true);
  });

  it('gives calls of functions, and only the first if they are not parallel', async () => {
    const { client } = await serveLetters({ answer: `I look.\n${call}${call}` });
    const body = { model, input: 'Rome?', tools: [weather] };
    const { output } = await client.responses.create(body);
    expect(output.map(({ type }) => type)).toEqual(['message', 'function_call', 'function_call']);
    expect(output[1]).toEqual({
      type: 'function_call',
      id: expect.stringMatching(/^fc_/),
      status: 'completed',
      call_id: expect.stringMatching(/^call_[0-9a-f]{24}$/),
      name: 'get_weather',
      arguments: '{"city": "Rome"}',
    });
    const single = await client.responses.create({ ...body, parallel_tool_calls: false });
    expect(single.output.map(({ type }) => type)).toEqual(['message', 'function_call']);
  });

  it('shows only allowed tools to the model', async () => {
    const { client, rendered } = await serveLetters({ answer: 'Sunny.' });
    const other = { ...weather, name: 'other', description: null };
    const tool_choice = {
      type: 'allowed_tools' as const,
      mode: 'auto' as const,
      tools: [{ type: 'function', name: 'other' }],
    };
    const response = await client.responses.create({ model, input: 'Rome?', tools: [weather, other], tool_choice });
    const { parameters } = weather;
    expect(rendered[0]!.variables).toEqual({ tools: [{ type: 'function', function: { name: 'other', parameters } }] });
    expect(response.tool_choice).toEqual(tool_choice);
  });

  it('gives reasoning as an item, and counts its tokens', async () => {
    const { client, rendered } = await serveLetters({ answer: '<think>Hm.</think>Yes.', template: 'qwen3' });
    const response = await client.responses.create({ model, input: 'Rome?', reasoning: { effort: 'high' } });
    expect(response.output).toMatchObject([
      { type: 'reasoning', summary: [], content: [{ type: 'reasoning_text', text: 'Hm.' }] },
      { type: 'message', content: [{ text: 'Yes.' }] },
    ]);
    const { output_tokens, output_tokens_details } = response.usage!;
    expect(output_tokens).toBe(22);
    // The tags come and go with the reasoning: their tokens are no content.
    expect(output_tokens_details.reasoning_tokens).toBeGreaterThanOrEqual(3);
    expect(output_tokens_details.reasoning_tokens).toBeLessThanOrEqual(18);
    expect(rendered[0]!.variables).toEqual({ reasoning_effort: 'high' });
  });

  it('gives logprobs of the content if they are requested', async () => {
    const { client } = await serveLetters({ answer: 'Sun' });
    const body = { model, input: 'Rome?', top_logprobs: 2, include: ['message.output_text.logprobs'] } as const;
    const { output } = await client.responses.create({ ...body, include: [...body.include] });
    const [{ content }] = output as [OpenAI.Responses.ResponseOutputMessage];
    const [{ logprobs }] = content as [OpenAI.Responses.ResponseOutputText];
    expect(logprobs!.map(({ token }) => token).join('')).toBe('Sun');
    expect(logprobs![0]).toEqual({
      token: 'S',
      logprob: -0.5,
      bytes: [83],
      top_logprobs: [
        { token: 'S', logprob: -0.5, bytes: [83] },
        { token: 'T', logprob: -1.5, bytes: [84] },
      ],
    });
  });

  it('names fields without effect in the header `warning`', async () => {
    const { post } = await serveLetters({ answer: 'Sunny.' });
    const include = ['reasoning.encrypted_content', 'web_search_call.results'];
    const { headers } = await post({ input: 'Rome?', reasoning: { summary: 'auto' }, include, keep_alive: 1 });
    expect(headers.get('warning')).toBe(
      '299 kvasir "ignored: reasoning.summary, include: reasoning.encrypted_content, keep_alive"',
    );
  });

  it('has an empty message if the model says nothing', async () => {
    const { client } = await serveLetters({ answer: '<think></think>', template: 'qwen3' });
    const { output, output_text } = await client.responses.create({ model, input: 'Rome?' });
    expect(output_text).toBe('');
    expect(output).toMatchObject([{ type: 'message', content: [{ text: '' }] }]);
  });

  it('removes the oldest turns if `truncation` is auto', async () => {
    const { client, rendered } = await serveLetters({ answer: 'Sunny.', maxModelLen: 400 });
    const turns = Array.from({ length: 20 }, (_, i) => [
      { role: 'user', content: `question ${i}` } as const,
      { role: 'assistant', content: `answer ${i}` } as const,
    ]).flat();
    const input = [
      { role: 'system', content: 'Be brief.' } as const,
      ...turns,
      { role: 'user', content: 'Rome?' } as const,
    ];
    await expect(client.responses.create({ model, input })).rejects.toMatchObject({ code: 'context_length_exceeded' });
    rendered.length = 0;
    const response = await client.responses.create({ model, input, truncation: 'auto' });
    expect(response.output_text).toBe('Sunny.');
    const fitting = rendered.map(({ messages }) => messages).filter((messages) => messages.length < 20);
    const [system, first] = fitting.at(-1)!;
    expect(system).toEqual({ role: 'system', content: 'Be brief.' });
    expect(first!.role).toBe('user');
    const tooLong = [...input, { role: 'user', content: 'x'.repeat(500) } as const];
    await expect(client.responses.create({ model, input: tooLong, truncation: 'auto' })).rejects.toMatchObject({
      code: 'context_length_exceeded',
    });
  });
});

describe('a streamed response', () => {
  it('has all events of a text in their order', async () => {
    const { client } = await serveLetters({ answer: 'Sunny.' });
    const events = await eventsOf(await client.responses.create({ model, input: 'Rome?', stream: true }));
    expect(typesOf(events)).toEqual([
      'created',
      'in_progress',
      'output_item.added',
      'content_part.added',
      'output_text.delta',
      'output_text.done',
      'content_part.done',
      'output_item.done',
      'completed',
    ]);
    expect(events.map(({ sequence_number }) => sequence_number)).toEqual(events.map((_, i) => i));
  });

  it('has the types of events also as names of server-sent events', async () => {
    const { origin } = await serveLetters({ answer: 'S' });
    const body = JSON.stringify({ input: 'Rome?', stream: true });
    const headers = { 'content-type': 'application/json' };
    const text = await (await fetch(`${origin}/v1/responses`, { method: 'POST', headers, body })).text();
    const events = text.trim().split('\n\n');
    for (const event of events) {
      const [, name, data] = /^event: (.+)\ndata: (.+)$/.exec(event)!;
      expect(JSON.parse(data!).type).toBe(name);
    }
    expect(events).toHaveLength(9);
  });

  it('has reasoning, content and calls, each in its item', async () => {
    const { client } = await serveLetters({ answer: `<think>Hm.</think>I look.\n${call}`, template: 'qwen3' });
    const events = await eventsOf(
      await client.responses.create({ model, input: 'Rome?', tools: [weather], stream: true }),
    );
    expect(typesOf(events)).toEqual([
      ...['created', 'in_progress'],
      ...[
        'output_item.added',
        'content_part.added',
        'reasoning_text.delta',
        'reasoning_text.done',
        'content_part.done',
      ],
      ...['output_item.done', 'output_item.added', 'content_part.added', 'output_text.delta', 'output_text.done'],
      ...['content_part.done', 'output_item.done', 'output_item.added', 'function_call_arguments.delta'],
      ...['function_call_arguments.done', 'output_item.done', 'completed'],
    ]);
  });

  it("gives OpenAI's stream helper the response that a request without streaming has", async () => {
    const { client } = await serveLetters({ answer: `<think>Hm.</think>I look.\n${call}${call}`, template: 'qwen3' });
    const body = { model, input: 'Rome?', tools: [weather] };
    const seen: string[] = [];
    const stream = client.responses.stream(body);
    stream.on('response.output_text.delta', ({ snapshot }) => seen.push(snapshot));
    const streamed = await stream.finalResponse();
    const whole = await client.responses.create(body);
    expect(seen.at(-1)).toBe('I look.');
    const comparable = ({ output, output_text, usage, status }: Created) => ({
      output: output.map((item) => ({
        ...item,
        id: '',
        call_id: '',
        parsed_arguments: null,
        content: contentOf(item),
      })),
      output_text,
      usage,
      status,
    });
    expect(comparable(streamed)).toEqual(comparable(whole));
    expect(whole.output.map(({ type }) => type)).toEqual(['reasoning', 'message', 'function_call', 'function_call']);
  });

  it('that its length ends is incomplete', async () => {
    const { client } = await serveLetters({ answer: call });
    const events = await eventsOf(
      await client.responses.create({ model, input: 'Rome?', tools: [weather], max_output_tokens: 60, stream: true }),
    );
    const last = events.at(-1) as OpenAI.Responses.ResponseIncompleteEvent;
    expect(last.type).toBe('response.incomplete');
    expect(last.response).toMatchObject({
      status: 'incomplete',
      incomplete_details: { reason: 'max_output_tokens' },
      completed_at: null,
      output: [{ type: 'function_call', status: 'incomplete', arguments: expect.stringMatching(/^\{"cit/) }],
    });
  });

  it('that fails after its first event ends with `response.failed`', async () => {
    const { client } = await serveLetters({ failAtStep: 3 });
    const events = await eventsOf(await client.responses.create({ model, input: 'Rome?', stream: true }));
    const last = events.at(-1) as OpenAI.Responses.ResponseFailedEvent;
    expect(last.type).toBe('response.failed');
    expect(last.response).toMatchObject({
      status: 'failed',
      error: { code: 'server_error', message: expect.stringContaining('Send the request again') },
      output: [{ status: 'incomplete' }],
    });
    expect(await client.responses.retrieve(last.response.id)).toMatchObject({ status: 'failed' });
  });

  it('that fails before its first event is an HTTP error', async () => {
    const { client } = await serveLetters({ failAtStep: 1 });
    for (const stream of [true, false]) {
      await expect(client.responses.create({ model, input: 'Rome?', stream })).rejects.toMatchObject({ status: 503 });
    }
  });
});

/** The parsed content has an extra field in the helper's result. */
function contentOf(item: OpenAI.Responses.ResponseOutputItem): unknown {
  if (item.type !== 'message') return item.type === 'reasoning' ? item.content : undefined;
  return item.content.map((part) => ({ ...part, parsed: null }));
}
