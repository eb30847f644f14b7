/** Who may send requests: API keys, names of the server, web pages of other origins; and the root path. */
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterEach, describe, expect, it } from 'vitest';
import { LetterEngine } from '../../../test/support/letter-engine.ts';
import { toyEngine } from '../../../test/support/toy-model.ts';
import type { AsyncEngine } from '../../engine/contract.ts';
import { Server } from '../server.ts';
import type { ServerOptions } from '../server-options.ts';

const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

async function serve(options: Partial<ServerOptions>, engine: AsyncEngine = new LetterEngine()): Promise<string> {
  const server = new Server(engine, { version: '0.0.0', logLevel: 'silent', ...options });
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

/** The status for these bytes. */
async function statusOf(url: string, bytes: string): Promise<number> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  socket.write(bytes);
  return Number((await text(socket)).split(' ', 2)[1]);
}

const getFrom = (host: string, path = '/v1/models', more = ''): string =>
  `GET ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n${more}\r\n`;

/** The hosts that this server does not answer with `expected`. */
async function otherThan(expected: number, hosts: readonly string[], url: string, path?: string): Promise<string[]> {
  const statuses = await Promise.all(hosts.map((host) => statusOf(url, getFrom(host, path))));
  return hosts.filter((_, i) => statuses[i] !== expected);
}

const localHosts = [
  ...'localhost localhost:8000 LocalHost:1 localhost. localhost.:80 my.app.localhost 127.0.0.1 127.0.0.1:8000'.split(
    ' ',
  ),
  ...'127.1:80 0.0.0.0:8000 10.1.2.3:8000 192.168.1.5 2130706433 [::1] [::1]:8000 [FE80::1]:80'.split(' '),
  ...'[fe80::1%eth0]:80 [fe80::1%25eth0] [::ffff:127.0.0.1]:9'.split(' '),
  '',
];
const otherHosts = [
  ...'evil.example evil.example:8000 EVIL.example. localhost.evil.example 127.0.0.1.evil.example xlocalhost'.split(' '),
  ...'localhost@evil.example localhost/x localhost# evil.example?localhost [::1 [::1].evil.example localhost:x'.split(
    ' ',
  ),
  ...'localhost\\ % kvasir localhost,evil.example evil.example,localhost ev\u00efl.example'.split(' '),
  'a b',
];

describe('a server without a key', () => {
  it('answers requests for local names and addresses, and for no other names', async () => {
    const url = await serve({});
    expect(await otherThan(200, localHosts, url)).toEqual([]);
    expect(await otherThan(403, otherHosts, url)).toEqual([]);
    for (const path of ['/health', '/', '/metrics', '/none', '/cache/events'])
      expect(await otherThan(403, ['evil.example'], url, path)).toEqual([]);
  });

  it('names the flag in its refusal, and is not told its name by headers of proxies', async () => {
    const url = await serve({});
    const socket = connect(Number(new URL(url).port), '127.0.0.1');
    socket.write(getFrom('evil.example', '/v1/models', 'X-Forwarded-Host: localhost\r\nForwarded: host=localhost\r\n'));
    const answer = await text(socket);
    expect(answer).toContain('KVASIR_HOST_NOT_ALLOWED');
    expect(answer).toContain('--allowed-hosts evil.example');
    const forwarded = 'X-Forwarded-Host: evil.example\r\nForwarded: host=evil.example\r\n';
    expect(await statusOf(url, getFrom('localhost', '/v1/models', forwarded))).toBe(200);
  });

  it('looks at each name that a request has, and at none if it has none', async () => {
    const url = await serve({});
    const two = (first: string, second: string) =>
      statusOf(url, `GET /v1/models HTTP/1.1\r\nHost: ${first}\r\nHost: ${second}\r\nConnection: close\r\n\r\n`);
    expect(await two('localhost', 'evil.example')).toBe(403);
    expect(await two('evil.example', 'localhost')).toBe(403);
    const absolute = (target: string) => statusOf(url, getFrom('localhost', target));
    expect(await absolute('http://evil.example/v1/models')).toBe(403);
    expect(await absolute('http://localhost@evil.example/v1/models')).toBe(403);
    expect(await statusOf(url, getFrom('evil.example', 'http://localhost/v1/models'))).toBe(403);
    expect(await statusOf(url, 'GET /v1/models HTTP/1.0\r\n\r\n')).toBe(200);
    expect(await statusOf(url, 'GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n')).toBe(400);
    const upgrade =
      'Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n';
    expect(await statusOf(url, `GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n${upgrade}\r\n`)).toBe(403);
  });

  it('answers requests for the names that it was told', async () => {
    const url = await serve({ allowedHosts: ['Kvasir.', '*.svc.example', 'LLM.Example:8000', '0.0.0.0'] });
    for (const host of ['kvasir', 'kvasir:8000', 'KVASIR.', 'a.svc.example', 'a.b.svc.example:1', 'llm.example'])
      expect([host, await statusOf(url, getFrom(host))]).toEqual([host, 200]);
    for (const host of ['svc.example', 'xsvc.example', 'kvasir.evil.example', 'evil.example'])
      expect([host, await statusOf(url, getFrom(host))]).toEqual([host, 403]);
    const open = await serve({ allowedHosts: ['*'] });
    expect(await statusOf(open, getFrom('evil.example'))).toBe(200);
  });

  it('refuses them also while it loads', async () => {
    const loadStatus = () => ({ phase: 'weights', message: 'It loads.', retryAfterSeconds: 1 }) as const;
    const server = new Server({ loadStatus }, { version: '0', logLevel: 'silent' });
    closers.push(() => server.close());
    const url = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
    expect(await statusOf(url, getFrom('evil.example', '/health'))).toBe(403);
    expect(await statusOf(url, getFrom('127.0.0.1', '/health'))).toBe(503);
  });

  it('changes nothing for a request that a page of another site can send without asking', async () => {
    const { engine } = toyEngine();
    const server = new Server(engine, { version: '0', logLevel: 'silent', enableFaultInjection: true });
    closers.push(() => engine.close());
    closers.push(() => server.close());
    const url = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
    for await (const _ of engine.generate({ prompt: 'a prompt of some length', params: { maxTokens: 2 } }));
    const cached = () => engine.stats().blocks.cached;
    const before = cached();
    expect(before).toBeGreaterThan(0);
    const paths = ['/reset_prefix_cache', '/cache/lose', '/v1/responses/x/cancel', '/v1/completions', '/tokenize'];
    const simple = [
      undefined,
      'text/plain',
      'text/plain; application/json',
      'application/x-www-form-urlencoded',
      'multipart/form-data; boundary=x',
    ];
    for (const path of paths) {
      for (const type of simple)
        for (const body of ['', '{"count":4}']) {
          const init = {
            method: 'POST',
            headers: type === undefined ? {} : { 'content-type': type },
            body: Buffer.from(body),
          };
          expect([path, type, (await fetch(url + path, init)).status]).toEqual([path, type, 415]);
        }
      for (const method of ['GET', 'HEAD', 'PUT', 'PATCH'])
        expect((await fetch(url + path, { method })).status, `${method} ${path}`).toBeGreaterThanOrEqual(404);
      const json = { 'content-type': 'application/json' };
      for (const headers of [
        { ...json, 'sec-fetch-site': 'cross-site' },
        { ...json, 'sec-fetch-site': 'same-site', origin: 'http://localhost:3000' },
        { ...json, origin: 'https://evil.example' },
        { ...json, origin: 'null' },
        { authorization: 'Bearer x', origin: `${url}0` },
      ])
        expect((await fetch(url + path, { method: 'POST', headers, body: '{"count":4}' })).status, path).toBe(403);
    }
    const foreign = { method: 'DELETE', headers: { origin: 'https://evil.example' } };
    expect((await fetch(`${url}/v1/responses/x`, foreign)).status).toBe(403);
    expect(cached()).toBe(before);
    const own = { 'content-type': 'application/json; charset=utf-8', origin: url };
    expect((await fetch(`${url}/reset_prefix_cache`, { method: 'POST', headers: own })).status).toBe(200);
    expect(cached()).toBe(0);
    // Clients of OpenAI send a key, and a browser asks before it does.
    const withKey = { method: 'POST', headers: { authorization: 'Bearer x' } };
    expect((await fetch(`${url}/reset_prefix_cache`, withKey)).status).toBe(200);
    expect((await fetch(`${url}/ping`, { method: 'POST' })).status).toBe(200);
  });

  it('serves a page behind a proxy that changes `Host`, and pages of allowed origins', async () => {
    const url = await serve({ allowedOrigins: ['https://chat.example'] });
    const send = async (headers: Record<string, string>) => {
      const init = {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: '{"prompt":"a"}',
      };
      return (await fetch(`${url}/v1/completions`, init)).status;
    };
    expect(await send({ origin: 'https://llm.example', 'sec-fetch-site': 'same-origin' })).toBe(200);
    expect(await send({ 'sec-fetch-site': 'none' })).toBe(200);
    expect(await send({ origin: 'https://chat.example', 'sec-fetch-site': 'cross-site' })).toBe(200);
    expect(await send({ origin: 'https://chat.example.evil', 'sec-fetch-site': 'cross-site' })).toBe(403);
  });
});

describe('a server with a key', () => {
  it('answers requests for any name', async () => {
    const url = await serve({ apiKey: 'secret' });
    const key = 'Authorization: Bearer secret\r\n';
    for (const host of ['evil.example', 'kvasir:8000', 'a b'])
      expect([host, await statusOf(url, getFrom(host, '/v1/models', key))]).toEqual([host, 200]);
    const reset = 'POST /reset_prefix_cache HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n';
    expect(await statusOf(url, `${reset}${key}\r\n`)).toBe(404);
  });

  it('gives nothing to a client without the key, with any other text in its place', async () => {
    const { engine } = toyEngine();
    closers.push(() => engine.close());
    const url = await serve({ apiKey: 'secret' }, engine);
    const paths = [
      ...'/v1/models /v1/models/ //v1/models /v1//models /v1/models?api_key=secret&key=secret /V1/MODELS /v1/./models'.split(
        ' ',
      ),
      ...'/page/../v1/models /page/..%2fv1/models /%76%31/models /v1%2fmodels /v1/models;x /v1/models%00 /tiers'.split(
        ' ',
      ),
      ...'/v1/models/toy /version /cache/events /none /v1/models#/health http://x/v1/models'.split(' '),
    ];
    const more =
      'X-HTTP-Method-Override: GET\r\nX-Api-Key: secret2\r\nX-Original-URL: /health\r\nCookie: key=secret\r\n';
    for (const method of ['GET', 'HEAD', 'OPTIONS']) {
      const ask = (path: string) => statusOf(url, getFrom('localhost', path, more).replace('GET', method));
      const statuses = await Promise.all(paths.map(ask));
      expect([method, paths.filter((_, i) => ![400, 401, 404].includes(statuses[i]!))]).toEqual([method, []]);
    }
    for (const authorization of [
      '',
      'secret',
      'Basic secret',
      'Bearer',
      'Bearer secre',
      'Bearer secret2',
      'Bearer SECRET',
    ])
      expect((await fetch(`${url}/v1/models`, { headers: { authorization } })).status).toBe(401);
  });
});
