/** A new API is an `Endpoint` and a row in a list: this one asks for letters, and streams each in a line. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LetterEngine, lettersOf } from '../../test/support/letter-engine.ts';
import { checkSampling } from '../core/sampling-parse.ts';
import { modelFormats } from '../engine/chat/conversation.ts';
import type { Endpoint } from './generation/endpoint.ts';
import { GenerationRoute } from './generation/generation-route.ts';
import type { Renderer } from './generation/renderer.ts';
import { bodyReader } from './http/body-reader.ts';
import { type ErrorAnswer, errorAnswer } from './http/server-errors.ts';
import { mountEngine } from './mount.ts';
import { type ServedApp, Server } from './server.ts';

const problem = ({ body: { error } }: ErrorAnswer) => ({ problem: error.message, field: error.param });

const toyEndpoint: Endpoint = {
  path: '/toy/letters',
  about: { summary: 'Letters.', body: { example: { after: 'abc', count: 2 }, reads: [(body) => bodyReader(body)] } },
  idPrefix: 'toy-',
  errorBody: problem,
  read: (body, limits) => {
    const reader = bodyReader(body, limits);
    const after = reader.required('after', reader.string('after'), 'a text');
    const params = checkSampling({ maxTokens: reader.integer('count', { min: 1 }) }, limits.vocabSize);
    const stream = reader.boolean('live') ?? false;
    return {
      ...{ prompts: [after], params, stream, echo: false, ignored: reader.finish(), isStrict: true },
      ...{ includeUsage: false, continuousUsage: false, returnTokenIds: false, addSpecial: true },
      maxTokensDefault: 4,
    };
  },
  render: ({ id, usage }): Renderer => ({
    form: { isLines: true, isPlain: true, ofError: (error) => [problem(errorAnswer(error))], end: () => ['"end"'] },
    chunks: ({ text }) => (text === '' ? [] : [{ letter: text, number: usage.outputTokens }]),
    body: ([choice]) => ({ id, letters: choice?.text, read: usage.promptTokens }),
  }),
};

const toyEndpoints = [toyEndpoint];

function withToys(engine: LetterEngine): ServedApp {
  return {
    register: (app, options) => {
      mountEngine(app, engine, options);
      const { vocabSize, maxModelLen } = engine.model;
      const given = { ...options, ...modelFormats(engine.model, options) };
      const route = new GenerationRoute(engine, { vocabSize, maxModelLen, choicesMax: 1 }, given);
      for (const endpoint of toyEndpoints) route.register(app, endpoint);
    },
    drain: () => engine.drain(),
    close: () => engine.close(),
  };
}

describe('a new API', () => {
  const engine = new LetterEngine();
  const failing = new LetterEngine({ failAtStep: 2 });
  const servers = [engine, failing].map((each) => new Server(withToys(each), { version: '1', logLevel: 'silent' }));
  let origins: string[] = [];
  beforeAll(async () => {
    origins = await Promise.all(
      servers.map(async (server) => `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`),
    );
  });
  afterAll(() => Promise.all(servers.map((server) => server.app.close())));
  const ask = async (body: object, origin = origins[0]!) => {
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(`${origin}/toy/letters`, { method: 'POST', headers, body: JSON.stringify(body) });
    return { status: response.status, type: response.headers.get('content-type'), text: await response.text() };
  };

  it('answers in whole', async () => {
    const { status, text } = await ask({ after: 'abc', count: 2 });
    const id = expect.stringMatching(/^toy-[0-9a-f]{32}$/);
    expect([status, JSON.parse(text)]).toEqual([200, { id, letters: lettersOf(3, 2), read: 3 }]);
    expect(JSON.parse((await ask({ after: 'abc' })).text).letters).toBe(lettersOf(3, 4));
  });

  it('streams', async () => {
    const { type, text } = await ask({ after: 'abc', count: 2, live: true });
    const [first, second] = lettersOf(3, 2);
    const lines = [{ letter: first, number: 1 }, { letter: second, number: 2 }, 'end'];
    expect(type).toBe('application/x-ndjson');
    expect(text.trim().split('\n')).toEqual(lines.map((line) => JSON.stringify(line)));
  });

  it('has its own errors, before a stream and in it', async () => {
    const { status, text } = await ask({ count: 0, after: 'a' });
    expect([status, JSON.parse(text)]).toEqual([
      400,
      { problem: expect.stringContaining('at least 1'), field: 'count' },
    ]);
    const broken = await ask({ after: 'abc', live: true }, origins[1]);
    expect(broken.status).toBe(200);
    expect(JSON.parse(broken.text.trim().split('\n').at(-1)!)).toEqual({ problem: expect.any(String), field: null });
  });
});
