import { pathToFileURL } from 'node:url';
import { afterEach, describe, expect, it } from 'vitest';
import { openEngineWithTier } from '../../../test/support/engine-with-tier.ts';
import { closeGate, openGate, waitingCalls } from '../../../test/support/gated-disk.ts';
import { temporaryFolder } from '../../../test/support/tiny-model.ts';
import { until } from '../../../test/support/until.ts';
import type { JsonObject } from '../../base/json.ts';
import { Server, type ServerOptions } from '../server.ts';

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

type Json = Readonly<Record<string, unknown>>;
const diskTier = (folder: string): JsonObject => ({ type: 'fs', root_dir: folder });

async function serve(options: Partial<ServerOptions> = {}, tier: (folder: string) => JsonObject = diskTier) {
  const folder = temporaryFolder();
  const engine = await openEngineWithTier({ tier: tier(folder.file('blocks')) });
  const lines: string[] = [];
  const logDestination = { write: (line: string) => lines.push(line) };
  const server = new Server(engine, { version: '0', logLevel: 'info', logDestination, ...options });
  let leftCount = 0;
  server.app.addHook('onRequest', (_request, { raw }, done) => {
    raw.once('close', () => {
      if (!raw.writableFinished) leftCount++;
    });
    done();
  });
  const url = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
  closers.push(
    () => folder.remove(),
    () => engine.close(),
    () => server.app.close(),
  );
  const send = async (method: string, path: string, body?: unknown, key?: string) => {
    const content = body === undefined ? undefined : JSON.stringify(body);
    const headers = {
      ...(content === undefined ? {} : { 'content-type': 'application/json' }),
      ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
    };
    const response = await fetch(`${url}${path}`, {
      method,
      headers,
      ...(content === undefined ? {} : { body: content }),
    });
    const text = await response.text();
    const json = (text.startsWith('{') ? JSON.parse(text) : {}) as Json & { error?: { code: string; message: string } };
    return { status: response.status, body: json, text };
  };
  return { engine, send, lines, folder, url, leftCount: () => leftCount };
}

const text = 'Once upon a time there was a fox that lived in the forest and liked to count its mice. '.repeat(3);
const messages = [{ role: 'user', content: text }];

describe('orders about cached KV over HTTP', () => {
  it('says where a prompt is, pins it, prefetches it and removes it, with what was really done', async () => {
    const { send, lines, engine } = await serve();
    const lookUp = () => send('POST', '/cache/lookup', { prompt: text });
    expect((await lookUp()).body).toMatchObject({
      cached_tokens: 0,
      tokens: { pool: 0, host: 0, disk: 0 },
      unanswered: [],
    });
    const generated = await send('POST', '/v1/completions', { prompt: text, max_tokens: 1, temperature: 0 });
    const { usage } = generated.body as { usage: { prompt_tokens: number } };
    await expect
      .poll(async () => (await lookUp()).body, { timeout: 60_000 })
      .toMatchObject({ prompt_tokens: usage.prompt_tokens });
    const cached = Math.floor(usage.prompt_tokens / 16) * 16;
    await expect
      .poll(async () => (await lookUp()).body.tokens, { timeout: 60_000 })
      .toEqual({ pool: cached, host: cached, disk: cached });
    const query = new URLSearchParams({ prompt: text });
    expect((await send('GET', `/cache/lookup?${query}`)).body).toEqual((await lookUp()).body);
    const seconds_left = expect.toSatisfy((seconds: number) => seconds > 0 && seconds <= 60);
    const pinned = await send('POST', '/cache/pin', { prompt: text, ttl_seconds: 60 });
    expect(pinned.body).toMatchObject({ pin: { cached_blocks: cached / 16, ttl_seconds: 60, seconds_left } });
    const { pin } = pinned.body as { pin: { name: string } };
    expect((await send('GET', '/cache/pins')).body).toMatchObject({ pins: [{ name: pin.name }], evicted: 0 });
    expect((await send('POST', '/cache/unpin', { pin: pin.name })).body).toEqual({ unpinned: pin.name });
    expect((await send('POST', '/cache/unpin', { prompt: text })).body).toEqual({ unpinned: null });
    const inTiers = await send('POST', '/cache/pin', { prompt: text, ttl_seconds: 60, places: ['pool', 'disk'] });
    const blocks = cached / 16;
    expect(inTiers.body).toMatchObject({
      name: pin.name,
      pin: { blocks },
      tiers: { disk: { blocks, stored_blocks: blocks } },
    });
    const ofDisk = { pins: [{ name: pin.name, blocks, ttl_seconds: 60, seconds_left }], blocks };
    expect((await send('GET', '/cache/pins')).body).toMatchObject({
      pins: [{ name: pin.name }],
      tiers: { disk: ofDisk, host: { pins: [], blocks: 0 } },
    });
    expect((await send('POST', '/cache/unpin', { pin: pin.name })).body).toEqual({ unpinned: pin.name });
    expect((await send('GET', '/cache/pins')).body).toMatchObject({
      pins: [],
      tiers: { disk: { pins: [], blocks: 0 } },
    });
    engine.cache?.reset();
    expect((await send('POST', '/cache/prefetch', { prompt: text })).body).toMatchObject({
      to: 'pool',
      tokens_before: 0,
      tokens_after: cached,
      loaded_tokens: { host: cached },
    });
    const removed = await send('DELETE', '/cache/blocks', { prompt: text });
    expect(removed.body).toMatchObject({
      removed: {
        pool: { blocks: cached / 16, in_use: 0 },
        host: { blocks: cached / 16 },
        disk: { blocks: cached / 16 },
      },
    });
    expect((await lookUp()).body).toMatchObject({ cached_tokens: 0 });
    const ordersInLog = () => lines.filter((line) => line.includes('an order about cached KV')).length;
    // Look-ups are logged at the level debug.
    await expect.poll(ordersInLog).toBe(7);
    const metrics = (await send('GET', '/metrics')).text;
    expect(metrics).toMatch(/kvasir:kv_orders_total\{order="pin",[^}]*\} 2/);
    expect(metrics).toMatch(new RegExp(`kvasir:kv_removed_blocks_total\\{place="disk",[^}]*\\} ${cached / 16}`));
  });

  it.each(['second', 'constructor', 'toString'])('clears, attaches and detaches tiers: %s', async (name) => {
    const { send, folder } = await serve({ adminKey: 'ops' });
    const tier = `disk:${folder.file('second')}:1GiB`;
    const attached = await send('PUT', `/tiers/${name}`, { tier }, 'ops');
    expect(attached).toMatchObject({ status: 200, body: { tiers: ['host', 'disk', name] } });
    await send('POST', '/v1/chat/completions', { messages, max_tokens: 1 });
    const found = async () =>
      (await send('POST', '/cache/lookup', { messages }, 'ops')).body.tokens as Record<string, number>;
    await expect.poll(async () => (await found())[name], { timeout: 60_000 }).toBeGreaterThan(0);
    const { text: metrics } = await send('GET', '/metrics', undefined, 'ops');
    expect(metrics).toMatch(new RegExp(`kvasir:tier_stored_blocks_total\\{tier="${name}",[^}]*\\} \\d`));
    const cleared = await send('POST', `/tiers/${name}/clear`, {}, 'ops');
    expect(cleared.body).toMatchObject({ tier: name, failed: 0 });
    expect(cleared.body.blocks).toBeGreaterThan(0);
    expect(await found()).toMatchObject({ [name]: 0 });
    expect((await send('GET', '/tiers', undefined, 'ops')).text).toContain(`"${name}"`);
    expect((await send('DELETE', `/tiers/${name}`, undefined, 'ops')).body).toMatchObject({ tiers: ['host', 'disk'] });
    expect((await send('GET', '/tiers', undefined, 'ops')).text).not.toContain(`"${name}"`);
    expect(await send('DELETE', `/tiers/${name}`, undefined, 'ops')).toMatchObject({ status: 404 });
    expect(await send('DELETE', '/tiers/host', undefined, 'ops')).toMatchObject({ status: 404 });
  });

  it('a client that leaves during a clear does not stop it, and later orders work', async () => {
    const module_path = pathToFileURL('dist/test/support/gated-disk.js').href;
    const gated = (folder: string): JsonObject => ({ type: 'GatedDisk', module_path, folder, max_bytes: 1 << 30 });
    const { send, lines, url, engine, leftCount } = await serve({}, gated);
    const lookUp = async () => (await send('POST', '/cache/lookup', { prompt: text })).body.tokens as Json;
    await send('POST', '/v1/completions', { prompt: text, max_tokens: 1, temperature: 0 });
    await expect.poll(lookUp, { timeout: 60_000 }).toMatchObject({ GatedDisk: expect.any(Number) });
    const stored = (await lookUp()).pool as number;
    await expect.poll(async () => (await lookUp()).GatedDisk, { timeout: 60_000 }).toBe(stored);
    closeGate();
    closers.push(openGate);
    const client = new AbortController();
    const { signal } = client;
    const headers = { 'content-type': 'application/json' };
    const clear = fetch(`${url}/tiers/GatedDisk/clear`, { method: 'POST', headers, body: '{}', signal });
    await until(() => waitingCalls() === 1);
    client.abort();
    await expect(clear).rejects.toThrow('aborted');
    await expect.poll(leftCount).toBe(1);
    openGate();
    await expect.poll(() => lines.some((line) => /"order":"clear".*an order about/.test(line))).toBe(true);
    expect(await lookUp()).toMatchObject({ GatedDisk: 0, host: stored });
    expect(engine.kv!.counters().removedBlocks.GatedDisk).toBeGreaterThan(0);
    expect(await send('POST', '/tiers/GatedDisk/clear', {})).toMatchObject({
      status: 200,
      body: { blocks: 0, failed: 0 },
    });
  });

  it('is for administrators', async () => {
    const open = await serve();
    expect((await open.send('PUT', '/tiers/x', { tier: 'disk:/tmp/x' })).body.error?.code).toBe(
      'KVASIR_ATTACH_NEEDS_KEY',
    );
    const { send } = await serve({ apiKey: 'user', adminKey: 'ops' });
    for (const [method, path, body] of [
      ['POST', '/cache/lookup', { prompt: 'a' }],
      ['POST', '/cache/pin', { prompt: 'a' }],
      ['GET', '/cache/pins', undefined],
      ['DELETE', '/cache/blocks', { prompt: 'a' }],
      ['POST', '/tiers/disk/clear', {}],
      ['PUT', '/tiers/x', { tier: 'disk:/tmp/x' }],
      ['DELETE', '/tiers/disk', undefined],
      ['POST', '/reset_prefix_cache', {}],
    ] as const) {
      expect((await send(method, path, body, 'user')).status, path).toBe(403);
      expect((await send(method, path, body)).status, path).toBe(401);
    }
    expect((await send('POST', '/cache/lookup', { prompt: 'a' }, 'ops')).status).toBe(200);
    expect((await send('POST', '/v1/completions', { prompt: 'a', max_tokens: 1 }, 'user')).status).toBe(200);
    expect((await send('POST', '/v1/completions', { prompt: 'a', max_tokens: 1 }, 'ops')).status).toBe(200);
  });

  it('refuses what it cannot do, and says why', async () => {
    const { send } = await serve();
    const refused: readonly (readonly [string, string, Json, string])[] = [
      ['POST', '/cache/lookup', {}, '`prompt` is required'],
      ['POST', '/cache/lookup', { prompt: 'a', messages }, '`prompt` must be absent'],
      ['POST', '/cache/lookup', { tokens: [1.5] }, '`tokens[0]` must be a token id'],
      ['POST', '/cache/lookup', { tokens: [] }, '`tokens` must be a list'],
      ['POST', '/cache/lookup', { tokens: new Array(600).fill(1) }, '600'],
      ['POST', '/cache/pin', { prompt: 'a', ttl_seconds: 0 }, '`ttl_seconds` must be'],
      ['POST', '/cache/prefetch', { prompt: 'a', to: 'disk' }, '`to` must be'],
      ['DELETE', '/cache/blocks', { prompt: 'a', places: ['tape'] }, 'There is no KV tier `tape`'],
      ['POST', '/cache/pin', { prompt: 'a', places: ['tape'] }, 'There is no KV tier `tape`'],
      ['POST', '/tiers/tape/clear', {}, 'There is no KV tier `tape`'],
      ['POST', '/tiers/disk/clear', { older_than_seconds: -1 }, '`older_than_seconds` must be'],
      ['POST', '/cache/lookup', { prompt: 'a', model: 'other' }, 'other'],
    ];
    for (const [method, path, body, message] of refused) {
      const answer = await send(method, path, body);
      expect(answer.status, path).toBeGreaterThanOrEqual(400);
      expect(answer.status, path).toBeLessThan(500);
      expect(answer.body.error?.message).toContain(message);
    }
  });
});
