/**
 * `npm run test:gpu`: compares the texts of a GPU backend and of the CPU. It needs a GPU package, for example
 * `npm install --no-save @node-llama-cpp/linux-x64-vulkan`, and a device; Mesa's software Vulkan is enough
 * (`apt-get install mesa-vulkan-drivers`, `GGML_VK_VISIBLE_DEVICES=0`).
 */
import { describe, expect, it } from 'vitest';
import { createEngine } from '../../src/compose.ts';
import { promptOf } from '../support/drive.ts';

describe('a GPU backend', () => {
  it('generates the same text as the CPU: alone, in a batch, in chunks, with cached blocks', async () => {
    const prompts = ['Once upon a time', 'The fox went to the mill and', 'In the garden there was'];
    const texts: Record<string, string[]> = {};
    for (const device of ['cpu', 'gpu'] as const) {
      const engine = await createEngine({
        model: 'models/kvasir-demo.gguf',
        device,
        threads: 1,
        maxModelLen: 2048,
        kvCacheMemory: 64 << 20,
        maxNumBatchedTokens: 64,
      });
      const complete = async (prompt: string | Int32Array): Promise<string> => {
        let text = '';
        const params = { maxTokens: 24, temperature: 0 };
        for await (const delta of engine.generate({ prompt, params })) text += delta.text;
        return text;
      };
      const long = promptOf(150, 3, 2000);
      const alone = await complete(long);
      const together = await Promise.all([...prompts, long].map(complete));
      expect(together[3]).toBe(alone);
      expect(engine.stats().cachedTokens).toBe(144);
      texts[device] = together;
      await engine.close();
    }
    expect(texts.gpu).toEqual(texts.cpu);
  });
});
