import { describe, expect, it } from 'vitest';
import { closeServers, serveLetters } from '../responses/served-letters.suite.ts';

/** Endpoints that say what prompt a conversation becomes. */
closeServers();

const messages = [{ role: 'user', content: 'Rome?' }];

describe('/apply-template', () => {
  it('gives the prompt of a chat', async () => {
    const { post, client } = await serveLetters({ answer: 'Sunny.' });
    const { status, body } = await post({ messages, model: 'letters', temperature: 0 }, '/apply-template');
    expect([status, body.prompt]).toEqual([200, expect.stringContaining('Rome?')]);
    const { usage } = await client.chat.completions.create({ model: 'letters', messages: messages as [] });
    const counted = await post({ prompt: body.prompt, add_special_tokens: false }, '/tokenize');
    expect(counted.body.count).toBe(usage!.prompt_tokens);
  });

  it('refuses what a chat refuses', async () => {
    const { post } = await serveLetters();
    expect((await post({ messages: [] }, '/apply-template')).status).toBe(400);
    expect((await post({ messages, model: 'other' }, '/apply-template')).status).toBe(404);
  });
});

describe('input_tokens', () => {
  it('of a chat are the tokens of its prompt', async () => {
    const { post, client } = await serveLetters({ answer: 'Sunny.' });
    const { usage } = await client.chat.completions.create({ model: 'letters', messages: messages as [] });
    const { body } = await post({ messages }, '/v1/chat/completions/input_tokens');
    expect(body).toEqual({ input_tokens: usage!.prompt_tokens });
  });

  it('of a response are the tokens of its prompt, with those of the earlier conversation', async () => {
    const { client } = await serveLetters({ answer: 'Sunny.' });
    const first = await client.responses.create({ model: 'letters', input: 'Rome?', instructions: 'Be brief.' });
    const counted = await client.responses.inputTokens.count({ input: 'Rome?', instructions: 'Be brief.' });
    expect(counted).toMatchObject({ object: 'response.input_tokens', input_tokens: first.usage!.input_tokens });
    const more = { previous_response_id: first.id, input: 'And Oslo?' };
    const next = await client.responses.inputTokens.count(more);
    const second = await client.responses.create({ model: 'letters', ...more });
    expect(next.input_tokens).toBe(second.usage!.input_tokens);
    await expect(client.responses.inputTokens.count({ ...more, previous_response_id: 'resp_x' })).rejects.toThrow(
      /resp_x/,
    );
  });
});

it("endpoints answer without /v1 too, for llama-server's clients", async () => {
  const { post, origin } = await serveLetters({ answer: 'Sunny.' });
  const { body } = await post({ messages }, '/chat/completions');
  expect(body.choices).toMatchObject([{ message: { content: 'Sunny.' } }]);
  for (const path of ['/completions', '/embeddings', '/responses', '/messages', '/chat/completions/input_tokens'])
    expect((await post({}, path)).status).toBe(400);
  const [short, long] = await Promise.all(['', '/v1'].map((prefix) => fetch(`${origin}${prefix}/models/letters`)));
  expect(await short!.json()).toEqual(await long!.json());
  expect((await fetch(`${origin}/tokenizer`)).status).toBe(404);
});
