/** Requests that ask for much memory, with a server process that has little: `kvasir serve` with a heap of 96 MiB. */
import { connect, type Socket } from 'node:net';
import { afterEach, beforeAll, expect, it } from 'vitest';
import { buildCommand, killCommands, serve } from '../support/cli-process.ts';

let silent: Socket | undefined;
beforeAll(buildCommand, 60_000);
afterEach(() => {
  silent?.destroy();
  killCommands();
});

const words = (count: number): string =>
  Array.from({ length: count }, (_, i) => ['the', 'cat', 'and'][i % 3]).join(' ');
/** Each choice of the answer repeats the logprobs of the whole prompt. */
const scored = { logprobs: 20, echo: true, prompt_logprobs: 20, max_tokens: 1 };

it('a server refuses requests for answers that are too large, and needs little memory for those that are not', async () => {
  const server = await serve([], { NODE_OPTIONS: '--max-old-space-size=96' });
  const refused = await server.complete({ ...scored, prompt: words(6500), n: 128 });
  expect(refused.status).toBe(400);
  const { error } = (await refused.json()) as { error: { code: string; message: string } };
  expect(error).toMatchObject({ code: 'KVASIR_REQUEST_OVER_MEMORY' });
  expect(error.message).toMatch(/may need \d{9} bytes of memory; the limit is 134217728 /);

  const n = 24;
  const tokens = 700;
  const answer = await server.complete({ ...scored, prompt: words(tokens), n });
  expect(answer.status).toBe(200);
  let bytes = 0;
  for await (const piece of answer.body!) bytes += piece.length;
  expect(bytes).toBeGreaterThan(30_000_000);

  expect((await server.complete({ max_tokens: 1 })).status).toBe(200);
  server.child.kill('SIGTERM');
  expect(await server.exited).toEqual([0, null]);
});

it('a client that reads nothing of 64 completions is dropped after --client-timeout, and others are served meanwhile', async () => {
  const server = await serve(['--client-timeout', '1', '--max-num-seqs', '66', '--log-format', 'json']);
  const { hostname, port } = new URL(server.origin);
  silent = connect(Number(port), hostname);
  const asked = { prompt: 'Once upon a time', max_tokens: 1000, ignore_eos: true, stream: true, n: 64, logprobs: 20 };
  const body = JSON.stringify(asked);
  const head = 'POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json';
  silent.write(`${head}\r\ncontent-length: ${body.length}\r\n\r\n${body}`);
  silent.pause();
  // In the engine beside the 64 completions, before the buffers of the connection are full.
  const others = await Promise.all([1, 2].map(() => server.complete({ max_tokens: 2 })));
  expect(others.map(({ status }) => status)).toEqual([200, 200]);
  await server.logged(/"clientGone":true/);
  const logged = server.log().matchAll(/"status":(\d+)(?:.*"(clientGone)":true)?.*\n/g);
  expect([...logged].map(([, status, gone]) => [status, gone])).toEqual([
    ['200', undefined],
    ['200', undefined],
    ['200', 'clientGone'],
  ]);
  let text = '';
  silent.on('data', (piece) => {
    text += piece;
  });
  // The server resets the connection, because the client has not read everything.
  silent.on('error', () => undefined);
  await new Promise((resolve) => silent!.resume().once('close', resolve));
  expect(text).toMatch(/^HTTP\/1.1 200 /);
  expect(text).not.toContain('[DONE]');
  const metrics = await (await fetch(`${server.origin}/metrics`)).text();
  for (const name of ['running', 'waiting'])
    expect(metrics).toMatch(new RegExp(`^vllm:num_requests_${name}\\{.*\\} 0$`, 'm'));
  await server.stop();
});
