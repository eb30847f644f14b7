import { describe, expect, it } from 'vitest';
import { lettersOf } from '../../../test/support/letter-engine.ts';
import { closeServers, serveLetters } from '../apis/responses/served-letters.suite.ts';

closeServers();

/** The best completions are those with odd numbers; within them the later ones. */
const logprobOf = (index: number, step: number): number => (index % 2 === 1 ? -1 : -4) - 0.01 / (index + step);
const path = '/v1/completions';

describe('best_of', () => {
  it('returns the completions with the highest mean logprob, best first', async () => {
    const { post, engine } = await serveLetters({ logprobOf });
    const { status, body } = await post({ prompt: 'ab', max_tokens: 3, best_of: 4, n: 2 }, path);
    expect(status).toBe(200);
    const choices = body.choices as unknown as { index: number; text: string; logprobs: unknown }[];
    expect(choices.map(({ index, text }) => [index, text])).toEqual([
      [0, lettersOf(2, 3, 3)],
      [1, lettersOf(2, 3, 1)],
    ]);
    expect(choices.map(({ logprobs }) => logprobs)).toEqual([null, null]);
    expect(engine.requests[0]!.params!.n).toBe(4);
  });

  it('counts the tokens of all completions, and chooses for each prompt', async () => {
    const { post } = await serveLetters({ logprobOf });
    const { body } = await post({ prompt: ['ab', 'abc'], max_tokens: 3, best_of: 2, return_token_ids: true }, path);
    const choices = body.choices as unknown as { index: number; text: string; prompt_token_ids: number[] }[];
    expect(choices.map(({ index, text, prompt_token_ids: ids }) => [index, text, ids.length])).toEqual([
      [0, lettersOf(2, 3, 1), 2],
      [1, lettersOf(3, 3, 1), 3],
    ]);
    expect(body.usage).toMatchObject({ prompt_tokens: 5, completion_tokens: 12 });
  });

  it('returns logprobs that are requested', async () => {
    const { post } = await serveLetters({ logprobOf });
    const asked = { prompt: 'ab', max_tokens: 2, best_of: 2, logprobs: 1, prompt_logprobs: 0 };
    const { body } = await post(asked, path);
    const [choice] = body.choices as unknown as [
      { logprobs: { token_logprobs: number[] }; prompt_logprobs: unknown[] },
    ];
    expect(choice.logprobs.token_logprobs).toEqual([logprobOf(1, 1), logprobOf(1, 2)]);
    // The first completion has them, which is not the best.
    expect(choice.prompt_logprobs).toHaveLength(2);
  });

  it.each([
    [{ best_of: 1, n: 2 }, /`best_of` must be at least n \(2\), got 1/],
    [{ best_of: 2, stream: true }, /`best_of` must be equal to n in a stream, got 2/],
    [{ best_of: 0 }, /`best_of` must be an integer from 1 to 128, got 0/],
    [{ best_of: 129 }, /`best_of` must be an integer from 1 to 128, got 129/],
    [{ prompt: ['a', 'b'], best_of: 100 }, /2 prompts times `best_of` = 100 completions; the limit is 128/],
  ])('is refused in %j', async (fields, message) => {
    const { post } = await serveLetters();
    const { status, body } = await post({ prompt: 'ab', ...fields }, path);
    expect(status).toBe(400);
    expect(body.error!.message).toMatch(message);
  });

  it('that equals n changes nothing, also in a stream', async () => {
    const { post, engine } = await serveLetters();
    const { body } = await post({ prompt: 'ab', max_tokens: 3, best_of: 2, n: 2 }, path);
    expect(body.choices).toMatchObject([{ text: lettersOf(2, 3, 0) }, { text: lettersOf(2, 3, 1) }]);
    expect(engine.requests[0]!.params!.logprobs).toBeUndefined();
  });
});

describe('suffix', () => {
  const fimTokens = { prefix: 1, suffix: 2, middle: 3 };
  const bytes = (text: string): number[] => [...Buffer.from(text)];

  it('puts the parts of a text with a gap between the tokens for it', async () => {
    const { post, engine } = await serveLetters({ fimTokens });
    const { body } = await post({ prompt: ['ab', ''], suffix: 'yz', max_tokens: 1 }, path);
    expect(body.error).toBeUndefined();
    await post({ prompt: [[7, 8]], suffix: 'yz', max_tokens: 1 }, path);
    expect(engine.requests.map(({ prompt }) => Array.from(prompt as Int32Array))).toEqual([
      [1, ...bytes('ab'), 2, ...bytes('yz'), 3],
      [1, 2, ...bytes('yz'), 3],
      [1, 7, 8, 2, ...bytes('yz'), 3],
    ]);
  });

  it('that is empty changes nothing', async () => {
    const { post, engine } = await serveLetters();
    expect((await post({ prompt: 'ab', suffix: '', max_tokens: 1 }, path)).status).toBe(200);
    expect(Array.from(engine.requests[0]!.prompt as number[])).toEqual(bytes('ab'));
  });

  it('is refused for a model without such tokens, and together with `echo`', async () => {
    const plain = await serveLetters();
    const { status, body } = await plain.post({ prompt: 'ab', suffix: 'yz' }, path);
    expect(status).toBe(400);
    expect(body.error).toMatchObject({
      param: 'suffix',
      message:
        '`suffix` is not supported by this server: the model `letters` has no tokens for filling in the middle (FIM). Remove the field.',
    });
    const { post } = await serveLetters({ fimTokens });
    const echoed = await post({ prompt: 'ab', suffix: 'yz', echo: true }, path);
    expect(echoed.body.error!.message).toBe('`suffix` must be absent if `echo` is true, got "yz".');
    expect((await post({ prompt: 'ab', suffix: 'x'.repeat(6000) }, path)).body.error).toMatchObject({
      code: 'context_length_exceeded',
    });
  });
});
