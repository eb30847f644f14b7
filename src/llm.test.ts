import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { temporaryFolder, writeTinyModel } from '../test/support/tiny-model.ts';
import { createEngine, LLM } from './index.ts';

/** The public library with a real file and real kernels. `src/engine` has the tests of the engine. */
const folder = temporaryFolder();
const model = folder.file('tiny.gguf');
const options = { model, threads: 1, kvCacheMemory: 2 ** 23 };

beforeAll(() => writeTinyModel(model, { architecture: 'qwen3', type: 'Q8_0', context: 512 }));
afterAll(() => folder.remove());

describe('LLM', () => {
  it('gives each prompt of a batch the same tokens, text and logprobs as alone', async () => {
    const llm = new LLM({ ...options, maxNumBatchedTokens: 24 });
    try {
      const prompts = Array.from({ length: 12 }, (_, index) => 'A story: '.repeat(1 + (index % 5)) + index);
      const params = prompts.map((_, index) => ({
        maxTokens: 20,
        temperature: index % 2,
        seed: BigInt(index),
        topP: 0.95,
        repetitionPenalty: 1.1,
        stop: ['e'],
        logprobs: 2,
      }));
      const together = await llm.generate(prompts, params);
      const alone = new LLM({ ...options, enablePrefixCaching: false });
      for (const [index, prompt] of prompts.entries()) {
        const [single] = await alone.generate(prompt, params[index]);
        expect(together[index]!.outputs).toEqual(single!.outputs);
      }
      await alone.close();
      const { blocks } = (await llm.engine()).stats();
      expect(blocks.referenced).toBe(0);
    } finally {
      await llm.close();
    }
  });

  it('renders chats with the model’s template and reuses the cached prefix of an equal prompt', async () => {
    const llm = new LLM(options);
    const messages = [{ role: 'user', content: 'What is the use of a book without pictures?' }];
    const params = { maxTokens: 5, temperature: 0, ignoreEos: true };
    const [first] = await llm.chat(messages, params);
    const [second] = await llm.chat(messages, params);
    expect(second!.outputs).toEqual(first!.outputs);
    expect(first!.stats.cachedTokens).toBe(0);
    expect(second!.stats.cachedTokens).toBeGreaterThanOrEqual(16);
    await llm.close();
  });
});

describe('createEngine', () => {
  it('streams deltas and aborts the request when its reader leaves the loop', async () => {
    const engine = await createEngine({ ...options, seed: 7 });
    let text = '';
    for await (const delta of engine.generate({ prompt: 'Hello', params: { maxTokens: 100, ignoreEos: true } })) {
      text += delta.text;
      if (delta.stats.outputTokens === 10) break;
    }
    expect(text.length).toBeGreaterThan(0);
    await engine.drain();
    expect(engine.stats()).toMatchObject({ running: 0, waiting: 0, aborts: 1, blocks: { referenced: 0 } });
    await engine.close();
  });
});
