/**
 * Exact speculation with real weights (I2): tokens and logprobs with drafts equal those without. Drafts are partly right, and
 * requests are alone, in batches, preempted, sampled and penalized.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RandomDrafts } from '../sim/random-drafts.ts';
import { Prng } from '../src/base/prng.ts';
import { TextSpeculator } from '../src/scheduler/speculation/text-speculator.ts';
import { computeHere } from './support/compute-here.ts';
import { Drive, type DriveOptions, type DriveRequest, promptOf } from './support/drive.ts';
import { inLongForm } from './support/long-form.ts';
import { longContexts, temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

computeHere();
const folder = temporaryFolder();
afterAll(() => folder.remove());

const prompt = promptOf(70, 1);
const requests: DriveRequest[] = [
  { id: 'greedy', prompt, params: { maxTokens: 40, logprobs: 2 } },
  { id: 'seeded', prompt: prompt.slice(0, 50), params: { maxTokens: 40, temperature: 0.9, topP: 0.9, seed: 42n } },
  {
    id: 'penalized',
    prompt: promptOf(20, 2),
    params: { maxTokens: 40, temperature: 0.7, repetitionPenalty: 1.3, presencePenalty: 0.5, frequencyPenalty: 0.4 },
  },
  { id: 'biased', prompt: promptOf(9, 3), params: { maxTokens: 25, minTokens: 20, logitBias: { 7: 4 }, logprobs: 0 } },
];

const models = [
  ['llama', 'Q8_0', {}, { attention: 'native' }],
  ['gemma3', 'F16', { layers: 3, windowPattern: 3 }, { attention: 'gather', matmulKernels: false }],
  ['gpt-oss', 'MXFP4', { layers: 3, windowPattern: 3 }, { attention: 'native', stageCount: 2 }],
  ['mistral3', 'Q8_0', longContexts.mistral3 ?? {}, { attention: 'native' }],
] as const;

describe.each(inLongForm([...models], models.slice(0, 3)))(
  'speculation of a %s model with %s weights',
  (architecture, type, model, runner) => {
    let drive: Drive;
    let plain: Map<string, { tokens: number[]; logprobs: unknown[] }>;

    beforeAll(async () => {
      const path = folder.file(`${architecture}-${type}.gguf`);
      await writeTinyModel(path, { architecture, type, ...model });
      drive = await Drive.open(path, { kvCacheBytes: (blockBytes) => 256 * blockBytes, ...runner });
      plain = await drive.run(requests);
      return () => drive.close();
    });

    /** Drafts are tokens of the plain run, some of them replaced. */
    const drafts = (seed: number): RandomDrafts =>
      new RandomDrafts(new Prng(seed), drive.runner.vocabSize, (id) =>
        plain.get(id)!.tokens.slice(drive.trace(id).tokens.length),
      );

    async function expectSame(some: readonly DriveRequest[], options: DriveOptions): Promise<number> {
      const traces = await drive.run(some, options);
      let accepted = 0;
      for (const [id, { tokens, logprobs, stats }] of traces) {
        expect(tokens, id).toEqual(plain.get(id)!.tokens);
        expect(logprobs, id).toEqual(plain.get(id)!.logprobs);
        expect(stats!.draftedTokens).toBeGreaterThan(0);
        accepted += stats!.acceptedTokens ?? 0;
      }
      return accepted;
    }

    it('changes no token of a request alone', async () => {
      for (const request of requests) await expectSame([request], { speculator: drafts(1) });
    });

    it('changes no token in a batch, and needs fewer steps', async () => {
      await drive.run(requests);
      const plainSteps = drive.steps;
      expect(await expectSame(requests, { speculator: drafts(2) })).toBeGreaterThan(20);
      expect(drive.steps).toBeLessThan(plainSteps);
    });

    it('changes no token if requests are preempted and prompts come in chunks', async () => {
      const few = { blocks: architecture === 'llama' ? 14 : 40, maxNumBatchedTokens: 24 };
      await drive.run(requests, few);
      await expectSame(requests, { ...few, speculator: drafts(3), arrive: (index) => 3 * index });
    });

    it('accepts drafts from the own text when the output repeats', async () => {
      const config = { method: 'ngram', numSpeculativeTokens: 8, promptLookupMin: 1, promptLookupMax: 4 } as const;
      const traces = await drive.run(requests, { speculator: new TextSpeculator(config) });
      for (const [id, { tokens }] of traces) expect(tokens, id).toEqual(plain.get(id)!.tokens);
    });
  },
);
