/**
 * Exact speculation with a draft model (I2): the texts of an engine with a draft model equal those without, whatever the draft model
 * drafts.
 */
import { afterAll, expect, it } from 'vitest';
import type { Clock } from '../src/base/clock.ts';
import { openMeasuredEngine } from '../src/compose.ts';
import type { SamplingOptions } from '../src/core/sampling.ts';
import type { AsyncEngine } from '../src/engine/contract.ts';
import type { EngineOptions } from '../src/engine/options.ts';
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

const prompts = ['Once upon a time', 'The little dog', 'A', 'She said'];
const samplings: SamplingOptions[] = [
  { maxTokens: 40, temperature: 0 },
  { maxTokens: 40, temperature: 0.8, seed: 3n },
  { maxTokens: 30, temperature: 0.7, seed: 4n, repetitionPenalty: 1.2, presencePenalty: 0.4 },
  { maxTokens: 30, temperature: 0.5, seed: 5n, structuredOutputs: { regex: '[a-z ]{20,60}' } },
];

async function textOf(engine: AsyncEngine, index: number): Promise<string> {
  let text = '';
  const request = { prompt: prompts[index]!, params: samplings[index]! };
  for await (const output of engine.generate(request)) text += output.text;
  return text;
}

async function textsOf(engine: AsyncEngine, isTogether: boolean): Promise<string[]> {
  if (isTogether) return Promise.all(prompts.map((_, i) => textOf(engine, i)));
  const texts: string[] = [];
  for (const i of prompts.keys()) texts.push(await textOf(engine, i));
  return texts;
}

/** For this clock, all steps and drafts have about the same duration on every machine, so drafts are always worth their time. */
function countingClock(): Clock {
  let ms = 0;
  return { nowMs: () => ms++ };
}

async function withEngine<T>(options: Partial<EngineOptions>, use: (engine: AsyncEngine) => Promise<T>): Promise<T> {
  const all = { model: models.target, threads: 1, maxModelLen: 128, ...options };
  const { engine } = await openMeasuredEngine(all, undefined, countingClock());
  try {
    return await use(engine);
  } finally {
    await engine.close();
  }
}

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
