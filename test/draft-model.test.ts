/**
 * Exact speculation with a draft model (I2): the texts of an engine with a draft model equal those without, whatever the draft model
 * drafts.
 */
import { afterAll, expect, it } from 'vitest';
import type { AsyncEngine } from '../src/engine/contract.ts';
import type { EngineOptions } from '../src/engine/options.ts';
import { textOf, textsOf, withDraftingEngine } from './support/speculated-texts.ts';
import { temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());
const models = {
  target: folder.file('target.gguf'),
  other: folder.file('other.gguf'),
  states: folder.file('states.gguf'),
  vocabulary: folder.file('vocabulary.gguf'),
};
await writeTinyModel(models.target, { architecture: 'llama', type: 'Q8_0' });
await writeTinyModel(models.other, { architecture: 'qwen3', type: 'Q8_0', seed: 9 });
await writeTinyModel(models.states, { architecture: 'lfm2', type: 'Q8_0' });
await writeTinyModel(models.vocabulary, { architecture: 'llama', type: 'Q8_0', vocab: 600 });

const withEngine = <T>(options: Partial<EngineOptions>, use: (engine: AsyncEngine) => Promise<T>): Promise<T> =>
  withDraftingEngine({ model: models.target, ...options }, use);

const speculativeConfig = (model: string) => ({ model, num_speculative_tokens: 5 });

it('a draft model changes no text, alone and in a batch, whether its drafts are right or wrong', async () => {
  const plain = await withEngine({}, (engine) => textsOf(engine, false));
  for (const draft of [models.target, models.other])
    await withEngine({ speculativeConfig: speculativeConfig(draft) }, async (engine) => {
      expect(await textsOf(engine, false)).toEqual(plain);
      expect(await textsOf(engine, true)).toEqual(plain);
      // The draft model computes a new prompt beside the steps, so a short text may end before its first draft. A model drafts its own
      // greedy text.
      const isRight = draft === models.target;
      while (engine.stats()[isRight ? 'acceptedTokens' : 'draftedTokens'] === 0)
        expect(await textOf(engine, 0)).toBe(plain[0]);
    });
});

it('a draft model with another vocabulary is refused before the model is loaded, and the message names the first token that differs', async () => {
  const onProgress = (): never => expect.unreachable('weights were read');
  const options = { speculativeConfig: speculativeConfig(models.vocabulary), onProgress };
  const refused = withEngine(options, () => Promise.resolve());
  await expect(refused).rejects.toMatchObject({
    code: 'KVASIR_DRAFT_VOCABULARY_DIFFERS',
    message: expect.stringMatching(/has another vocabulary than .*target\.gguf: token \d+ differs/) as string,
  });
});

it('a draft model that does not exist is refused', async () => {
  const refused = withEngine({ speculativeConfig: speculativeConfig(folder.file('none.gguf')) }, () =>
    Promise.resolve(),
  );
  await expect(refused).rejects.toThrow('none.gguf');
});

it('a model with states warns and opens no draft model', async () => {
  const messages: string[] = [];
  const onEvent: EngineOptions['onEvent'] = ({ message }) => messages.push(message);
  const options = { model: models.states, speculativeConfig: speculativeConfig(models.other), onEvent };
  await withEngine(options, async (engine) => {
    for await (const _ of engine.generate({ prompt: 'A', params: { maxTokens: 3 } }));
    expect(engine.stats().draftedTokens).toBe(0);
  });
  expect(messages.join()).toContain('Speculation is off');
});

it('an engine closes while its draft model drafts, and the rest of an aborted text is not needed', async () => {
  await withEngine({ speculativeConfig: speculativeConfig(models.target) }, async (engine) => {
    const params = { maxTokens: 100, ignoreEos: true };
    for await (const { stats } of engine.generate({ prompt: 'Once', params })) if (stats.outputTokens > 3) break;
    const cut = engine.generate({ prompt: 'Twice', params })[Symbol.asyncIterator]();
    await cut.next();
  });
});
