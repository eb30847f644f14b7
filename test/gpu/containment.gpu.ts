/** I9 on a GPU. Its kernels multiply masked KV by 0, so NaN also reaches the KV of tokens that come before it in the step. */
import { afterAll, describe, expect, it } from 'vitest';
import { createEngine } from '../../src/index.ts';
import { needsGpu } from '../support/gpu.ts';
import { writeNanToken } from '../support/nan-token.ts';
import { temporaryFolder, writeTinyModel } from '../support/tiny-model.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());
const nanToken = 77;
/** The NaN is at position 16, and may also be at the token before it in the step. */
const brokenLogits = {
  reason: 'error',
  error: { code: 'KVASIR_BROKEN_LOGITS', message: expect.stringMatching(/NaN as a hidden state for position 1[56]:/) },
};

describe('a request with a token of which the model computes NaN', needsGpu(), () => {
  // Steps have 3 tokens: token 16 begins a block, and token 15 ends the one before it in the same step.
  const prefix = Array.from({ length: 16 }, (_, i) => 100 + i);
  const healthy = [...prefix, 5, 6];
  const title = 'fails, and requests with the same prefix have their own text, together and later: %s, %s';
  it.each([
    ['exact', 'in the middle of its prompt', [...prefix, nanToken, 7, 8, 9, 10]],
    ['fast', 'in the middle of its prompt', [...prefix, nanToken, 7, 8, 9, 10]],
    ['fast', 'at its end', [...prefix, nanToken, 7]],
  ] as const)(title, async (numerics, name, broken) => {
    const path = folder.file(`${numerics} ${name}.gguf`);
    await writeTinyModel(path, { architecture: 'llama', type: 'F32', tied: false, layers: 3 });
    await writeNanToken(path, nanToken);
    const options = {
      model: path,
      device: 'gpu',
      numerics,
      threads: 1,
      kvCacheMemory: 4 << 20,
      maxModelLen: 128,
    } as const;
    type Engine = Awaited<ReturnType<typeof createEngine>>;
    const complete = async (engine: Engine, prompt: readonly number[]) => {
      const tokens: number[] = [];
      const params = { maxTokens: 4, temperature: 0, ignoreEos: true };
      for await (const { tokenIds, finish, stats } of engine.generate({ prompt: [...prompt], params })) {
        tokens.push(...tokenIds);
        if (finish !== undefined) return { tokens, finish, cachedTokens: stats?.cachedTokens };
      }
      throw new Error('the text has no end');
    };

    await using engine = await createEngine({ ...options, maxNumBatchedTokens: 3 });
    expect((await complete(engine, broken)).finish).toMatchObject(brokenLogits);
    const { tokens, finish, cachedTokens } = await complete(engine, healthy);
    expect(finish).toMatchObject({ reason: 'length' });
    expect(cachedTokens).toBe(0);
    // A cached block of a request without NaN, and of none.
    expect((await complete(engine, healthy)).cachedTokens).toBe(16);
    engine.cache!.reset();
    const [failed, ...others] = await Promise.all([broken, healthy, healthy].map((prompt) => complete(engine, prompt)));
    expect(failed!.finish).toMatchObject(brokenLogits);
    for (const other of others) expect(other).toMatchObject({ finish: { reason: 'length' }, tokens });
  });
});
