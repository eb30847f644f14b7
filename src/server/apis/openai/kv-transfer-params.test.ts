import { afterEach, describe, expect, it } from 'vitest';
import { LetterEngine, type LetterEngineOptions } from '../../../../test/support/letter-engine.ts';
import { Server, type ServerOptions } from '../../server.ts';

const servers: Server[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) await server.app.close();
});

async function serve(engineOptions: LetterEngineOptions = {}, options: Partial<ServerOptions> = {}) {
  const engine = new LetterEngine(engineOptions);
  const server = new Server(engine, { version: '1.2.3', logLevel: 'silent', ...options });
  servers.push(server);
  const origin = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
  const post = async (path: string, body: unknown) => {
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(origin + path, { method: 'POST', headers, body: JSON.stringify(body) });
    return { status: response.status, text: await response.text() };
  };
  const json = async (path: string, body: unknown) => {
    const { status, text } = await post(path, body);
    return { status, ...JSON.parse(text) };
  };
  return { engine, post, json };
}

/** The JSON of every event without `[DONE]`, which must be the last event. */
function events(text: string) {
  const data = text
    .split('\n\n')
    .filter((event) => event.startsWith('data: '))
    .map((event) => event.slice(6));
  expect(data.at(-1)).toBe('[DONE]');
  return data.slice(0, -1).map((event) => JSON.parse(event));
}

describe('parameters and counts of KV outside the engine', () => {
  const paths = [
    ['/v1/completions', { prompt: 'abc', max_tokens: 3 }],
    ['/v1/chat/completions', { messages: [{ role: 'user', content: 'abc' }], max_tokens: 3 }],
  ] as const;

  it.each(paths)('%s passes kv_transfer_params to the engine unchanged', async (path, body) => {
    const { engine, json } = await serve();
    const kvTransferParams = { do_remote_prefill: true, remote_block_ids: [1, [2, null]], 'any name': { x: 'y' } };
    expect((await json(path, { ...body, kv_transfer_params: kvTransferParams })).status).toBe(200);
    expect(engine.requests[0]!.kvTransferParams).toEqual(kvTransferParams);
    expect((await json(path, { ...body, kv_transfer_params: null })).status).toBe(200);
    expect(engine.requests[1]).not.toHaveProperty('kvTransferParams');
  });

  it.each(paths)('%s refuses kv_transfer_params that are not an object', async (path, body) => {
    const { engine, json } = await serve();
    for (const wrong of ['text', 3, true, [], [{ a: 1 }]]) {
      const { status, error } = await json(path, { ...body, kv_transfer_params: wrong });
      expect(status).toBe(400);
      expect(error).toMatchObject({ param: 'kv_transfer_params', code: 'invalid_value' });
      expect(error.message).toContain('`kv_transfer_params` must be an object');
    }
    expect(engine.requests).toEqual([]);
  });

  it.each(paths)(
    '%s returns the connector’s kv_transfer_params in the body, or in the chunk that ends a choice',
    async (path, body) => {
      const kvTransferParams = { remote_engine_id: 'e1', remote_block_ids: [4, 5] };
      const { post, json } = await serve({ kvTransferParams: (index) => (index === 0 ? undefined : kvTransferParams) });
      expect(await json(path, body)).not.toHaveProperty('kv_transfer_params');
      expect((await json(path, { ...body, n: 2 })).kv_transfer_params).toMatchObject({
        ...kvTransferParams,
        external_tokens: 0,
      });
      const chunks = events((await post(path, { ...body, n: 2, stream: true })).text);
      const withParams = chunks.filter((chunk) => 'kv_transfer_params' in chunk);
      expect(withParams).toHaveLength(1);
      expect(withParams[0]).toMatchObject({
        kv_transfer_params: kvTransferParams,
        choices: [{ index: 1, finish_reason: 'length' }],
      });
    },
  );

  it('counts promised and failed loads in the usage, and as cached only the reused tokens', async () => {
    const stats = { cachedTokens: 48, externalTokens: 32, computedTokens: 19, recomputedTokens: 16, failedLoads: 1 };
    const { post, json } = await serve({ stats });
    const details = { cached_tokens: 32, external_tokens: 32, recomputed_tokens: 16, failed_loads: 1 };
    const body = { prompt: 'abc', max_tokens: 2 };
    const answer = await json('/v1/completions', body);
    expect(answer.usage.prompt_tokens_details).toEqual(details);
    const { cached_tokens: _, ...loads } = details;
    expect(answer.kv_transfer_params).toEqual({ ...loads, computed_tokens: 19 });
    const streamed = await post('/v1/completions', { ...body, stream: true, stream_options: { include_usage: true } });
    expect(events(streamed.text).at(-1).usage.prompt_tokens_details).toEqual(details);
    // A prompt counts once; recomputed tokens count for each of its completions.
    expect((await json('/v1/completions', { ...body, n: 2 })).usage.prompt_tokens_details).toEqual({
      cached_tokens: 32,
      external_tokens: 32,
      recomputed_tokens: 32,
      failed_loads: 2,
    });
  });

  it('counts promised and failed loads in the log line', async () => {
    const lines: string[] = [];
    const stats = { cachedTokens: 48, externalTokens: 32, recomputedTokens: 16, failedLoads: 1 };
    const { json } = await serve(
      { stats },
      { logLevel: 'info', logDestination: { write: (line) => lines.push(line) } },
    );
    await json('/v1/completions', { prompt: 'abc', max_tokens: 2 });
    const counts = { cachedTokens: 32, externalTokens: 32, recomputedTokens: 16, failedLoads: 1 };
    await expect.poll(() => JSON.parse(lines.at(-1) ?? '{}')).toMatchObject({ msg: 'request', ...counts });
  });
});
