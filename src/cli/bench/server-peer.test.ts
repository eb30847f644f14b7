import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildCommand, killCommands, run, serve, smallPool } from '../../../test/support/cli-process.ts';
import type { LatencyRow } from './latency.ts';
import { ServerPeer } from './server-peer.ts';
import type { ThroughputRow } from './throughput.ts';

const { signal } = new AbortController();

/** A Kvasir process is compared with another one, which it knows by its URL alone. */
describe('kvasir bench --peer-url', () => {
  let url: string;
  beforeAll(async () => {
    await buildCommand();
    url = (await serve()).origin;
  }, 120_000);
  afterAll(killCommands);

  const bench = async <Row>(...args: string[]): Promise<Row[]> => {
    const { code, stdout, stderr } = await run(['bench', ...args, ...smallPool, '--peer-url', url, '--json']);
    expect(stderr).toContain('ratio');
    expect(code).toBe(0);
    return (JSON.parse(stdout) as { rows: Row[] }).rows;
  };

  it('latency', async () => {
    const lengths = ['--prompt-len', '24', '--gen-len', '4', '--depth', '0,64', '--repetitions', '1'];
    const rows = await bench<LatencyRow>('latency', ...lengths);
    expect(rows).toHaveLength(2);
    for (const { prefill, decode } of rows) {
      expect(prefill.server).toBeGreaterThan(0);
      expect(decode.server).toBeGreaterThan(0);
      expect(decode.ratio).toBeGreaterThan(0);
    }
  }, 60_000);

  it('throughput of conversations', async () => {
    const lengths = ['--prompt-len', '20', '--gen-len', '4', '--turns', '2', '--requests', '2', '--repetitions', '1'];
    const [row] = await bench<ThroughputRow>('throughput', '--workload', 'multi-turn', ...lengths);
    expect(row).toMatchObject({ requests: 2, generatedTokens: 16 });
    expect(row?.throughput.server).toBeGreaterThan(0);
    expect(row?.firstTokenMs.server?.p50).toBeGreaterThan(0);
  }, 60_000);

  it('names its tokens, and says what it had cached', async () => {
    const peer = await ServerPeer.open(`${url}/v1/`, signal);
    const prompt = Int32Array.from({ length: 40 }, (_, i) => i + 1);
    const answers = [];
    for (let i = 0; i < 2; i++) {
      const tokens: number[] = [];
      let cached: number | undefined;
      for await (const chunk of peer.complete(prompt, 5)) {
        tokens.push(...chunk.tokens);
        cached = chunk.cachedTokens ?? cached;
      }
      answers.push({ tokens, cached });
    }
    expect(answers[0]?.tokens).toHaveLength(5);
    expect(answers[1]?.tokens).toEqual(answers[0]?.tokens);
    expect(answers.map(({ cached }) => cached)).toEqual([0, 32]);
  });

  it('passes on what the server has against a request', async () => {
    const peer = await ServerPeer.open(url, signal);
    const ask = async () => {
      for await (const chunk of peer.complete(Int32Array.of(-1), 5)) void chunk;
    };
    await expect(ask()).rejects.toThrow(/answered 400 to \/v1\/completions: .*prompt\[0\]/);
  });
});

/** Chunks as llama.cpp's server sends them: text, no tokens' names, a count and timings at the end. */
describe('a server that does not name its tokens', () => {
  const chunks = [
    '{"choices":[{"text":" a","index":0,"finish_reason":null}]}',
    // Two tokens were needed for one character.
    '{"choices":[{"text":"\u00e9","index":0,"finish_reason":null}]}',
    '{"choices":[{"text":"","index":0,"finish_reason":"length"}]}',
    '{"choices":[],"usage":{"completion_tokens":3,"prompt_tokens":9},"timings":{"cache_n":7}}',
    '[DONE]',
  ];
  const server = createServer((request, response) => {
    if (request.url === '/v1/models') response.end('{"data":[{"id":"m"}]}');
    // Cut in the middle of lines and of a character.
    else {
      const bytes = Buffer.from(chunks.map((data) => `data: ${data}\n\n`).join(''));
      for (let at = 0; at < bytes.length; at += 7) response.write(bytes.subarray(at, at + 7));
      response.end();
    }
  });
  beforeAll(async () => {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
  });
  afterAll(() => server.close());

  it('is counted by its usage', async () => {
    const peer = await ServerPeer.open(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, signal);
    const seen = [];
    for await (const { tokens, cachedTokens } of peer.complete(Int32Array.of(1), 3))
      seen.push([tokens.length, cachedTokens]);
    expect(seen).toEqual([
      [1, undefined],
      [1, undefined],
      [0, undefined],
      [1, 7],
    ]);
  });

  it('is told from one that is not there', async () => {
    const { port } = server.address() as AddressInfo;
    server.close();
    await once(server, 'close');
    await expect(ServerPeer.open(`http://127.0.0.1:${port}`, signal)).rejects.toThrow(/does not answer: \w/);
  });
});
