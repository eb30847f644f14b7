import { describe, expect, it } from 'vitest';
import { bos, toyEngine, untilIdle } from '../../test/support/toy-model.ts';
import type { OutputDelta } from './contract.ts';
import { OfflineLlm } from './llm.ts';

const params = { maxTokens: 12, seed: 1n, ignoreEos: true };

async function withLlm<T>(use: (llm: OfflineLlm, toy: ReturnType<typeof toyEngine>) => Promise<T>): Promise<T> {
  const toy = toyEngine({ settings: { maxWaiting: 300 } });
  const llm = new OfflineLlm(async () => toy.engine);
  try {
    return await use(llm, toy);
  } finally {
    await llm.close();
    expect(toy.scheduler.stats().blocks.referenced).toBe(0);
    expect(toy.executor.isClosed).toBe(true);
  }
}

describe('OfflineLlm', () => {
  it('returns one output per prompt in their order, each equal to the output alone', () =>
    withLlm(async (llm) => {
      const prompts = Array.from({ length: 20 }, (_, index) => 'x'.repeat(1 + ((index * 7) % 20)));
      const together = await llm.generate(prompts, params);
      expect(together.map(({ prompt }) => prompt)).toEqual(prompts);
      for (const [index, prompt] of prompts.entries()) {
        const [alone] = await llm.generate(prompt, params);
        expect(together[index]!.outputs).toEqual(alone!.outputs);
        expect(alone!.promptTokenIds).toEqual([bos, ...new TextEncoder().encode(prompt)]);
        expect(alone!.stats).toMatchObject({ promptTokens: prompt.length + 1, outputTokens: 12 });
      }
    }));

  it('accepts tokens, one set of parameters per prompt, and n', () =>
    withLlm(async (llm) => {
      const [one, two] = await llm.generate(
        [[bos, 0x61], Int32Array.of(bos, 0x62)],
        [
          { ...params, n: 2, logprobs: 1 },
          { ...params, stop: ['bird'], maxTokens: 100 },
        ],
      );
      expect(one).not.toHaveProperty('prompt');
      expect(one!.promptTokenIds).toEqual([bos, 0x61]);
      expect(one!.outputs.map(({ index }) => index)).toEqual([0, 1]);
      expect(one!.outputs[0]!.logprobs!.length).toBe(12);
      expect(one!.outputs[0]!.finishReason).toBe('length');
      expect(one!.stats.outputTokens).toBe(24);
      expect(two!.outputs[0]).toMatchObject({ finishReason: 'stop', stopReason: 'bird' });
      const [single] = await llm.generate([bos, 0x61], params);
      expect(single!.outputs[0]!.text).toBe(one!.outputs[0]!.text);
    }));

  it('returns outputs that are equal after JSON', () =>
    withLlm(async (llm, { engine }) => {
      const asked = { ...params, n: 2, logprobs: 2, stop: ['bird'] };
      for (const prompt of ['x', [bos, 0x61], Int32Array.of(bos, 0x62)]) {
        const outputs = await llm.generate([prompt], asked);
        expect(JSON.parse(JSON.stringify(outputs))).toEqual(outputs);
        expect(Array.isArray(outputs[0]!.promptTokenIds)).toBe(true);
      }
      const deltas: OutputDelta[] = [];
      for await (const delta of engine.generate({ prompt: 'x', params: asked })) deltas.push(delta);
      expect(JSON.parse(JSON.stringify(deltas))).toEqual(deltas);
      const tokens = engine.tokenize('x');
      expect(JSON.parse(JSON.stringify(tokens))).toEqual(tokens);
      expect(JSON.parse(JSON.stringify(engine.stats()))).toEqual(engine.stats());
      expect(JSON.parse(JSON.stringify(engine.model))).toEqual(engine.model);
    }));

  it('renders one conversation or a list of conversations', () =>
    withLlm(async (llm, { engine }) => {
      const conversation = [{ role: 'cat', content: 'hi' }];
      const [chat] = await llm.chat(conversation, params);
      const several = await llm.chat([conversation, conversation], params);
      expect(chat!.prompt).toBe('cat: hi<eos>bird: ');
      expect(chat!.promptTokenIds).toEqual(engine.tokenize(chat!.prompt!, { addSpecial: false, parseSpecial: true }));
      expect(several.map(({ outputs }) => outputs)).toEqual([chat!.outputs, chat!.outputs]);
    }));

  it('returns an empty list for an empty list', () =>
    withLlm(async (llm) => {
      expect(await llm.generate([])).toEqual([]);
      expect(await llm.chat([])).toEqual([]);
    }));

  it('runs a batch that is larger than the engine’s queue', () =>
    withLlm(async (llm) => {
      const outputs = await llm.generate(Array<string>(400).fill('x'), { ...params, maxTokens: 1 });
      expect(outputs.length).toBe(400);
      const wide = await llm.generate(Array<string>(5).fill('x'), { ...params, maxTokens: 1, n: 128 });
      expect(wide.flatMap(({ outputs }) => outputs).length).toBe(640);
    }));

  it('refuses a batch with an invalid request and aborts its other requests', () =>
    withLlm(async (llm, { scheduler }) => {
      const prompts = ['x', [], 'y'];
      await expect(llm.generate(prompts, params)).rejects.toMatchObject({ code: 'KVASIR_PROMPT_EMPTY' });
      await untilIdle(scheduler);
      await expect(llm.generate('')).rejects.toMatchObject({ code: 'KVASIR_PROMPT_EMPTY' });
      await expect(llm.generate([[1.5]], params)).rejects.toMatchObject({ code: 'KVASIR_INVALID_PARAMETER' });
      await expect(llm.generate(['x'], [])).rejects.toMatchObject({ code: 'KVASIR_INVALID_PARAMETER' });
      await expect(llm.generate('x', { n: 1e9 })).rejects.toMatchObject({ code: 'KVASIR_INVALID_PARAMETER' });
      expect((await llm.generate('x', params)).length).toBe(1);
    }));

  it('ends every prompt with `abort` when the signal aborts', () =>
    withLlm(async (llm) => {
      const controller = new AbortController();
      const running = llm.generate(['x', 'y'], { ...params, maxTokens: 100 }, { signal: controller.signal });
      await new Promise(setImmediate);
      controller.abort();
      for (const { outputs } of await running) expect(outputs[0]!.finishReason).toBe('abort');
      const late = await llm.generate('x', params, { signal: controller.signal });
      expect(late[0]!.outputs[0]).toEqual({ index: 0, text: '', tokenIds: [], finishReason: 'abort' });
    }));

  it('loads the model once, at the first use, and again after an error', async () => {
    let loads = 0;
    const toy = toyEngine();
    const llm = new OfflineLlm(async () => {
      loads++;
      if (loads === 1) throw new Error('disk');
      return toy.engine;
    });
    expect(loads).toBe(0);
    await expect(llm.generate('x', params)).rejects.toThrow('disk');
    await Promise.all([llm.generate('x', params), llm.generate('y', params)]);
    expect(loads).toBe(2);
    await llm.close();
    await llm.close();
    await expect(llm.generate('x')).rejects.toMatchObject({ code: 'KVASIR_ENGINE_CLOSED' });
  });

  it('closes without loading the model', async () => {
    const llm = new OfflineLlm(() => Promise.reject(new Error('never')));
    await llm[Symbol.asyncDispose]();
  });
});
