import { afterEach, describe, expect, it } from 'vitest';
import { LetterEngine } from '../../../../test/support/letter-engine.ts';
import { Server } from '../../server.ts';

const servers: Server[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) await server.app.close();
});

async function serve() {
  const engine = new LetterEngine();
  const server = new Server(engine, { version: '1', logLevel: 'silent' });
  servers.push(server);
  const origin = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
  const post = async (path: string, body: object) => {
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(origin + path, { method: 'POST', headers, body: JSON.stringify(body) });
    return { status: response.status, headers: response.headers, text: await response.text() };
  };
  return { engine, post };
}

const chat = { messages: [{ role: 'user', content: 'abc' }] };
const foreign = { cache_prompt: true, keep_alive: '5m', options: { num_ctx: 8 }, mirostat: 0, typical_p: null };

describe('fields of other servers', () => {
  it.each([
    ['/v1/completions', { prompt: 'abc' }],
    ['/v1/chat/completions', chat],
  ])('are ignored by %s, with a warning that names them', async (path, body) => {
    const { post } = await serve();
    for (const stream of [false, true]) {
      const { status, headers } = await post(path, { ...body, ...foreign, stream, max_tokens: 2 });
      expect(status).toBe(200);
      expect(headers.get('warning')).toBe('299 kvasir "ignored: keep_alive, options, cache_prompt, mirostat"');
    }
    const { headers } = await post(path, { ...body, max_tokens: 2 });
    expect(headers.get('warning')).toBeNull();
  });

  it('that restrict the output restrict it', async () => {
    const { post, engine } = await serve();
    const grammars = async (fields: object) => {
      const { status, text } = await post('/v1/completions', { prompt: 'abc', max_tokens: 2, ...fields });
      return status === 200 ? engine.requests.at(-1)!.grammar?.key : JSON.parse(text).error.param;
    };
    const gbnf = 'root ::= "a"';
    expect(await grammars({ grammar: gbnf })).toBe(await grammars({ structured_outputs: { grammar: gbnf } }));
    const schema = { const: '42' };
    expect(await grammars({ json_schema: schema })).toBe(await grammars({ structured_outputs: { json: schema } }));
    expect(await grammars({ json_schema: schema })).toEqual(expect.any(String));
    expect(await grammars({ grammar: '' })).toBeUndefined();
    expect(await grammars({ grammar: 5 })).toBe('grammar');
    expect(await grammars({ json_schema: 'x' })).toBe('json_schema');
    expect(await grammars({ json_schema: schema, grammar: gbnf })).toBe('json_schema');
    expect(await grammars({ grammar: gbnf, response_format: { type: 'json_object' } })).toBe('grammar');
  });
});

it('neutral values of OpenAI are accepted', async () => {
  const { post, engine } = await serve();
  const neutral = { ...chat, max_tokens: 2, top_p: 0, top_logprobs: 0 };
  expect((await post('/v1/chat/completions', neutral)).status).toBe(200);
  expect(engine.requests[0]!.params!.topP).toBeLessThan(1e-100);
  expect((await post('/v1/chat/completions', { ...chat, max_completion_tokens: -1 })).status).toBe(400);
});
