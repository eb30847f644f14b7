import { afterEach, describe, expect, it } from 'vitest';
import { LetterEngine } from '../../../test/support/letter-engine.ts';
import { toyEngine } from '../../../test/support/toy-model.ts';
import type { AsyncEngine } from '../../engine/contract.ts';
import { Server } from '../server.ts';

const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function serve(enableFaultInjection: boolean, engine?: AsyncEngine) {
  const served = engine ?? toyEngine().engine;
  const server = new Server(served, { version: '0', logLevel: 'silent', enableFaultInjection });
  const url = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
  closers.push(
    () => served.close(),
    () => server.app.close(),
  );
  const lose = async (body: unknown) => {
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(`${url}/cache/lose`, { method: 'POST', headers, body: JSON.stringify(body) });
    return { status: response.status, body: (await response.json()) as { error?: { code: string; message: string } } };
  };
  return { engine: served, server, url, lose };
}

describe('POST /cache/lose', () => {
  it('is refused without --enable-fault-injection', async () => {
    const { lose } = await serve(false);
    const { status, body } = await lose({ count: 1 });
    expect(status).toBe(403);
    expect(body.error).toMatchObject({ code: 'KVASIR_FAULT_INJECTION_OFF' });
  });

  it('loses the blocks that it names, or random ones', async () => {
    const { engine, lose } = await serve(true);
    const params = { temperature: 0, maxTokens: 20, ignoreEos: true };
    for await (const _ of engine.generate({ prompt: 'a prompt of some length', params }));
    expect(await lose({ blocks: [1, 2] })).toEqual({ status: 200, body: { blocks: [1, 2], requests: 0, tokens: 0 } });
    const { body } = await lose({ count: 2, seed: 3 });
    expect((body as { blocks?: number[] }).blocks).toHaveLength(2);
    expect(engine.stats().blocks.cached).toBe(Math.floor((24 + 19) / 4) - 4);
  });

  it.each([
    [{}, '`count` is required: a number of blocks, or send `blocks`.'],
    [{ count: 0 }, '`count` must be'],
    [{ count: '3' }, '`count` must be'],
    [{ count: 5000 }, '`count` must be'],
    [{ blocks: [] }, '`blocks` must be a list'],
    [{ blocks: 3 }, '`blocks` must be a list'],
    [{ blocks: ['3'] }, '`blocks[0]` must be the number of a block'],
    [{ blocks: [1.5] }, '`blocks[0]` must be the number of a block'],
    [{ blocks: [0] }, '`blocks` must be numbers of blocks, 1 to 399, got 0.'],
    [{ blocks: [400] }, '`blocks` must be numbers of blocks, 1 to 399, got 400.'],
    [{ blocks: [3], count: 1 }, '`blocks` must be absent'],
    [{ count: 1, request: 7 }, '`request` must be a string'],
    [{ count: 1, seed: -1 }, '`seed` must be'],
    [{ coun: 1 }, 'There is no field `coun`.'],
  ])('answers %j with 400', async (body, message) => {
    const { lose } = await serve(true);
    const answer = await lose(body);
    expect(answer.status).toBe(400);
    expect(answer.body.error!.message).toContain(message);
  });

  it('answers 409 for a request that has ended', async () => {
    const { lose } = await serve(true);
    const { status, body } = await lose({ count: 1, request: 'chatcmpl-gone' });
    expect(status).toBe(409);
    expect(body.error!.code).toBe('KVASIR_REQUEST_ENDED');
  });
});

describe('GET /cache/events', () => {
  it('streams the shape of the pool and then its state', async () => {
    const { url } = await serve(false);
    const response = await fetch(`${url}/cache/events`);
    expect(response.headers.get('content-type')).toContain('text/event-stream');
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    while (text.split('\n\n').length < 3) text += (await reader.read()).value;
    const [start, state] = text.split('\n\n').map((event) => JSON.parse(event.slice('data: '.length) || '{}'));
    expect(start).toMatchObject({ type: 'start', pool: { blockCount: 400 }, canLoseBlocks: false });
    expect(state).toMatchObject({ type: 'state', isWhole: true, parts: { requests: [], tiers: [] } });
    await reader.cancel();
  });

  it('does not delay the shutdown of a server', async () => {
    const { url, server } = await serve(false);
    const response = await fetch(`${url}/cache/events`);
    const ended = response.text();
    expect(await server.drain(60_000)).toEqual({ how: 'drained' });
    expect(await ended).toContain('"type":"start"');
  });

  it('does not exist for an engine that does not show its pool', async () => {
    const { url } = await serve(false, new LetterEngine());
    expect((await fetch(`${url}/cache/events`)).status).toBe(404);
  });
});
