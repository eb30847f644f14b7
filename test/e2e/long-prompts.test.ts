import { request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createEngine } from '../../src/compose.ts';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import { Server } from '../../src/server/server.ts';
import { inLongForm } from '../support/long-form.ts';
import { temporaryFolder, writeTinyModel } from '../support/tiny-model.ts';
import { until } from '../support/until.ts';

/** A prompt of 1.5 million characters does not delay other requests. Engine and sockets are real. */
const folder = temporaryFolder();
const sentence = 'the quick brown fox jumps over the lazy dog. ';
const long = sentence.repeat(34_000);

let engine: AsyncEngine;
let server: Server;
let port = 0;
/** Errors. */
const logged: string[] = [];

beforeAll(async () => {
  const model = folder.file('tiny.gguf');
  await writeTinyModel(model, { architecture: 'llama', type: 'Q8_0', context: 262_144, layers: 1 });
  engine = await createEngine({ model, threads: 1, maxModelLen: 200_000, kvCacheMemory: 256 * 1024 ** 2 });
  const logDestination = { write: (line: string) => void logged.push(line) };
  server = new Server(engine, { version: '0.0.0', logLevel: 'error', logDestination });
  port = await server.listen(0, '127.0.0.1');
});
afterAll(async () => {
  await server.app.close();
  await engine.close();
  folder.remove();
});

interface Answer {
  readonly status: number;
  readonly body: {
    readonly error: { readonly code: string; readonly message: string };
    readonly count: number;
    readonly tokens: readonly number[];
    readonly prompt: string;
  };
}

/** Not `fetch`: one connection for each request, and `abort` closes it. */
function post(path: string, body: object, signal?: AbortSignal): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const sent = request(
      {
        port,
        path,
        method: 'POST',
        agent: false,
        headers: { 'content-type': 'application/json' },
        ...(signal && { signal }),
      },
      (response) => {
        let text = '';
        response.setEncoding('utf8');
        response.on('data', (part: string) => {
          text += part;
        });
        response.on('end', () => resolve({ status: response.statusCode!, body: JSON.parse(text) }));
      },
    );
    sent.on('error', reject);
    sent.end(JSON.stringify(body));
  });
}

/** Waits until a long prompt is being tokenized. If the event loop's thread tokenized it, no test could observe this state. */
async function untilTokenizing(answer: Promise<unknown>): Promise<void> {
  let isAnswered: boolean = false;
  const settle = () => {
    isAnswered = true;
  };
  void answer.then(settle, settle);
  await until(() => engine.stats().waiting > 0 || isAnswered);
  expect(isAnswered).toBe(false);
}

const texts: [string, string, object][] = [
  ['a text', '/v1/completions', { prompt: long, max_tokens: 1 }],
  ['a message', '/v1/chat/completions', { messages: [{ role: 'user', content: long }], max_tokens: 1 }],
  ['a text to tokenize', '/tokenize', { prompt: long }],
];
describe.each(inLongForm(texts, texts.slice(1)))('%s of 1.5 million characters', (_, path, body) => {
  it('is tokenized while other requests are answered', async () => {
    const { body: counted } = await post('/tokenize', { prompt: sentence.repeat(10) });
    const answer = post(path, body);
    await untilTokenizing(answer);
    const short = await post('/v1/completions', { prompt: 'the fox', max_tokens: 4, temperature: 0 });
    expect(short.status).toBe(200);
    expect(engine.stats().waiting).toBe(1);
    let turns = 0;
    for (; engine.stats().waiting > 0; turns++) await sleep(1);
    expect(turns).toBeGreaterThan(10);
    const { status, body: result } = await answer;
    if (path !== '/tokenize') {
      expect(status).toBe(400);
      expect(result.error.code).toBe('context_length_exceeded');
    } else {
      expect(status).toBe(200);
      expect(result.count).toBe(result.tokens.length);
      expect(result.count).toBeGreaterThan(counted.count * 3000);
    }
  });

  it('is dropped when its client disconnects', async () => {
    const controller = new AbortController();
    const answer = post(path, body, controller.signal);
    const rejected = expect(answer).rejects.toMatchObject({ name: 'AbortError' });
    await untilTokenizing(answer);
    controller.abort();
    await rejected;
    await until(() => engine.stats().waiting === 0);
    expect((await post('/v1/completions', { prompt: 'the fox', max_tokens: 1 })).status).toBe(200);
    expect(logged).toEqual([]);
  });
});

describe('a prompt that is too long is rejected before it is tokenized', () => {
  const tooLong = async (path: string, body: object) => {
    const answer = post(path, body);
    let hasWaited: boolean = false;
    let isAnswered: boolean = false;
    void answer.finally(() => {
      isAnswered = true;
    });
    while (!isAnswered) {
      hasWaited ||= engine.stats().waiting > 0;
      await sleep(1);
    }
    // The text thread never had it, and tokenizing it on the event loop would take a second.
    expect(hasWaited).toBe(false);
    return (await answer).body.error;
  };

  it('if a text has more bytes than the largest prompt can have', async () => {
    const error = await tooLong('/v1/completions', { prompt: 'x'.repeat(7_000_000) });
    expect(error).toMatchObject({
      code: 'context_length_exceeded',
      message: expect.stringMatching(/at least \d+ tokens/),
    });
  });

  it('if it has too many token ids, even invalid ones', async () => {
    const error = await tooLong('/v1/completions', { prompt: new Array(300_000).fill(-1) });
    expect(error).toMatchObject({ message: expect.stringContaining('300000') });
  });

  it('if a conversation has more messages than the context has tokens', async () => {
    const messages = new Array(200_001).fill({ role: 'nobody' });
    const error = await tooLong('/v1/chat/completions', { messages });
    expect(error).toMatchObject({ message: expect.stringContaining('from 1 to 200000') });
  });
});

it('a long conversation is rendered while other requests are answered', async () => {
  const messages = Array.from({ length: 5000 }, (_, i) => ({
    role: i % 2 ? 'assistant' : 'user',
    content: sentence,
  }));
  let isAnswered: boolean = false;
  const answer = post('/tokenize', { messages }).finally(() => {
    isAnswered = true;
  });
  let answeredMeanwhile = 0;
  while (!isAnswered) {
    expect((await post('/v1/completions', { prompt: 'the fox', max_tokens: 1 })).status).toBe(200);
    if (!isAnswered) answeredMeanwhile++;
  }
  expect(answeredMeanwhile).toBeGreaterThan(0);
  expect((await answer).status).toBe(200);
});

it('/detokenize returns the text of more than 16384 tokens', async () => {
  const tokens = engine.tokenize(sentence.repeat(2000), { addSpecial: false });
  expect(tokens.length).toBeGreaterThan(16_384);
  expect((await post('/detokenize', { tokens })).body.prompt === sentence.repeat(2000)).toBe(true);
});
