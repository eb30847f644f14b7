import { describe, expect, it } from 'vitest';
import { closeServers, serveLetters } from './served-letters.suite.ts';

closeServers();

const model = 'letters';
const input = [
  { role: 'developer', content: 'Be brief.' },
  { role: 'user', content: [{ type: 'input_text', text: 'Rome?' }] },
  { type: 'reasoning', id: 'rs_1', summary: [], content: [{ type: 'reasoning_text', text: 'Hm.' }] },
  { role: 'assistant', content: 'I look.' },
  { type: 'function_call', call_id: 'c1', name: 'get_weather', arguments: '{"city":"Rome"}' },
  { type: 'function_call_output', call_id: 'c1', output: '21' },
] as const;
const kinds = ['message', 'message', 'reasoning', 'message', 'function_call', 'function_call_output'];

describe('the input of a stored response', () => {
  it("is listed by OpenAI's client, page by page, the last item first", async () => {
    const { client } = await serveLetters({ answer: 'Sunny.' });
    const { id } = await client.responses.create({ model, input: input as never });
    const all = [];
    for await (const item of client.responses.inputItems.list(id, { limit: 4 })) all.push(item);
    expect(all.map(({ type }) => type)).toEqual(kinds.toReversed());
    const list = await client.responses.inputItems.list(id, { order: 'asc', include: ['reasoning.encrypted_content'] });
    expect(list.data).toEqual(all.toReversed());
    expect(list.data).toMatchObject([
      { id: expect.stringMatching(/^msg_/), role: 'developer', content: [{ type: 'input_text', text: 'Be brief.' }] },
      { role: 'user', content: [{ type: 'input_text', text: 'Rome?' }] },
      { id: expect.stringMatching(/^rs_/), content: [{ text: 'Hm.' }] },
      { role: 'assistant', content: [{ type: 'output_text', text: 'I look.' }] },
      { call_id: 'c1', name: 'get_weather', arguments: '{"city":"Rome"}' },
      { call_id: 'c1', output: '21' },
    ]);
    expect(list.has_more).toBe(false);
    // What is listed can be sent again.
    expect((await client.responses.create({ model, input: list.data as never })).status).toBe('completed');
  });

  it('is that of the response alone, without the responses before', async () => {
    const { client } = await serveLetters({ answer: 'Sunny.' });
    const first = await client.responses.create({ model, input: 'Rome?' });
    const second = await client.responses.create({ model, input: 'Oslo?', previous_response_id: first.id });
    const { data } = await client.responses.inputItems.list(second.id);
    expect(data).toMatchObject([{ role: 'user', content: [{ text: 'Oslo?' }] }]);
  });

  it.each([
    ['limit=0', 'limit'],
    ['limit=101', 'limit'],
    ['limit=x', 'limit'],
    ['limit=1&limit=2', 'limit'],
    ['order=up', 'order'],
    ['after=msg_1', 'after'],
  ])('is a status 400 with %s', async (query, param) => {
    const { client, origin } = await serveLetters({ answer: 'Sunny.' });
    const { id } = await client.responses.create({ model, input: 'Rome?' });
    const answer = await fetch(`${origin}/v1/responses/${id}/input_items?${query}`);
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ error: { param } });
  });

  it('of an unknown response is a status 404', async () => {
    const { client } = await serveLetters();
    await expect(client.responses.inputItems.list('resp_1')).rejects.toMatchObject({ status: 404 });
  });
});

describe('an earlier answer without content', () => {
  const question = { role: 'user', content: 'Rome?' };
  const next = { role: 'user', content: 'And now?' };
  it.each([
    ['/v1/messages', { max_tokens: 9, messages: [question, { role: 'assistant', content: [] }, next] }],
    ['/v1/messages', { max_tokens: 9, messages: [question, { role: 'assistant', content: '' }, next] }],
    ['/v1/messages', { max_tokens: 9, messages: [question, { role: 'assistant', content: [] }] }],
    ['/v1/messages', { max_tokens: 9, messages: [{ role: 'user', content: [] }] }],
    ['/v1/chat/completions', { messages: [question, { role: 'assistant', content: [] }, next] }],
    ['/v1/chat/completions', { messages: [question, { role: 'assistant', content: null }, next] }],
    ['/v1/chat/completions', { messages: [question, { role: 'assistant' }, next] }],
    ['/v1/responses', { input: [question, { role: 'assistant', content: [] }, next] }],
    ['/v1/responses', { input: [question, { type: 'reasoning', id: 'rs_1', summary: [], content: [] }, next] }],
  ])('is accepted: %s %j', async (path, body) => {
    const { post } = await serveLetters({ answer: 'Sunny.', template: 'plain' });
    expect((await post({ model, ...body }, path)).status).toBe(200);
  });
});
