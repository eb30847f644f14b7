import { afterEach, describe, expect, it, vi } from 'vitest';
import { LetterEngine } from '../../../test/support/letter-engine.ts';
import { keyLimitsFlag, keyLimitsOf } from '../../cli/key-limits-flag.ts';
import { Server, type ServerOptions } from '../server.ts';

const patience = { timeout: 120_000, interval: 5 };
const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** A server whose requests run until `open` is called. */
async function serve(json: string, options: Partial<ServerOptions> = {}) {
  let open: () => void = () => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  const engine = new LetterEngine({ beforeStep: () => opened });
  const apiKeyLimits = keyLimitsOf(keyLimitsFlag(json), [options.apiKey ?? []].flat());
  const server = new Server(engine, { version: '1', logLevel: 'silent', ...options, apiKeyLimits });
  const port = await server.listen(0, '127.0.0.1');
  cleanups.push(() => server.close(), open);
  const send = async (key: string, signal?: AbortSignal, path = '/v1/completions') => {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
      body: path === '/tokenize' ? '{"prompt":"abc"}' : '{"prompt":"abc","max_tokens":2}',
      ...(signal && { signal }),
    });
    return {
      status: response.status,
      retryAfter: response.headers.get('retry-after'),
      body: JSON.parse(await response.text()),
    };
  };
  const counts = async () => {
    const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    const all = text.matchAll(/^kvasir:key_requests_(running|waiting|refused_total)\{key="(.*)"\} (\d+)$/gm);
    return Object.fromEntries([...all].map(([, what, name, count]) => [`${name} ${what}`, Number(count)]));
  };
  const expectCounts = (expected: Record<string, number>) =>
    vi.waitFor(async () => expect(await counts()).toMatchObject(expected), patience);
  return { engine, send, expectCounts, open };
}

const team = '{"team":{"key":"k","max_running":2,"max_waiting":1},"other":{"key":"o","max_running":1}}';

describe('the limits of an API key', () => {
  it('let requests wait, refuse further ones with 429, and do not concern other keys', async () => {
    const { engine, send, expectCounts, open } = await serve(team, { apiKey: 'free' });
    const running = [send('k'), send('k')];
    await expectCounts({ 'team running': 2, 'team waiting': 0 });
    const waiting = send('k');
    await expectCounts({ 'team running': 2, 'team waiting': 1 });
    const refused = await send('k');
    expect(refused).toMatchObject({
      status: 429,
      retryAfter: '1',
      body: { error: { code: 'KVASIR_KEY_LIMIT_REACHED', type: 'rate_limit_error' } },
    });
    expect(refused.body.error.message).not.toContain('`k`');
    expect((await send('k', undefined, '/tokenize')).status).toBe(200);
    const others = [send('o'), send('free'), send('free')];
    await expectCounts({ 'other running': 1, 'team refused_total': 1, 'other refused_total': 0 });
    await vi.waitFor(() => expect(engine.stats().running).toBe(5), patience);
    expect((await send('o')).status).toBe(429);
    open();
    for (const answer of await Promise.all([...running, waiting, ...others])) expect(answer.status).toBe(200);
    await expectCounts({ 'team running': 0, 'team waiting': 0, 'other running': 0 });
    expect((await send('wrong')).status).toBe(401);
  });

  it('give the place of a client that is gone to the next one', async () => {
    const { engine, send, expectCounts, open } = await serve('{"team":{"key":"k","max_running":1,"max_waiting":2}}');
    const [first, second] = [new AbortController(), new AbortController()];
    const gone = [send('k', first.signal).catch(() => 'gone')];
    await expectCounts({ 'team running': 1 });
    gone.push(send('k', second.signal).catch(() => 'gone'));
    await expectCounts({ 'team waiting': 1 });
    const last = send('k');
    await expectCounts({ 'team waiting': 2 });
    second.abort();
    await expectCounts({ 'team running': 1, 'team waiting': 1 });
    first.abort();
    await expectCounts({ 'team running': 1, 'team waiting': 0 });
    open();
    expect((await last).status).toBe(200);
    expect(await Promise.all(gone)).toEqual(['gone', 'gone']);
    await expectCounts({ 'team running': 0, 'team waiting': 0 });
    expect(engine.requests).toHaveLength(2);
  });

  it('survive many clients that leave at random, and then admit as before', async () => {
    const { send, expectCounts, open } = await serve('{"team":{"key":"k","max_running":3,"max_waiting":20}}');
    const controllers = Array.from({ length: 20 }, () => new AbortController());
    const sent = controllers.map(({ signal }) => send('k', signal).catch(() => undefined));
    await expectCounts({ 'team running': 3, 'team waiting': 17 });
    controllers.forEach((controller, i) => void (i % 3 === 0 && controller.abort()));
    open();
    await Promise.all(sent);
    await expectCounts({ 'team running': 0, 'team waiting': 0 });
    expect((await Promise.all([send('k'), send('k'), send('k')])).map(({ status }) => status)).toEqual([200, 200, 200]);
  });

  it('with the name * are those of each key of --api-key', async () => {
    const { send, expectCounts } = await serve('{"*":{"max_running":1}}', { apiKey: ['a', 'b'] });
    void send('a').catch(() => undefined);
    await expectCounts({ 'api-key-1 running': 1, 'api-key-2 running': 0 });
    expect((await send('a')).status).toBe(429);
    void send('b').catch(() => undefined);
    await expectCounts({ 'api-key-2 running': 1 });
  });

  it('may be missing for an administrator', () => {
    const limits = keyLimitsOf(keyLimitsFlag('{"ops":{"key":"k","admin":true},"*":{"max_running":1}}'), ['k', 'a']);
    expect(limits).toEqual([
      { name: 'ops', key: 'k', isAdmin: true },
      { name: 'api-key-2', key: 'a', maxRunning: 1, maxWaiting: 0 },
    ]);
  });

  it.each([
    ['{', 'It must be JSON.'],
    ['[]', 'It must be an object, like'],
    ['{"a":4}', '`a` must be an object'],
    ['{"a b":{"key":"k","max_running":1}}', 'The name `a b` must be letters'],
    ['{"a":{"max_running":1}}', '`a`: key must be a text without spaces'],
    ['{"a":{"key":"k"}}', '`a`: max_running must be a whole number of at least 1'],
    ['{"a":{"key":"k","max_running":0}}', 'at least 1'],
    ['{"a":{"key":"k","max_running":1,"max_waiting":-1}}', '`a`: max_waiting must be'],
    ['{"a":{"key":"k","max_runing":1}}', '`a` has no field `max_runing`. Did you mean `max_running`?'],
    ['{"a":{"key":"k","max_running":1},"b":{"key":"k","max_running":1}}', 'Two names have the same key.'],
    ['{"*":{"key":"k","max_running":1}}', '`*` has no key'],
    ['{"*":{"max_running":1,"admin":true}}', '`*`: admin must be'],
    ['{"a":{"key":"k","admin":1}}', '`a`: admin must be true or false'],
    ['{"a":{"key":"k","admin":false}}', '`a`: max_running must be'],
    ['{"a":{"admin":true}}', '`a`: key must be a text'],
    ['{"a":{"key":"k","admin":true,"max_waiting":1}}', '`a`: max_running must be'],
  ])('are refused if they are wrong: %s', (json, message) => {
    expect(() => keyLimitsFlag(json)).toThrow(message);
  });
});
