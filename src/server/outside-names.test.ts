/** Names from outside that every object of JavaScript has, and texts with NUL: names like others, or a status 400. */
import { expect, it } from 'vitest';
import { closeServers, serveLetters } from './apis/responses/served-letters.suite.ts';

closeServers();

const names = ['__proto__', 'constructor', 'toString', 'hasOwnProperty', '__defineGetter__'];
const prompt = { prompt: 'abc', max_tokens: 2 };
const messages = [{ role: 'user', content: 'Rome?' }];

it.each(names)('a field, an option, a model, a tool, an argument and a salt may be called %s', async (name) => {
  const call = `<tool_call>\n{"name": "${name}", "arguments": {"${name}": "Rome"}}\n</tool_call>`;
  const { post, engine } = await serveLetters({ answer: call });
  const properties = JSON.parse(`{"${name}":{"type":"string"}}`) as object;
  const parameters = { type: 'object', properties, required: [name], additionalProperties: false };
  const tools = [{ type: 'function', function: { name, description: 'd', parameters } }];
  const field = JSON.parse(`{"${name}":1}`) as object;

  expect((await post({ ...prompt, cache_salt: name, user: name }, '/v1/completions')).status).toBe(200);
  expect(engine.requests.at(-1)!.cacheSalt).toBe(name);
  const withField = Object.defineProperty({ ...prompt }, name, { value: 1, enumerable: true });
  expect((await post(withField, '/v1/completions')).status).toBe(200);
  expect((await post({ ...prompt, model: name }, '/v1/completions')).status).toBe(404);
  expect((await post({ ...prompt, kv_transfer_params: field }, '/v1/completions')).status).toBe(200);

  const chat = await post({ messages, tools }, '/v1/chat/completions');
  expect(chat.body).toMatchObject({ choices: [{ message: { tool_calls: [{ function: { name } }] } }] });
  const json = JSON.stringify(chat.body);
  expect(json).toContain(`"arguments":"{\\"${name}\\": \\"Rome\\"}"`);

  const ollama = await post({ messages, stream: false, options: field }, '/api/chat');
  expect([ollama.status, ollama.headers.get('warning')]).toEqual([200, expect.stringContaining(`options.${name}`)]);
  const variables = { messages, chat_template_kwargs: field };
  expect((await post(variables, '/v1/chat/completions')).status).toBe(200);
  const grammar = { ...prompt, response_format: { type: 'json_schema', json_schema: { name, schema: parameters } } };
  expect((await post(grammar, '/v1/completions')).status).toBe(200);
  expect(({} as Record<string, unknown>)[`${name}x`]).toBeUndefined();
});

it('a name with NUL is a status 400 that names the field', async () => {
  const { post: open } = await serveLetters();
  const answer = await open({ ...prompt, model: 'a\0b' }, '/v1/completions');
  expect([answer.status, answer.body.error]).toEqual([400, expect.objectContaining({ param: 'model' })]);
  expect((await open({ ...prompt, prompt: 'a\0b' }, '/v1/completions')).status).toBe(200);
});
