import { describe, expect, it } from 'vitest';
import { closeServers, type Json, serveLetters } from '../responses/served-letters.suite.ts';

/** `/infill`: llama-server's API for editors. */
closeServers();

const path = '/infill';
const fimTokens = { prefix: 1, suffix: 2, middle: 3 };
const bytes = (text: string): number[] => [...Buffer.from(text)];
const gap = { input_prefix: 'ab', prompt: 'c', input_suffix: 'yz' };
const extra = [{ filename: 'a.h', text: 'int a;' }, { text: 'b' }];
type Served = Awaited<ReturnType<typeof serveLetters>>;
const promptOf = ({ engine }: Served) => Array.from(engine.requests.at(-1)!.prompt as Int32Array);

describe('the prompt', () => {
  it('has the text before the gap, the line of the cursor and the text after the gap', async () => {
    const served = await serveLetters({ fimTokens });
    await served.post({ ...gap, n_predict: 1 }, path);
    expect(promptOf(served)).toEqual([1, ...bytes('abc'), 2, ...bytes('yz'), 3]);
    await served.post({ input_prefix: '', input_suffix: '', n_predict: 1 }, path);
    expect(promptOf(served)).toEqual([1, 2, 3]);
  });

  it('has other files before it, by the tokens of the model', async () => {
    const served = await serveLetters({ fimTokens: { ...fimTokens, repository: 4, file: 5 } });
    await served.post({ ...gap, input_extra: extra, n_predict: 1 }, path);
    const files = [4, ...bytes('myproject\n'), 5, ...bytes('a.h\nint a;'), 5, ...bytes('tmp\nb')];
    expect(promptOf(served)).toEqual([...files, 5, ...bytes('filename\n'), 1, ...bytes('abc'), 2, ...bytes('yz'), 3]);
  });

  it('has snippets before it, for a model without tokens for files', async () => {
    const served = await serveLetters({ fimTokens });
    await served.post({ ...gap, input_extra: extra, n_predict: 1 }, path);
    const snippet = '\n\n--- snippet ---\n\n';
    const before = bytes(`${snippet}int a;${snippet}b`);
    expect(promptOf(served)).toEqual([...before, 1, ...bytes('abc'), 2, ...bytes('yz'), 3]);
  });

  it('has as much of the other files as there is room for', async () => {
    const served = await serveLetters({ fimTokens, maxModelLen: 20 });
    const { status } = await served.post({ ...gap, input_extra: [{ text: 'x'.repeat(50) }], n_predict: 8 }, path);
    expect([status, promptOf(served)]).toEqual([200, [...bytes('xxxx'), 1, ...bytes('abc'), 2, ...bytes('yz'), 3]]);
    const long = await served.post({ ...gap, input_prefix: 'x'.repeat(50), n_predict: 8 }, path);
    expect(long.body.error).toMatchObject({ code: 'context_length_exceeded' });
  });
});

describe('an answer', () => {
  it("has llama-server's fields", async () => {
    const { post } = await serveLetters({ fimTokens, answer: 'x\ny', stats: { cachedTokens: 2 } });
    const { body } = await post(gap, path);
    expect(body).toEqual({
      index: 0,
      content: 'x\ny',
      tokens: [],
      id_slot: 0,
      stop: true,
      model: 'letters',
      tokens_predicted: 3,
      tokens_evaluated: 8,
      has_new_line: true,
      truncated: false,
      stop_type: 'eos',
      stopping_word: '',
      tokens_cached: 2,
      timings: expect.objectContaining({ cache_n: 2, prompt_n: 6, predicted_n: 3, prompt_ms: expect.any(Number) }),
    });
    const types = async (fields: object) => {
      const { stop_type, stopping_word, content } = (await post({ ...gap, ...fields }, path)).body;
      return [stop_type, stopping_word, content];
    };
    expect(await types({ n_predict: 1 })).toEqual(['limit', '', 'x']);
    expect(await types({ max_tokens: 2, n_predict: -1 })).toEqual(['eos', '', 'x\ny']);
    expect(await types({ stop: ['\n'] })).toEqual(['word', '\n', 'x']);
  });

  it('is streamed as events without [DONE]', async () => {
    const { origin } = await serveLetters({ fimTokens, answer: 'xy' });
    const headers = { 'content-type': 'application/json' };
    const body = JSON.stringify({ ...gap, stream: true });
    const text = await (await fetch(origin + path, { method: 'POST', headers, body })).text();
    const events = text.trimEnd().split('\n\n');
    const parsed = events.map((event): Json => JSON.parse(event.replace(/^data: /, '')));
    expect(parsed.map(({ content, stop }) => [content, stop])).toEqual([
      ['x', false],
      ['y', false],
      ['', true],
    ]);
    expect(parsed.at(-1)).toMatchObject({ tokens_predicted: 2, stop_type: 'eos', timings: { predicted_n: 2 } });
  });

  it('of no tokens computes the prompt only: editors warm the cache so', async () => {
    const { post, engine } = await serveLetters({ fimTokens });
    const { status, body } = await post({ ...gap, n_predict: 0 }, path);
    expect([status, body.content, engine.requests[0]!.params!.maxTokens]).toEqual([200, '', 0]);
  });

  it('has a warning for fields without effect', async () => {
    const { post, engine } = await serveLetters({ fimTokens }, { strictFields: true });
    const fields = { samplers: ['top_k'], t_max_prompt_ms: 500, cache_prompt: true, response_fields: ['content'] };
    const { status, headers } = await post({ ...gap, ...fields, repeat_penalty: 1.1, n_predict: 2 }, path);
    expect([status, headers.get('warning')]).toEqual([
      200,
      '299 kvasir "ignored: cache_prompt, samplers, t_max_prompt_ms, response_fields"',
    ]);
    expect(engine.requests[0]!.params).toMatchObject({ repetitionPenalty: 1.1, maxTokens: 2 });
  });
});

it.each([
  [{ input_suffix: 'a' }, 'input_prefix'],
  [{ input_prefix: 'a' }, 'input_suffix'],
  [{ ...gap, input_prefix: 1 }, 'input_prefix'],
  [{ ...gap, prompt: ['a'] }, 'prompt'],
  [{ ...gap, n: 2 }, 'n'],
  [{ ...gap, n_predict: 1.5 }, 'n_predict'],
  [{ ...gap, input_extra: {} }, 'input_extra'],
  [{ ...gap, input_extra: [{ filename: 'a' }] }, 'input_extra[0].text'],
  [{ ...gap, input_extra: [{ filename: 1, text: 'a' }] }, 'input_extra[0].filename'],
])('refuses %j', async (body, param) => {
  const { post } = await serveLetters({ fimTokens });
  const { status, body: answer } = await post(body, path);
  expect([status, answer.error!.param]).toEqual([400, param]);
});

it('is refused by a model without tokens for it', async () => {
  const { post } = await serveLetters();
  const { status, body } = await post(gap, path);
  expect([status, body.error!.param, body.error!.message]).toEqual([
    400,
    'input_suffix',
    expect.stringContaining('the model `letters` has no tokens for filling in the middle'),
  ]);
});
