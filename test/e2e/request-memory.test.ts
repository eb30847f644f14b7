/** Requests that ask for much memory, with a server process that has little: `kvasir serve` with a heap of 96 MiB. */
import { afterEach, beforeAll, expect, it } from 'vitest';
import { buildCommand, killCommands, serve } from '../support/cli-process.ts';

beforeAll(buildCommand, 60_000);
afterEach(killCommands);

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
