/**
 * `npm run test:gpu`: texts of a GPU backend. It needs a GPU package, for example `npm install --no-save @node-llama-cpp/linux-x64-vulkan`,
 * and a device. Mesa's software Vulkan is enough: `tools/gpu/software-vulkan npm run test:gpu`.
 */
import { afterEach, describe, expect, it } from 'vitest';
import { createEngine } from '../../src/index.ts';
import { Drive, promptOf } from '../support/drive.ts';
import { demoOnGpu, needsGpu } from '../support/gpu.ts';

type Engine = Awaited<ReturnType<typeof createEngine>>;
const engines: Engine[] = [];
afterEach(async () => {
  for (const engine of engines.splice(0)) await engine.close();
});

const open = async (options: Partial<Parameters<typeof createEngine>[0]>): Promise<Engine> => {
  const engine = await createEngine({ ...demoOnGpu(), ...options });
  engines.push(engine);
  return engine;
};

const complete = async (engine: Engine, prompt: string | Int32Array): Promise<string> => {
  let text = '';
  for await (const delta of engine.generate({ prompt, params: { maxTokens: 4, temperature: 0 } })) text += delta.text;
  return text;
};
const promptLength = 50;

describe('a GPU backend', needsGpu(), () => {
  it('generates the same text alone, in a batch, in chunks and with cached blocks', async () => {
    const engine = await open({ kvCacheMemory: 4 << 20 });
    const prompts = ['Once upon a time', 'The fox went to the mill and', 'In the garden there was'];
    const long = promptOf(promptLength, 3, 2000);
    const alone = await complete(engine, long);
    const together = await Promise.all([...prompts, long].map((prompt) => complete(engine, prompt)));
    expect(together[3]).toBe(alone);
    expect(engine.stats().cachedTokens).toBe(48);
  });

  it('computes decodes with one graph, until they read more KV', async () => {
    const { model, threads, numerics, maxNumBatchedTokens: rowsMax } = demoOnGpu();
    const drive = await Drive.open(model, { device: 'gpu', numerics, threads, rowsMax });
    try {
      const params = { maxTokens: 20, temperature: 0, ignoreEos: true };
      const { builtGraphs } = drive.runner;
      await drive.run([{ id: 'a', prompt: promptOf(3, 3, 2000), params }], { maxNumBatchedTokens: rowsMax });
      // Of the prompt and of its decodes.
      expect(drive.runner.builtGraphs - builtGraphs).toBe(2);
    } finally {
      await drive.close();
    }
  });

  it('loads blocks from host memory that its pool has evicted, and the text is the same', async () => {
    const engine = await open({
      // 15 blocks.
      kvCacheMemory: 0.75 * 2 ** 20,
      kvTransferConfig: {
        kvConnector: 'OffloadingConnector',
        kvRole: 'kv_both',
        kvConnectorExtraConfig: { tiers: ['host:64MiB'], kv_load_policy: 'always' },
      },
    });
    const long = promptOf(promptLength, 3, 2000);
    const text = await complete(engine, long);
    for (let seed = 4; seed < 10; seed++) await complete(engine, promptOf(promptLength, seed, 2000));
    expect(await complete(engine, long)).toBe(text);
    expect(engine.stats().externalTokens).toBeGreaterThan(0);
  });
});
