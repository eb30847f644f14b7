/**
 * I2 for results of prompts, with real weights: logprobs of a prompt and hidden states for embeddings have the same bits alone, in
 * every batch and with every chunk size, if the prompt is cached, after preemptions, and in a pipeline.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ModelOptions } from '../bench/make-model/model-maker.ts';
import type { Architecture } from '../src/ggml/model-config.ts';
import { computeHere } from './support/compute-here.ts';
import { Drive, type DriveRequest, promptOf, type RequestTrace } from './support/drive.ts';
import { inLongForm } from './support/long-form.ts';
import {
  isHybrid,
  longContexts,
  smallStates,
  temporaryFolder,
  tinyHybrid,
  writeTinyModel,
} from './support/tiny-model.ts';

computeHere();
const folder = temporaryFolder();
afterAll(() => folder.remove());

const prompt = promptOf(150, 1);
const scored = { id: 'subject', prompt, params: { maxTokens: 6, logprobs: 2, promptLogprobs: 2 } };
const pooled = { id: 'subject', prompt, params: { maxTokens: 0 }, pooling: 'mean' } as const;
const others = Array.from({ length: 6 }, (_, i) => ({
  id: `other ${i}`,
  prompt: i % 3 === 0 ? [...prompt.slice(0, 40 + 7 * i), ...promptOf(30, i + 50)] : promptOf(1 + 13 * i, i + 50),
  params: { maxTokens: 5 + i },
}));
const rivals = [0, 1, 2].map((i) => ({ id: `rival ${i}`, prompt: promptOf(90, i + 90), params: { maxTokens: 60 } }));

/** The last entry: blocks of a pool that is too small for three rivals and the subject. */
type Model = readonly [Architecture, ModelOptions['type'], 'our' | "ggml's", 'native' | 'gather', number];
const few: readonly Model[] = [
  ['llama', 'Q8_0', 'our', 'native', 34],
  // ggml pads a batch.
  ['qwen3moe', 'Q4_K', "ggml's", 'gather', 34],
  ['granitehybrid', 'Q8_0', 'our', 'native', 46],
];
const more: readonly Model[] = [
  ['gemma3', 'Q8_0', 'our', 'native', 34],
  ['gemma4', 'Q8_0', 'our', 'native', 50],
  ['llama', 'Q4_K', "ggml's", 'native', 34],
  ['gpt-oss', 'MXFP4', 'our', 'native', 34],
  ['deepseek2', 'Q4_K_M', 'our', 'native', 34],
  ['lfm2', 'F16', "ggml's", 'gather', 52],
  ['qwen35moe', 'Q8_0', 'our', 'native', 46],
  ['mistral3', 'Q8_0', 'our', 'native', 34],
];

function layersOf(architecture: Architecture): Partial<ModelOptions> {
  if (architecture === 'gemma3' || architecture === 'gpt-oss') return { layers: 3, windowPattern: 3 };
  if (architecture === 'gemma4') return {};
  if (architecture === 'lfm2') return tinyHybrid;
  return isHybrid(architecture) ? { layers: 3, ...smallStates } : { layers: 2, ...longContexts[architecture] };
}

const name = '%s with %s weights, %s matmuls and %s attention';
describe.each(inLongForm([...few, ...more], few))(`results of a prompt by ${name}`, (...model) => {
  const [architecture, type, matmuls, attention, tightPool] = model;
  const path = folder.file(`${architecture}-${type}.gguf`);
  const options = { matmulKernels: matmuls === 'our', attention, stateCheckpointTokens: 32 };
  let drive: Drive;
  let alone: RequestTrace;
  let alonePooled: RequestTrace;

  const run = async (requests: readonly DriveRequest[], options: Parameters<Drive['run']>[1] = {}) =>
    (await drive.run(requests, options)).get('subject')!;

  beforeAll(async () => {
    await writeTinyModel(path, { architecture, type, ...layersOf(architecture) });
    drive = await Drive.open(path, { kvCacheBytes: (blockBytes) => Math.max(8 << 20, 256 * blockBytes), ...options });
    alone = await run([scored]);
    alonePooled = await run([pooled]);
    return () => drive.close();
  });

  const expectSame = ({ promptLogprobs, logprobs, tokens }: RequestTrace): void => {
    expect(promptLogprobs).toEqual(alone.promptLogprobs);
    expect({ logprobs, tokens }).toEqual({ logprobs: alone.logprobs, tokens: alone.tokens });
  };

  it('are the logprobs that the same tokens have as output', async () => {
    const { promptLogprobs, logprobs, tokens } = alone;
    expect(promptLogprobs).toHaveLength(prompt.length - 1);
    expect(new Set(promptLogprobs.map(({ logprob }) => logprob)).size).toBeGreaterThan(prompt.length / 2);
    const continued = await run([
      { ...scored, prompt: [...prompt, ...tokens], params: { promptLogprobs: 2, maxTokens: 0 } },
    ]);
    expect(continued.promptLogprobs).toEqual([...promptLogprobs, ...logprobs]);
    expect(continued.tokens).toEqual([]);
    const plain = await run([{ ...scored, params: { maxTokens: 6 } }]);
    expect(plain.tokens).toEqual(tokens);
    expect(plain.logits).toEqual(alone.logits);
  });

  it('do not depend on chunks, on the batch, or on what is cached', async () => {
    for (const maxNumBatchedTokens of inLongForm([1, 7, 64], [7]))
      expectSame(await run([scored], { maxNumBatchedTokens }));
    expectSame(await run([...others, scored], { maxNumBatchedTokens: 64 }));
    const before = { id: 'before', prompt, params: { maxTokens: 3 } };
    const cached = await run([before, scored], { arrive: (index) => index * 10 });
    expect(cached.stats).toMatchObject({ cachedTokens: 0, computedTokens: prompt.length + 5 });
    expectSame(cached);
  });

  it('leave their blocks in the prefix cache', async () => {
    const first = { ...scored, id: 'first' };
    const after = await run([first, { ...scored, params: { maxTokens: 6 } }], { arrive: (index) => index * 20 });
    expect(after.stats?.cachedTokens).toBeGreaterThan(100);
    expect(after.tokens).toEqual(alone.tokens);
  });

  it.each([true, false])(
    'are delivered once if the request is preempted within its prompt (prefix cache: %s)',
    async (enablePrefixCaching) => {
      const [blocks, longPrefillTokenThreshold] = [tightPool, 2];
      const preempted = await run([...rivals, scored], { blocks, longPrefillTokenThreshold, enablePrefixCaching });
      expect(preempted.stats?.preemptions).toBeGreaterThan(0);
      expectSame(preempted);
    },
  );

  it('are the same hidden states for an embedding in chunks, in a batch, and if the prompt is cached', async () => {
    expect(new Set(alonePooled.hidden).size).toBe(prompt.length);
    const before = { id: 'before', prompt, params: { maxTokens: 3 } };
    const arrive = (index: number): number => index * 10;
    for (const trace of [
      await run([pooled], { maxNumBatchedTokens: 7 }),
      await run([...others, pooled], { maxNumBatchedTokens: 64 }),
      await run([before, pooled], { arrive }),
    ]) {
      expect(trace.hidden).toEqual(alonePooled.hidden);
      expect(trace.stats).toMatchObject({ cachedTokens: 0, outputTokens: 0 });
    }
    // Only the last token's hidden state is needed, so the prompt may come from the prefix cache.
    const last = await run([before, { ...pooled, pooling: 'last' }], { arrive });
    expect(last.hidden).toEqual(alonePooled.hidden.slice(-1));
    expect(last.stats?.cachedTokens).toBeGreaterThan(100);
  });

  it('are the same in a pipeline of two stages', async () => {
    const pipeline = await Drive.open(path, { stageCount: 2, ...options });
    const traces = await pipeline.run([...others, scored, { ...pooled, id: 'pooled' }], { maxNumBatchedTokens: 64 });
    await pipeline.close();
    expectSame(traces.get('subject')!);
    expect(traces.get('pooled')!.hidden).toEqual(alonePooled.hidden);
  });
});
