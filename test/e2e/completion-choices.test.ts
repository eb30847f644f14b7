import type OpenAI from 'openai';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createEngine } from '../../src/compose.ts';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import { serveEngine } from '../support/served-model.ts';
import { temporaryFolder, writeTinyModel } from '../support/tiny-model.ts';

/** `best_of` and `suffix` with the real engine and OpenAI's client, on a model that has tokens for filling in the middle. */
const folder = temporaryFolder();
const model = 'tiny';

let engine: AsyncEngine;
let close: () => Promise<void>;
let client: OpenAI;

beforeAll(async () => {
  const path = folder.file('tiny.gguf');
  await writeTinyModel(path, { architecture: 'llama', type: 'Q8_0', fillsInMiddle: true });
  engine = await createEngine({ model: path, kvCacheMemory: 64 * 1024 ** 2, threads: 1 });
  ({ client, close } = await serveEngine(engine));
});
afterAll(async () => {
  await close();
  await engine.close();
  folder.remove();
});

it('`suffix` gives the completion of the prompt with the tokens of the vocabulary', async () => {
  const { prefix, suffix, middle } = engine.model.fimTokens!;
  expect([prefix, suffix, middle].map((token) => Buffer.from(engine.tokenBytes(token)).toString())).toEqual([
    '<|reserved_0|>',
    '<|reserved_1|>',
    '<|reserved_2|>',
  ]);
  const body = { model, max_tokens: 12, temperature: 0, return_token_ids: true };
  const filled = await client.completions.create({ ...body, prompt: 'Once upon', suffix: ' a fox.' });
  const [{ prompt_token_ids: ids }] = filled.choices as unknown as [{ prompt_token_ids: number[] }];
  const [bos] = engine.tokenize('');
  const expected = [
    ...[bos, prefix, ...engine.tokenize('Once upon', { addSpecial: false })],
    ...[suffix, ...engine.tokenize(' a fox.', { addSpecial: false }), middle],
  ];
  expect(ids).toEqual(expected);
  const same = await client.completions.create({ ...body, prompt: ids });
  expect(filled.choices[0]!.text).toBe(same.choices[0]!.text);
});

it('`best_of` gives the completions with the highest mean logprob of those with the same seed', async () => {
  const body = { model, prompt: 'Once upon', max_tokens: 10, seed: 5, temperature: 1 };
  const all = await client.completions.create({ ...body, n: 6, logprobs: 0 });
  const mean = ({ logprobs }: OpenAI.CompletionChoice): number => {
    const values = logprobs!.token_logprobs!;
    return values.reduce((sum, value) => sum + value, 0) / values.length;
  };
  const ranked = [...all.choices].sort((a, b) => mean(b) - mean(a)).map(({ text }) => text);
  const best = await client.completions.create({ ...body, best_of: 6, n: 2 });
  expect(best.choices.map(({ text }) => text)).toEqual(ranked.slice(0, 2));
  expect(best.usage!.completion_tokens).toBe(all.usage!.completion_tokens);
  expect(best.choices.map(({ logprobs }) => logprobs)).toEqual([null, null]);
});
