import type OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createEngine } from '../../src/compose.ts';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import { serveEngine } from '../support/served-model.ts';

/** The bundled model, the real engine and OpenAI's client for responses, over real sockets. */
const model = 'kvasir-demo';

let engine: AsyncEngine;
let close: () => Promise<void>;
let client: OpenAI;

beforeAll(async () => {
  engine = await createEngine({ model: 'models/kvasir-demo.gguf', kvCacheMemory: 64 * 1024 ** 2, threads: 1 });
  ({ client, close } = await serveEngine(engine));
});
afterAll(async () => {
  await close();
  await engine.close();
});

const input = 'Tell me a story about a fox.';
const greedy = { model, temperature: 0, max_output_tokens: 40 } as const;

describe('/v1/responses', () => {
  it('gives the text of the chat with the same messages', async () => {
    const response = await client.responses.create({ ...greedy, input, instructions: 'You tell stories.' });
    const messages = [
      { role: 'system', content: 'You tell stories.' } as const,
      { role: 'user', content: input } as const,
    ];
    const chat = await client.chat.completions.create({ model, temperature: 0, max_tokens: 40, messages });
    expect(response.output_text).toBe(chat.choices[0]!.message.content);
    expect(response.output_text.length).toBeGreaterThan(40);
    expect(response.usage).toMatchObject({ input_tokens: chat.usage!.prompt_tokens, output_tokens: 40 });
  });

  it('gives the same text with and without streaming, and typed events', async () => {
    const whole = await client.responses.create({ ...greedy, input });
    const stream = client.responses.stream({ ...greedy, input });
    let text = '';
    let deltas = 0;
    for await (const event of stream) {
      if (event.type !== 'response.output_text.delta') continue;
      text += event.delta;
      deltas++;
    }
    const final = await stream.finalResponse();
    expect(text).toBe(whole.output_text);
    expect(final.output_text).toBe(whole.output_text);
    expect(final).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } });
    expect(deltas).toBeGreaterThan(10);
  });

  it('continues a stored response from its KV, with the text of the whole conversation', async () => {
    const first = await client.responses.create({ ...greedy, input });
    const next = 'And a story about a bear.';
    const continued = await client.responses.create({ ...greedy, input: next, previous_response_id: first.id });
    const whole = await client.responses.create({
      ...greedy,
      store: false,
      input: [
        { role: 'user', content: input },
        { role: 'assistant', content: first.output_text },
        { role: 'user', content: next },
      ],
    });
    expect(continued.output_text).toBe(whole.output_text);
    expect(continued.usage!.input_tokens).toBe(whole.usage!.input_tokens);
    expect(continued.usage!.input_tokens_details.cached_tokens).toBeGreaterThan(first.usage!.input_tokens / 2);
  });

  it('returns logprobs of the tokens of the text', async () => {
    const include = ['message.output_text.logprobs' as const];
    const response = await client.responses.create({ ...greedy, input, top_logprobs: 2, include });
    const [{ content }] = response.output as [OpenAI.Responses.ResponseOutputMessage];
    const [{ logprobs, text }] = content as [OpenAI.Responses.ResponseOutputText];
    expect(logprobs!.map(({ token }) => token).join('')).toBe(text);
    for (const { top_logprobs } of logprobs!) expect(top_logprobs).toHaveLength(2);
  });

  it('writes JSON that matches the schema of `text.format`', async () => {
    const properties = { animal: { enum: ['fox', 'bear'] }, legs: { type: 'integer', minimum: 0, maximum: 9 } };
    const schema = { type: 'object', properties, required: ['animal', 'legs'], additionalProperties: false };
    const format = { type: 'json_schema' as const, name: 'animal', schema, strict: true };
    const response = await client.responses.create({ model, temperature: 0, input, text: { format } });
    expect(JSON.parse(response.output_text)).toEqual({
      animal: expect.stringMatching(/^(fox|bear)$/),
      legs: expect.any(Number),
    });
    expect(response).toMatchObject({ status: 'completed', text: { format } });
  });

  it('calls a function if a call is required', async () => {
    const parameters = { type: 'object', properties: { legs: { type: 'integer' } }, required: ['legs'] };
    const tools = [{ type: 'function' as const, name: 'count_legs', parameters, strict: true }];
    const body = { ...greedy, max_output_tokens: 200, input, tools, tool_choice: 'required' as const };
    const { output } = await client.responses.create({ ...body, parallel_tool_calls: false });
    expect(output).toMatchObject([{ type: 'function_call', name: 'count_legs', status: 'completed' }]);
    const [{ arguments: text }] = output as [OpenAI.Responses.ResponseFunctionToolCall];
    expect(JSON.parse(text)).toEqual({ legs: expect.any(Number) });
  });

  it('is generated in the background, and cancelled there', async () => {
    const long = { model, input, background: true, max_output_tokens: 8000, ignore_eos: true } as never;
    const { id } = await client.responses.create(long);
    expect(await client.responses.cancel(id)).toMatchObject({ status: 'cancelled' });
    const short = await client.responses.create({ ...greedy, input, background: true });
    let response = short;
    while (response.status === 'queued' || response.status === 'in_progress') {
      response = await client.responses.retrieve(short.id);
    }
    expect(response.output_text).toBe((await client.responses.create({ ...greedy, input })).output_text);
    expect(engine.stats().running).toBe(0);
  });
});
