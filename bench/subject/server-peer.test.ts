import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as readText } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ModelInfo } from '../../src/engine/contract.ts';
import { buildCommand, killCommands, serve, smallPool } from '../../test/support/cli-process.ts';
import { itInLongForm } from '../../test/support/long-form.ts';
import { runBench } from '../../test/support/run-bench.ts';
import type { InteractiveRow } from '../interactive/interactive.ts';
import type { LatencyRow } from '../latency/latency.ts';
import type { ThroughputRow } from '../throughput/throughput.ts';
import { plainToken } from './plain-token.ts';
import { RunTimes } from './run-times.ts';
import { ServerPeer } from './server-peer.ts';
import { ServerSubject } from './server-subject.ts';

const { signal } = new AbortController();

/** Compares this process with another one, of which it knows only the URL. */
describe('kvasir bench --peer-url', () => {
  let url: string;
  beforeAll(async () => {
    await buildCommand();
    url = (await serve()).origin;
  }, 120_000);
  afterAll(killCommands);

  const bench = async <Row>(...args: string[]): Promise<Row[]> => {
    const { code, out, err } = await runBench(...args, ...smallPool, '--peer-url', url, '--json');
    expect(err).toContain('ratio');
    expect(code).toBe(0);
    return (JSON.parse(out) as { rows: Row[] }).rows;
  };

  itInLongForm('latency has rows with the figures of the server', async () => {
    const lengths = ['--prompt-len', '24', '--gen-len', '64', '--depth', '0,64', '--repetitions', '1'];
    const rows = await bench<LatencyRow>('latency', ...lengths, '--batch', '1,2');
    expect(rows.map(({ batch, depth, prefill }) => [batch, depth, prefill !== undefined])).toEqual([
      [1, 0, true],
      [1, 64, true],
      [2, 0, false],
      [2, 64, false],
    ]);
    for (const { prefill, decode } of rows) {
      for (const values of prefill === undefined ? [decode] : [prefill, decode]) {
        expect(values.server).toBeGreaterThan(0);
        expect(values.ratio).toBeGreaterThan(0);
      }
    }
  });

  it('throughput of conversations has the figures of the server', async () => {
    const lengths = ['--prompt-len', '20', '--gen-len', '4', '--turns', '2', '--requests', '2', '--repetitions', '1'];
    const [row] = await bench<ThroughputRow>('throughput', '--workload', 'multi-turn', ...lengths);
    expect(row).toMatchObject({ requests: 2, generatedTokens: 16 });
    expect(row?.throughput.server).toBeGreaterThan(0);
    expect(row?.firstTokenMs.server?.p50).toBeGreaterThan(0);
  }, 60_000);

  itInLongForm('interactive compares with the server and with libllama in one run', async () => {
    const lengths = [
      '--prompts',
      '1',
      '--prompt-len',
      '80',
      '--stream-prompt-len',
      '8',
      '--gen-len',
      '6',
      '--short-len',
      '5',
    ];
    const peers = ['--peer', 'libllama', '--peer-url', url];
    const args = ['interactive', ...lengths, ...smallPool, ...peers, '--repetitions', '1', '--json'];
    const { code, out, err } = await runBench(...args);
    expect(code, err).toBe(0);
    const { rows } = JSON.parse(out) as { rows: InteractiveRow[] };
    expect(rows.map(({ name }) => name)).toEqual(['kvasir, auto', 'kvasir, no limit', 'server', 'libllama']);
    for (const { promptTokensPerSecond, shortMs } of rows)
      expect(Math.min(promptTokensPerSecond, shortMs.behind)).toBeGreaterThan(0);
  });

  it('reads token ids and the number of cached tokens', async () => {
    const peer = await ServerPeer.open(`${url}/v1/`, undefined, signal);
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

  it('reports the error of the server for a refused request', async () => {
    const peer = await ServerPeer.open(url, undefined, signal);
    const ask = async () => {
      for await (const chunk of peer.complete(Int32Array.of(-1), 5)) void chunk;
    };
    await expect(ask()).rejects.toThrow(/answered 400 to \/v1\/completions: .*prompt\[0\]/);
  });
});

/**
 * The chunks of llama.cpp's server (v0.5.0) for three tokens of a random model after a prompt of six. Without a bias, it
 * sent only one at the end, because no token was a whole character. With a bias, it sent one for each token.
 */
const recorded = {
  unbiased: [
    '{"choices":[{"text":"","index":0,"logprobs":null,"finish_reason":"length"}],"usage":{"completion_tokens":3,"prompt_tokens":6,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":0}},"timings":{"cache_n":0,"prompt_n":6}}',
    '[DONE]',
  ],
  biased: [
    '{"choices":[{"text":"@","index":0,"logprobs":null,"finish_reason":null}],"object":"text_completion"}',
    '{"choices":[{"text":"@","index":0,"logprobs":null,"finish_reason":null}],"object":"text_completion"}',
    '{"choices":[{"text":"@","index":0,"logprobs":null,"finish_reason":null}],"object":"text_completion"}',
    '{"choices":[{"text":"","index":0,"logprobs":null,"finish_reason":"length"}],"usage":{"completion_tokens":3,"prompt_tokens":6,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":5}},"timings":{"cache_n":5,"prompt_n":1}}',
    '[DONE]',
  ],
};

describe("llama.cpp's server", () => {
  const server = createServer(async (request, response) => {
    if (request.url === '/v1/models') return response.end('{"data":[{"id":"m"}]}');
    const { logit_bias: bias } = JSON.parse(await readText(request)) as { logit_bias?: Record<string, number> };
    const chunks = recorded[bias?.['64'] === 100 ? 'biased' : 'unbiased'];
    const bytes = Buffer.from(chunks.map((data) => `data: ${data}\n\n`).join(''));
    // Chunks of 7 bytes end in the middle of lines.
    for (let at = 0; at < bytes.length; at += 7) response.write(bytes.subarray(at, at + 7));
    return response.end();
  });
  const origin = (): string => `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  beforeAll(async () => {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
  });
  afterAll(() => server.close());

  const prompt = Int32Array.of(100, 200, 300, 400, 500, 600);
  const seenOf = async (answerToken: number | undefined) => {
    const peer = await ServerPeer.open(origin(), answerToken, signal);
    const seen = [];
    for await (const { tokens, cachedTokens } of peer.complete(prompt, 3)) seen.push([tokens, cachedTokens]);
    return seen;
  };

  it('sends a chunk for each token with a bias', async () => {
    expect(await seenOf(64)).toEqual([
      [[64], undefined],
      [[64], undefined],
      [[64], undefined],
      [[], 5],
    ]);
  });

  it('without a bias sends the count of tokens only in the usage', async () => {
    expect(await seenOf(undefined)).toEqual([[[0, 0, 0], 0]]);
  });

  it('causes an error if it counts other prompt tokens or sends too many tokens', async () => {
    const peer = await ServerPeer.open(origin(), 64, signal);
    const ask = async () => {
      for await (const chunk of peer.complete(prompt.subarray(1), 3)) void chunk;
    };
    await expect(ask()).rejects.toThrow('read 6 tokens where 5 were sent');
    const turns = [{ prompt, generateLength: 2 }];
    const run = new ServerSubject(peer, 100, 1).run(
      { prefix: new Int32Array(), conversations: [turns] },
      new RunTimes(),
    );
    await expect(run).rejects.toThrow('after 3 of 2 tokens');
  });

  it('causes an error if it does not answer', async () => {
    const gone = origin();
    server.close();
    await once(server, 'close');
    await expect(ServerPeer.open(gone, undefined, signal)).rejects.toThrow(/does not answer: \w/);
  });
});

it('a plain token is one printable ASCII character', () => {
  const texts = ['', ' ', 'ab', '\u00e9', 'x', 'y'];
  const engine = (vocabSize: number) => ({
    model: { vocabSize } as ModelInfo,
    detokenize: (tokens: ArrayLike<number>) => texts[tokens[0]!]!,
  });
  expect(plainToken(engine(6))).toBe(4);
  expect(plainToken(engine(3))).toBeUndefined();
});
