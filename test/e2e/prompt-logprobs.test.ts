import type OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createEngine } from '../../src/compose.ts';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import { serveEngine } from '../support/served-model.ts';

/** Requests of evaluation programs, with OpenAI's client and the bundled model, on one rank and on two. */
const model = 'models/kvasir-demo.gguf';
const story = 'Once upon a time, there was a little fox who lived in a forest.';
const question = 'Once upon a time, there was a';
const answers = [' little fox', ' big house'];

describe.each([1, 2])('a server with %i ranks', (pipelineParallelSize) => {
  let engine: AsyncEngine;
  let close: () => Promise<void>;
  let client: OpenAI;

  beforeAll(async () => {
    engine = await createEngine({ model, kvCacheMemory: 16 * 1024 ** 2, threads: 1, pipelineParallelSize });
    ({ client, close } = await serveEngine(engine, { choicesMax: 32 }));
  });
  afterAll(async () => {
    await close();
    await engine.close();
  });

  const scoresOf = async (prompt: string | number[], more: object = {}) => {
    const body = { model: 'kvasir-demo', prompt, max_tokens: 1, temperature: 0, logprobs: 2, echo: true, ...more };
    const { choices, usage } = await client.completions.create(body);
    return { ...choices[0]!.logprobs!, text: choices[0]!.text, usage: usage! };
  };

  it('answers requests for loglikelihoods as lm-eval sends them', async () => {
    const context = engine.tokenize(question);
    for (const answer of answers) {
      const whole = engine.tokenize(question + answer);
      const scores = await scoresOf(whole);
      expect(scores.tokens).toHaveLength(whole.length + 1);
      expect(scores.token_logprobs![0]).toBeNull();
      const ofAnswer = scores.token_logprobs!.slice(context.length, -1);
      expect(ofAnswer).toHaveLength(whole.length - context.length);
      for (const [i, logprob] of ofAnswer.entries()) {
        expect(logprob).toBeLessThanOrEqual(0);
        const top = Object.values(scores.top_logprobs![context.length + i]!);
        expect(Math.max(...top)).toBeGreaterThanOrEqual(logprob);
      }
      const alone = await scoresOf(whole, { max_tokens: 0 });
      expect(alone.token_logprobs).toEqual(scores.token_logprobs!.slice(0, -1));
      expect(alone.usage).toMatchObject({ completion_tokens: 0, prompt_tokens_details: { cached_tokens: 0 } });
    }
  });

  it('gives a text the logprobs of its tokens, and their places in the text', async () => {
    const scores = await scoresOf(story, { max_tokens: 0 });
    expect(scores.text).toBe(story);
    const tokens = engine.tokenize(story);
    expect(scores.token_logprobs).toEqual((await scoresOf(tokens, { max_tokens: 0 })).token_logprobs);
    for (const [i, offset] of scores.text_offset!.entries()) {
      const name = scores.tokens![i]!;
      if (name.startsWith('<')) continue;
      expect(story.startsWith(name.trimStart(), offset + (story[offset] === ' ' ? 1 : 0)), name).toBe(true);
    }
  });

  it('gives each token of a text that the model wrote the logprob that it had then', async () => {
    const prompt = engine.tokenize(question);
    const params = { maxTokens: 12, temperature: 0, logprobs: 1 };
    const written = { tokens: [] as number[], logprobs: [] as number[] };
    for await (const delta of engine.generate({ prompt, params })) {
      written.tokens.push(...delta.tokenIds);
      written.logprobs.push(...delta.logprobs!.map(({ logprob }) => logprob));
    }
    const scores = await scoresOf([...prompt, ...written.tokens], { max_tokens: 0 });
    expect(scores.token_logprobs!.slice(prompt.length)).toEqual(written.logprobs);
  });

  it('computes the logprobs of a prompt once for several completions, whose texts are those without them', async () => {
    const body = { model: 'kvasir-demo', prompt: story, n: 3, seed: 4, max_tokens: 6 };
    const plain = await client.completions.create(body);
    const scored = await client.completions.create({ ...body, echo: true, logprobs: 1 });
    const [alone] = (await client.completions.create({ ...body, n: 1, echo: true, logprobs: 1 })).choices;
    const { length } = engine.tokenize(story);
    const ofPrompt = alone!.logprobs!.token_logprobs!.slice(0, length);
    for (const [i, { text, logprobs }] of scored.choices.entries()) {
      expect(text).toBe(story + plain.choices[i]!.text);
      expect(logprobs!.token_logprobs!.slice(0, length)).toEqual(ofPrompt);
    }
    const { computedTokens: before } = engine.stats();
    const prompt = story.repeat(8);
    await client.completions.create({ ...body, prompt, n: 8, max_tokens: 0, echo: true, logprobs: 1 } as typeof body);
    // The last block of a prompt may be computed for each completion.
    expect(engine.stats().computedTokens - before).toBeLessThan(engine.tokenize(prompt).length + 8 * 17);
  });

  it('has prompt_logprobs of a chat, although the prompt is cached', async () => {
    const messages = [{ role: 'user', content: 'Tell me a story about a fox.' }] as const;
    const body = { model: 'kvasir-demo', messages: [...messages], max_tokens: 2, temperature: 0 };
    const { usage } = await client.chat.completions.create(body);
    const scored = (await client.chat.completions.create({ ...body, prompt_logprobs: 1 } as typeof body)) as object;
    const { prompt_logprobs: scores } = scored as { prompt_logprobs: (Record<string, { rank: number }> | null)[] };
    expect(scores).toHaveLength(usage!.prompt_tokens);
    expect(scores[0]).toBeNull();
    for (const ofToken of scores.slice(1)) {
      expect(Object.values(ofToken!).some(({ rank }) => rank === 1)).toBe(true);
      expect([1, 2]).toContain(Object.keys(ofToken!).length);
    }
  });
});
