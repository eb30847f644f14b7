/** I9: an error of one request ends this request and no other. */
import { afterAll, describe, expect, it } from 'vitest';
import { createEngine } from '../src/compose.ts';
import type { AsyncEngine, OutputDelta } from '../src/engine/contract.ts';
import { writeNanToken } from './support/nan-token.ts';
import { temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

async function collect(engine: AsyncEngine, prompt: number[]): Promise<OutputDelta[]> {
  const deltas: OutputDelta[] = [];
  for await (const delta of engine.generate({ prompt, params: { maxTokens: 12, temperature: 0, ignoreEos: true } })) {
    deltas.push(delta);
  }
  return deltas;
}

const tokensOf = (deltas: readonly OutputDelta[]): number[] => deltas.flatMap(({ tokenIds }) => [...tokenIds]);

describe('a request whose logits are NaN', () => {
  const experts = { count: 40, used: 4, feedForwardLength: 64 };
  const models = [
    ['llama', { architecture: 'llama', type: 'F32' }],
    // ggml sorts the probabilities of more than 16 experts with an algorithm that needs an order of all numbers.
    ['experts', { architecture: 'qwen3moe', type: 'F32', typeOfLayer: () => 'Q8_0' as const, experts }],
    ['experts with biases', { architecture: 'gpt-oss', type: 'F32', typeOfLayer: () => 'Q8_0' as const, experts }],
  ] as const;
  const title = 'ends with KVASIR_BROKEN_LOGITS, and the other requests of the batch get the same text as alone: %s';
  it.each(models)(title, async (name, model) => {
    const path = folder.file(`${name}.gguf`);
    await writeTinyModel(path, { ...model, tied: false });
    const nanToken = 77;
    await writeNanToken(path, nanToken);
    const engine = await createEngine({ model: path, threads: 1, kvCacheMemory: 8 << 20 });
    const healthy = Array.from({ length: 4 }, (_, i) => [10 + i, 20, 30 + i, 40]);
    const alone: number[][] = [];
    for (const prompt of healthy) alone.push(tokensOf(await collect(engine, prompt)));
    const [failed, ...together] = await Promise.all(
      [[5, nanToken, 6], ...healthy].map((prompt) => collect(engine, prompt)),
    );

    expect(failed!.at(-1)!.finish).toMatchObject({ reason: 'error', error: { code: 'KVASIR_BROKEN_LOGITS' } });
    expect(together.map(tokensOf)).toEqual(alone);
    expect(engine.isHealthy()).toBe(true);
    expect(engine.stats().blocks.referenced).toBe(0);
    await engine.close();
  });

  it.each([
    ['exact', 'auto'],
    ['exact', 'gather'],
    ['fast', 'auto'],
    ['fast', 'gather'],
  ] as const)(
    'leaves the cached blocks before its NaN token valid: %s numerics, attention %s',
    async (numerics, attention) => {
      const path = folder.file(`prefix ${numerics} ${attention}.gguf`);
      await writeTinyModel(path, { architecture: 'llama', type: 'F32', tied: false, layers: 3 });
      const nanToken = 77;
      await writeNanToken(path, nanToken);
      const options = { model: path, threads: 1, kvCacheMemory: 8 << 20, numerics, attention };
      // ggml's fastest attention computes 64 tokens of KV at a time: tokens 64 to 95 share such a tile with the NaN token.
      const prefix = Array.from({ length: 100 }, (_, i) => 100 + i);
      const healthy = [...prefix, 5, 6, 7, 8];
      const reference = await createEngine({ ...options, enablePrefixCaching: false });
      const alone = tokensOf(await collect(reference, healthy));
      await reference.close();

      // The step with the NaN token samples nothing, so it does not fail, and its blocks are cached.
      const engine = await createEngine({ ...options, maxNumBatchedTokens: 104 });
      const failed = await collect(engine, [...prefix, 5, nanToken, 7, 8, 9]);
      expect(failed.at(-1)!.finish).toMatchObject({ reason: 'error', error: { code: 'KVASIR_BROKEN_LOGITS' } });
      const deltas = await collect(engine, healthy);
      expect(deltas.at(-1)!.finish).toMatchObject({ reason: 'length' });
      expect(deltas.at(-1)!.stats!.cachedTokens).toBe(96);
      if (numerics === 'exact') expect(tokensOf(deltas)).toEqual(alone);
      await engine.close();
    },
  );
});
