/**
 * `npm run test:gpu`: texts of a GPU backend. It needs a GPU package, for example `npm install --no-save @node-llama-cpp/linux-x64-vulkan`,
 * and a device. Mesa's software Vulkan is enough (`apt-get install mesa-vulkan-drivers`, `GGML_VK_VISIBLE_DEVICES=0`). Its version 22.3
 * also needs `GGML_VK_DISABLE_HOST_VISIBLE_VIDMEM=1`: without it, the process often ends with "double free or corruption".
 */
import { afterEach, describe, expect, it } from 'vitest';
import { createEngine } from '../../src/index.ts';
import { promptOf } from '../support/drive.ts';

type Engine = Awaited<ReturnType<typeof createEngine>>;
const engines: Engine[] = [];
afterEach(async () => {
  for (const engine of engines.splice(0)) await engine.close();
});

const open = async (options: Partial<Parameters<typeof createEngine>[0]>): Promise<Engine> => {
  const engine = await createEngine({
    model: 'models/kvasir-demo.gguf',
    device: 'gpu',
    threads: 1,
    maxModelLen: 1024,
    maxNumBatchedTokens: 64,
    ...options,
  });
  engines.push(engine);
  return engine;
};

const complete = async (engine: Engine, prompt: string | Int32Array): Promise<string> => {
  let text = '';
  for await (const delta of engine.generate({ prompt, params: { maxTokens: 16, temperature: 0 } })) text += delta.text;
  return text;
};

describe('a GPU backend', () => {
  it('generates the same text alone, in a batch, in chunks and with cached blocks', async () => {
    const engine = await open({ kvCacheMemory: 64 << 20 });
    const prompts = ['Once upon a time', 'The fox went to the mill and', 'In the garden there was'];
    const long = promptOf(150, 3, 2000);
    const alone = await complete(engine, long);
    const together = await Promise.all([...prompts, long].map((prompt) => complete(engine, prompt)));
    expect(together[3]).toBe(alone);
    expect(engine.stats().cachedTokens).toBe(144);
  });

  it('loads blocks from host memory that its pool has evicted, and the text is the same', async () => {
    const engine = await open({
      // 74 blocks.
      kvCacheMemory: 3.6 * 2 ** 20,
      kvTransferConfig: {
        kvConnector: 'OffloadingConnector',
        kvRole: 'kv_both',
        kvConnectorExtraConfig: { tiers: ['host:64MiB'], kv_load_policy: 'always' },
      },
    });
    const long = promptOf(150, 3, 2000);
    const text = await complete(engine, long);
    for (let seed = 4; seed < 13; seed++) await complete(engine, promptOf(150, seed, 2000));
    expect(await complete(engine, long)).toBe(text);
    expect(engine.stats().externalTokens).toBeGreaterThan(0);
  });
});
