/** API keys, web pages of other origins, and the root path. */
import { afterEach, describe, expect, it } from 'vitest';
import { LetterEngine } from '../../test/support/letter-engine.ts';
import { Server } from './server.ts';
import type { ServerOptions } from './server-options.ts';

const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

async function serve(options: Partial<ServerOptions>): Promise<string> {
  const server = new Server(new LetterEngine(), { version: '0.0.0', logLevel: 'silent', ...options });
  closers.push(() => server.app.close());
  return `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
}

describe('several API keys', () => {
  it('are all allowed, and no others', async () => {
    const url = await serve({ apiKey: ['first', 'second'] });
    const statusWith = async (key: string) =>
      (await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${key}` } })).status;
    const statuses = await Promise.all(['first', 'second', 'third', 'firs', 'firstsecond'].map(statusWith));
    expect(statuses).toEqual([200, 200, 401, 401, 401]);
  });
});

describe('a web page of another origin', () => {
  const page = 'https://example.com';
  const question = { method: 'OPTIONS', headers: { origin: page, 'access-control-request-method': 'POST' } };

  it('may read answers and errors of a server that allows it, which answers its questions without a key', async () => {
    const url = await serve({ apiKey: 'secret', allowedOrigins: [page, 'https://example.org'] });
    const headers = { ...question.headers, 'access-control-request-headers': 'authorization, content-type' };
    const asked = await fetch(`${url}/v1/chat/completions`, { ...question, headers });
    expect(asked.status).toBe(204);
    expect(asked.headers.get('access-control-allow-origin')).toBe(page);
    expect(asked.headers.get('access-control-allow-methods')).toContain('POST');
    expect(asked.headers.get('access-control-allow-headers')).toBe('authorization, content-type');
    expect(asked.headers.get('vary')).toBe('Origin');
    const refused = await fetch(`${url}/v1/models`, { headers: { origin: page } });
    expect([refused.status, refused.headers.get('access-control-allow-origin')]).toEqual([401, page]);
  });

  it('may read the events of a stream', async () => {
    const url = await serve({ allowedOrigins: ['*'] });
    const answer = await fetch(`${url}/v1/completions`, {
      method: 'POST',
      headers: { origin: page, 'content-type': 'application/json' },
      body: JSON.stringify({ prompt: 'abc', max_tokens: 2, stream: true }),
    });
    expect(answer.headers.get('access-control-allow-origin')).toBe('*');
    expect(await answer.text()).toContain('[DONE]');
  });

  it('may not read the answers of a server that does not allow it', async () => {
    for (const options of [{}, { allowedOrigins: ['https://example.org'] }]) {
      const url = await serve(options);
      const answer = await fetch(`${url}/v1/models`, { headers: { origin: page } });
      expect(answer.headers.get('access-control-allow-origin')).toBe(null);
      expect((await fetch(`${url}/v1/models`, question)).status).not.toBe(204);
    }
  });
});

describe('a root path', () => {
  it('may be before every endpoint, or be removed by a proxy', async () => {
    const url = await serve({ rootPath: '/llm' });
    for (const path of ['/llm/v1/models', '/v1/models', '/llm', '/llm/?a=1'])
      expect((await fetch(`${url}${path}`)).status, path).toBe(200);
    for (const path of ['/llmx/v1/models', '/llm/none']) expect((await fetch(`${url}${path}`)).status, path).toBe(404);
  });
});
