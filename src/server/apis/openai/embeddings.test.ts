import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LetterEngine } from '../../../../test/support/letter-engine.ts';
import { Server } from '../../server.ts';

/** In this engine, an embedding is the length of the prompt, its last token, 0.5 and -0.25; normalised if requested. */
const servers: Server[] = [];
let origin: string;
let withoutPooling: string;

async function listen(engine: LetterEngine): Promise<string> {
  const server = new Server(engine, { version: '0.0.0', logLevel: 'silent', choicesMax: 2, strictFields: true });
  servers.push(server);
  return `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
}
beforeAll(async () => {
  origin = await listen(new LetterEngine({ pooling: 'last' }));
  withoutPooling = await listen(new LetterEngine());
});
afterAll(async () => {
  for (const server of servers) await server.app.close();
});

async function embed(body: unknown, to = origin) {
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(`${to}/v1/embeddings`, { method: 'POST', headers, body: JSON.stringify(body) });
  return { status: response.status, ...JSON.parse(await response.text()) };
}
const raw = (vectors: { embedding: number[] }[]) => vectors.map(({ embedding }) => embedding);

describe('/v1/embeddings', () => {
  it('takes a text, a list of texts, tokens, and a list of lists of tokens', async () => {
    const normalize = false;
    expect(raw((await embed({ input: 'ab', normalize })).data)).toEqual([[2, 98, 0.5, -0.25]]);
    expect(raw((await embed({ input: [7, 8, 9], normalize })).data)).toEqual([[3, 9, 0.5, -0.25]]);
    const { data, usage, object, model, id } = await embed({ input: ['a', 'bc', 'def'], normalize });
    expect(raw(data).map(([length]) => length)).toEqual([1, 2, 3]);
    expect(data.map(({ index, object }: { index: number; object: string }) => `${object} ${index}`)).toEqual(
      [0, 1, 2].map((index) => `embedding ${index}`),
    );
    expect({ object, model }).toEqual({ object: 'list', model: 'letters' });
    expect(id).toMatch(/^embd-[0-9a-f]{32}$/);
    expect(usage).toEqual({ prompt_tokens: 6, total_tokens: 6, prompt_tokens_details: { cached_tokens: 0 } });
    expect(raw((await embed({ input: [[1], [2, 3]], normalize })).data)).toEqual([
      [1, 1, 0.5, -0.25],
      [2, 3, 0.5, -0.25],
    ]);
  });

  it('normalises, also after a cut to the first dimensions', async () => {
    const [whole] = raw((await embed({ input: [3, 4, 4] })).data);
    expect(whole!.reduce((sum, value) => sum + value * value, 0)).toBeCloseTo(1, 6);
    expect(raw((await embed({ input: [9, 9, 4], dimensions: 2 })).data)).toEqual([
      [Math.fround(0.6), Math.fround(0.8)],
    ]);
  });

  it('encodes the values as base64 of F32', async () => {
    const { data } = await embed({ input: 'ab', encoding_format: 'base64', normalize: false });
    const bytes = Buffer.from(data[0].embedding, 'base64');
    expect([0, 4, 8, 12].map((at) => bytes.readFloatLE(at))).toEqual([2, 98, 0.5, -0.25]);
  });

  it.each([
    ['no input', {}, 'input', /`input` is required/],
    ['an empty input', { input: '' }, null, /prompt is empty/],
    ['an empty list', { input: [] }, null, /prompt is empty/],
    ['an empty text in a list', { input: ['a', ''] }, null, /prompt is empty/],
    ['an object', { input: {} }, 'input', /a string, a list of strings/],
    ['a token outside the vocabulary', { input: [[1], [999]] }, 'input[1][0]', /a token id from 0/],
    ['mixed inputs', { input: ['a', [1]] }, 'input[1]', /a string/],
    ['too many inputs', { input: Array(2049).fill('a') }, null, /2049 items of `input`/],
    ['an input beyond the context', { input: Array(300).fill(1) }, null, /300 tokens/],
    ['another encoding', { input: 'a', encoding_format: 'int8' }, 'encoding_format', /"float" or "base64"/],
    ['no dimensions', { input: 'a', dimensions: 0 }, 'dimensions', /from 1 to 4, got 0/],
    ['too many dimensions', { input: 'a', dimensions: 5 }, 'dimensions', /from 1 to 4, got 5/],
    ['half a dimension', { input: 'a', dimensions: 1.5 }, 'dimensions', /from 1 to 4, got 1.5/],
    ['dimensions in words', { input: 'a', dimensions: 'all' }, 'dimensions', /from 1 to 4, got "all"/],
    ['normalize in words', { input: 'a', normalize: 'yes' }, 'normalize', /true or false/],
    ['an empty salt', { input: 'a', cache_salt: '' }, 'cache_salt', /non-empty/],
    ['a wrong priority', { input: 'a', priority: 0.5 }, 'priority', /an integer/],
    ['a truncation to nothing', { input: 'a', truncate_prompt_tokens: 0 }, 'truncate_prompt_tokens', /-1 or a number/],
    [
      'a truncation beyond the context',
      { input: 'a', truncate_prompt_tokens: 999 },
      'truncate_prompt_tokens',
      /to 256/,
    ],
    ['another side', { input: 'a', truncation_side: 'both' }, 'truncation_side', /"left" or "right"/],
    ['an unknown field', { input: 'a', dimension: 3 }, 'dimension', /Did you mean `dimensions`/],
  ] as const)('refuses %s', async (_, body, param, message) => {
    const { status, error } = await embed(body);
    expect({ status, param: error.param }).toEqual({ status: 400, param });
    expect(error.message).toMatch(message);
  });

  it('cuts inputs that are too long, if the request says so', async () => {
    const vectors = async (body: object) => raw((await embed({ ...body, normalize: false })).data);
    expect(await vectors({ input: 'abcd', truncate_prompt_tokens: 3 })).toEqual([[3, 99, 0.5, -0.25]]);
    expect(await vectors({ input: [1, 2, 3, 4], truncate_prompt_tokens: 3, truncation_side: 'left' })).toEqual([
      [3, 4, 0.5, -0.25],
    ]);
    expect(await vectors({ input: 'x'.repeat(999), truncate_prompt_tokens: -1 })).toEqual([[256, 120, 0.5, -0.25]]);
  });

  it('names the length of an input that is too long', async () => {
    for (const input of ['x'.repeat(257), Array(257).fill(7), ['a', 'x'.repeat(257)], [[1], Array(257).fill(7)]]) {
      const { status, error } = await embed({ input });
      expect([status, error.code]).toEqual([400, 'context_length_exceeded']);
      expect(error.message).toMatch(
        /maximum context length is 256 tokens\. However, you requested 257 tokens in the input\. Reduce the length of the input/,
      );
    }
    expect((await embed({ input: Array(256).fill(7) })).status).toBe(200);
  });

  it('refuses another model, and says what to do if the model has no pooling', async () => {
    expect(await embed({ input: 'a', model: 'gpt' })).toMatchObject({ status: 404 });
    const { status, error } = await embed({ input: 'a' }, withoutPooling);
    expect({ status, code: error.code }).toEqual({ status: 400, code: 'KVASIR_POOLING_MISSING' });
    expect(error.message).toMatch(/letters.*--pooling mean, cls or last/);
  });
});
