/** Layered prefill (ADR 27): a chunk of a prompt that is computed a few layers at a time has the same KV, logits and tokens. */
import { afterAll, describe, expect, it } from 'vitest';
import { writeAdapter } from '../bench/make-model/adapter-maker.ts';
import { RandomSlices } from '../sim/random-slices.ts';
import { Prng } from '../src/base/prng.ts';
import type { AdapterRef } from '../src/core/request.ts';
import type { StepPlan } from '../src/core/step.ts';
import { computeHere } from './support/compute-here.ts';
import { Drive, promptOf, type RequestTrace } from './support/drive.ts';
import { inLongForm } from './support/long-form.ts';
import { longContexts, temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

type Traces = ReadonlyMap<string, RequestTrace>;

computeHere();
const folder = temporaryFolder();
afterAll(() => folder.remove());

const layerCount = 5;
const streams = [1, 2].map((seed) => ({
  id: `stream ${seed}`,
  prompt: promptOf(20 * seed, seed),
  params: { maxTokens: 90, ...(seed === 1 ? {} : { temperature: 0.9, seed: 5n }) },
}));
const prompts = [250, 300, 140].map((length, i) => ({
  id: `prompt ${i}`,
  prompt: promptOf(length, i + 10),
  params: { maxTokens: 6 },
}));
/** A row costs less in a chunk by layers, as with kernels that are faster for many rows. */
const msOf = ({ sequences, tokenCount }: StepPlan): number => {
  const layers = sequences.at(-1)?.layers;
  return layers === undefined ? 20 + 4 * tokenCount : 20 + (tokenCount * (layers.end - layers.first)) / layerCount;
};

const models = [
  ['llama', 'Q8_0'],
  ['glm4', 'Q8_0'],
  ['gpt-oss', 'MXFP4'],
  ['qwen3moe', 'Q4_K'],
  ['gemma3', 'F16'],
  ['gemma4', 'Q8_0'],
  ['mistral3', 'Q8_0'],
  ['smollm3', 'Q8_0'],
] as const;
describe.each(inLongForm<readonly (typeof models)[number][]>(models, models.slice(0, 3)))(
  '%s with %s weights',
  (architecture, type) => {
    it('has the same KV, logits and tokens with chunks by layers as without', async () => {
      const path = folder.file(`${architecture}.gguf`);
      await writeTinyModel(path, {
        architecture,
        type,
        layers: layerCount,
        ...(architecture === 'gemma3' || architecture === 'gpt-oss' ? { windowPattern: 3 } : {}),
        ...longContexts[architecture],
        ...(architecture === 'glm4' ? { predictionLayers: 1 } : {}),
      });
      const drive = await Drive.open(path, { predicts: architecture === 'glm4' });
      expect(drive.runner.kvCacheSpec.sliceableLayers).toBe(layerCount);
      let adapter: AdapterRef | undefined;
      if (architecture === 'llama') {
        await writeAdapter(folder.file('adapter.gguf'), path);
        adapter = await drive.load(folder.file('adapter.gguf'));
      }
      const requests = [...streams, ...prompts].map((request, i) => (i % 2 === 0 ? request : { ...request, adapter }));
      const arrive = (index: number): number => (index < streams.length ? 0 : 5 + 2 * index);
      const whole = new Map(await drive.run(requests, { arrive, enablePrefixCaching: false }));
      expect(drive.slices).toBe(0);
      const paced = { arrive, enablePrefixCaching: false, targetInterTokenLatency: 'auto', msOf } as const;
      const byPace = new Map(await drive.run(requests, paced));
      expect(drive.slices).toBeGreaterThan(4);
      const random = await drive.run(requests, { ...paced, sliceChoice: new RandomSlices(new Prng(3)) });
      expect(drive.slices).toBeGreaterThan(20);
      for (const sliced of [byPace, random]) expectSame(sliced, whole, requests);
      await drive.close();
    });
  },
);

function expectSame(actual: Traces, expected: Traces, requests: readonly { readonly id: string }[]): void {
  for (const { id } of requests) {
    const { stats, ...bits } = actual.get(id)!;
    const { stats: statsOfWhole, ...expectedBits } = expected.get(id)!;
    expect(bits).toEqual(expectedBits);
    expect(stats?.computedTokens).toBe(statsOfWhole?.computedTokens);
  }
}
