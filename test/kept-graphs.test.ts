/** A runner keeps the compute graphs of the last numbers of rows. A graph that is used again gives the same bits as a new one. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Speculator } from '../src/scheduler/speculation/speculator.ts';
import { computeHere } from './support/compute-here.ts';
import { Drive, type DriveRequest, promptOf, type RequestTrace } from './support/drive.ts';
import { hasCompiler } from './support/has-compiler.ts';
import { needs } from './support/needs.ts';
import { temporaryFolder, tinyHybrid, writeTinyModel } from './support/tiny-model.ts';

computeHere();
const folder = temporaryFolder();
afterAll(() => folder.remove());

const prompt = promptOf(70, 1);
const request = { id: 'a', prompt, params: { maxTokens: 60, temperature: 0, ignoreEos: true } };

/** Drafts the next tokens of a known output: as many as `counts` says, in turn. */
function rightDrafts(tokens: readonly number[], counts: readonly number[]): Speculator {
  let step = 0;
  return {
    draft: ([state]) => {
      const from = state!.tokens.length - prompt.length;
      return [Int32Array.from(tokens.slice(from, from + counts[step++ % counts.length]!))];
    },
    verified: () => undefined,
    observe: () => undefined,
  };
}

const bitsOf = ({ tokens, logits, promptLogprobs }: RequestTrace) => ({ tokens, logits, promptLogprobs });

describe('the kept graphs of a llama model', () => {
  let drive: Drive;
  let plain: ReturnType<typeof bitsOf>;

  beforeAll(async () => {
    const path = folder.file('llama.gguf');
    await writeTinyModel(path, { architecture: 'llama', type: 'Q8_0' });
    drive = await Drive.open(path);
    plain = bitsOf((await drive.run([request])).get('a')!);
    return () => drive.close();
  });

  /** Returns the graphs that were built. */
  async function run(counts: readonly number[]): Promise<number> {
    const { builtGraphs } = drive.runner;
    const trace = (await drive.run([request], { speculator: rightDrafts(plain.tokens, counts) })).get('a')!;
    expect(bitsOf(trace)).toEqual(plain);
    return drive.runner.builtGraphs - builtGraphs;
  }

  it('are used again after steps with other numbers of rows', needs(hasCompiler, 'no C compiler'), async () => {
    // A first run may also have steps with fewer drafts at the end of the output.
    await run([0, 3, 0, 0, 5, 1]);
    expect(await run([0, 3, 0, 0, 5, 1])).toBe(0);
    expect(await run([5, 0, 1, 3])).toBeLessThanOrEqual(1);
  });

  it('are replaced by others if there are too many', async () => {
    const counts = Array.from({ length: 21 }, (_, i) => i);
    await run(counts);
    await run([...counts].reverse());
  });

  it('are built again after a larger graph has moved their memory', async () => {
    await run([0, 3]);
    const large = { ...request, prompt: promptOf(500, 2), params: { ...request.params, maxTokens: 1 } };
    await drive.run([large]);
    await run([0, 3]);
  });

  it('are not used for steps that compute logprobs of prompts', async () => {
    const scored: DriveRequest = {
      ...request,
      id: 'b',
      params: { ...request.params, promptLogprobs: 2, maxTokens: 3 },
    };
    const alone = bitsOf((await drive.run([scored])).get('b')!);
    expect(alone.promptLogprobs).toHaveLength(prompt.length - 1);
    const options = { maxNumBatchedTokens: 16, arrive: (index: number) => 3 * index };
    const together = await drive.run([request, scored, { ...scored, id: 'c' }], options);
    expect(bitsOf(together.get('a')!)).toEqual(plain);
    expect(bitsOf(together.get('b')!)).toEqual(alone);
    expect(bitsOf(together.get('c')!)).toEqual(alone);
  });
});

describe.each([
  ['lfm2', { ...tinyHybrid }, {}],
  ['lfm2', { ...tinyHybrid }, { matmulKernels: false }],
  ['gemma3', { layers: 3, windowPattern: 3 }, {}],
  ['llama', {}, { attention: 'gather' }],
  ['llama', { layers: 2 }, { stageCount: 2 }],
] as const)('the kept graphs of a %s model %j with %j', (architecture, model, options) => {
  it('give the same bits in batches of changing sizes', async () => {
    const path = folder.file('model.gguf');
    await writeTinyModel(path, { architecture, type: 'Q8_0', ...model });
    const drive = await Drive.open(path, { kvCacheBytes: (blockBytes) => 256 * blockBytes, ...options });
    const requests = [0, 1, 2, 3].map((i) => ({
      id: `${i}`,
      prompt: promptOf(20 + 15 * i, 3 + i),
      params: { ...request.params, maxTokens: 24 - 4 * i },
    }));
    const together = await drive.run(requests, { arrive: (index) => 5 * index, maxNumBatchedTokens: 24 });
    for (const one of requests) {
      const alone = bitsOf((await drive.run([one])).get(one.id)!);
      expect(bitsOf(together.get(one.id)!)).toEqual(alone);
    }
    await drive.close();
  });
});
