import { expect, it } from 'vitest';
import { closeServers, serveLetters } from './apis/responses/served-letters.suite.ts';

closeServers();

it('a model whose name has * answers to agents by their own names, under its own', async () => {
  const { post, origin } = await serveLetters({ answer: 'Sunny.', aliases: ['other', 'claude-*', 'gpt-*'] });
  const messages = [{ role: 'user', content: 'Rome?' }];
  const requests: readonly (readonly [path: string, model: string, body: object])[] = [
    ['/v1/messages', 'claude-opus-5-20260801', { messages, max_tokens: 9 }],
    ['/v1/chat/completions', 'gpt-5.6', { messages }],
    ['/v1/responses', 'gpt-5.6-codex', { input: 'Rome?' }],
    ['/v1/completions', 'claude-', { prompt: 'a', max_tokens: 1 }],
  ];
  for (const [path, model, body] of requests) {
    const answer = await post({ ...body, model }, path);
    expect([answer.status, answer.body.model]).toEqual([200, 'letters']);
  }
  expect((await post({ messages, model: 'gemini-3' }, '/v1/chat/completions')).status).toBe(404);
  const list = await (await fetch(`${origin}/v1/models`)).json();
  expect(list).toMatchObject({ data: [{ id: 'letters' }, { id: 'other' }] });
  expect(JSON.stringify(list)).not.toContain('*');
  // Anthropic's client asks what an alias means.
  expect(await (await fetch(`${origin}/v1/models/claude-opus-5`)).json()).toMatchObject({ id: 'letters' });
  expect((await fetch(`${origin}/v1/models/gemini-3`)).status).toBe(404);
});
