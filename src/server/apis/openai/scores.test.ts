import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LetterEngine } from '../../../../test/support/letter-engine.ts';
import { Server } from '../../server.ts';

/** The score of this engine is the length of the document minus that of the query, or the similarity of embeddings. */
const servers: Server[] = [];
const origins: Record<'reranker' | 'embeddings' | 'text', string> = { reranker: '', embeddings: '', text: '' };

async function listen(engine: LetterEngine): Promise<string> {
  const server = new Server(engine, { version: '0.0.0', logLevel: 'silent', choicesMax: 2, strictFields: true });
  servers.push(server);
  return `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
}
beforeAll(async () => {
  origins.reranker = await listen(new LetterEngine({ isReranker: true }));
  origins.embeddings = await listen(new LetterEngine({ pooling: 'last' }));
  origins.text = await listen(new LetterEngine());
});
afterAll(async () => {
  for (const server of servers) await server.app.close();
});

async function post(path: string, body: unknown, to: keyof typeof origins = 'reranker') {
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(origins[to] + path, { method: 'POST', headers, body: JSON.stringify(body) });
  return { status: response.status, ...JSON.parse(await response.text()) };
}
const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));

describe('/rerank, /v1/rerank and /v2/rerank', () => {
  const documents = ['short', 'the longest document', 'a document'];

  it('answer with the documents, the most relevant first', async () => {
    for (const path of ['/rerank', '/v1/rerank', '/v2/rerank']) {
      const { status, id, model, usage, results } = await post(path, { model: 'letters', query: 'fox', documents });
      expect({ status, model }).toEqual({ status: 200, model: 'letters' });
      expect(id).toMatch(/^score-[0-9a-f]{32}$/);
      // Three tokens are around the texts.
      const tokens = documents.reduce((sum, text) => sum + text.length + 3 + 3, 0);
      expect(usage).toEqual({ prompt_tokens: tokens, total_tokens: tokens });
      expect(results).toEqual(
        [1, 2, 0].map((index) => ({
          index,
          document: { text: documents[index], multi_modal: null },
          relevance_score: sigmoid(documents[index]!.length - 3),
        })),
      );
    }
  });

  it('answer with the first few, without documents, and with the values of the model, if asked', async () => {
    const asked = { query: 'fox', documents: documents.map((text) => ({ text })), use_activation: false };
    const { results } = await post('/v1/rerank', { ...asked, top_n: 2, return_documents: false });
    expect(results).toEqual([
      { index: 1, relevance_score: 17 },
      { index: 2, relevance_score: 7 },
    ]);
    expect((await post('/v1/rerank', { ...asked, top_n: 9 })).results).toHaveLength(3);
  });

  it('answer `texts` as Text Embeddings Inference does', async () => {
    const list = async (fields: object) =>
      Object.values(await post('/rerank', { query: 'fox', texts: documents, ...fields })).filter(
        (item) => typeof item === 'object',
      );
    expect(await list({ raw_scores: true })).toEqual([
      { index: 1, score: 17 },
      { index: 2, score: 7 },
      { index: 0, score: 2 },
    ]);
    expect(await list({ return_text: true, top_n: 1 })).toEqual([{ index: 1, text: documents[1], score: sigmoid(17) }]);
    expect(await post('/rerank', { query: 'fox', texts: [1] })).toMatchObject({
      status: 400,
      error: { param: 'texts[0]' },
    });
  });

  it('compare embeddings if the model makes them', async () => {
    const { results } = await post('/rerank', { query: 'abc', documents: ['xyz', 'abc'] }, 'embeddings');
    expect(results.map(({ index }: { index: number }) => index)).toEqual([1, 0]);
    expect(results[0].relevance_score).toBeCloseTo(1, 6);
  });
});

describe('/score and /v1/score', () => {
  it('pair one text with each of the others, or texts of equal number', async () => {
    for (const path of ['/score', '/v1/score']) {
      const { status, object, data } = await post(path, { text_1: 'ab', text_2: ['abcd', 'a'], use_activation: false });
      expect({ status, object }).toEqual({ status: 200, object: 'list' });
      expect(data).toEqual([
        { index: 0, object: 'score', score: 2 },
        { index: 1, object: 'score', score: -1 },
      ]);
    }
    const names = [
      ['text_1', 'text_2'],
      ['queries', 'documents'],
      ['queries', 'items'],
      ['data_1', 'data_2'],
    ] as const;
    for (const [one, two] of names) {
      const { data } = await post('/score', { [one]: ['a', 'abc'], [two]: ['ab', 'a'], use_activation: false });
      expect(data.map(({ score }: { score: number }) => score)).toEqual([1, -2]);
    }
  });

  it('cut documents that are too long, if the request says so', async () => {
    const long = { text_1: 'ab', text_2: 'x'.repeat(999) };
    const { status, error } = await post('/score', long);
    expect({ status, code: error.code }).toEqual({ status: 400, code: 'context_length_exceeded' });
    expect((await post('/score', { ...long, truncate_prompt_tokens: -1 })).usage.prompt_tokens).toBe(256);
  });
});

it.each([
  ['no query', '/rerank', { documents: ['a'] }, 'query', /required/],
  ['no documents', '/rerank', { query: 'a' }, 'documents', /a text or a list of texts/],
  ['an empty list', '/rerank', { query: 'a', documents: [] }, null, /empty/],
  ['an empty document', '/rerank', { query: 'a', documents: ['a', ''] }, null, /empty/],
  ['a number as document', '/rerank', { query: 'a', documents: ['a', 3] }, 'documents[1]', /a string/],
  ['an image', '/rerank', { query: 'a', documents: [{ content: [] }] }, 'documents[0]', /a string/],
  [
    'too many documents',
    '/rerank',
    { query: 'a', documents: Array(2049).fill('a') },
    null,
    /2049 items of `documents`/,
  ],
  ['a negative top_n', '/rerank', { query: 'a', documents: ['a'], top_n: -1 }, 'top_n', /at least 0|from 0/],
  [
    'a limit of tokens per document',
    '/rerank',
    { query: 'a', documents: ['a'], max_tokens_per_doc: 2 },
    'max_tokens_per_doc',
    /not supported/,
  ],
  ['an instruction', '/score', { text_1: 'a', text_2: 'b', instruction: 'x' }, 'instruction', /not supported/],
  ['texts of other numbers', '/score', { text_1: ['a', 'b'], text_2: ['a'] }, 'text_2', /each of the 2 texts/],
  ['no texts', '/score', {}, 'text_1', /required/],
  ['an unknown field', '/score', { text_1: 'a', text_2: 'b', top_m: 1 }, 'top_m', /top_m/],
] as const)('refuses %s', async (_, path, body, param, message) => {
  const { status, error } = await post(path, body);
  expect({ status, param: error.param }).toEqual({ status: 400, param });
  expect(error.message).toMatch(message);
});

it('says what a model cannot do', async () => {
  const rerank = await post('/rerank', { query: 'a', documents: ['b'] }, 'text');
  expect(rerank.error.code).toBe('KVASIR_POOLING_MISSING');
  const embeddings = await post('/v1/embeddings', { input: 'a' });
  expect([embeddings.status, embeddings.error.code]).toEqual([400, 'KVASIR_SCORES_ONLY']);
  expect(await post('/rerank', { model: 'other', query: 'a', documents: ['b'] })).toMatchObject({ status: 404 });
});
