import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AsyncEngine, GenerateRequest, OutputDelta } from './contract.ts';

interface Completion {
  readonly text: string;
  readonly tokenIds: readonly number[];
  readonly logprobs: readonly unknown[];
  readonly finish: OutputDelta['finish'];
}

const prompts = ['Once upon a time', 'There was a fox. '.repeat(9), 'There was a fox. '.repeat(7), 'Rain fell'];
const requestOf = (prompt: string): GenerateRequest => ({
  prompt,
  params: { maxTokens: 12, temperature: 0.8, seed: 3n, ignoreEos: true, logprobs: 1 },
});

/** The completions of one request, by index. */
async function completionsOf(deltas: AsyncIterable<OutputDelta>): Promise<Completion[]> {
  const completions: Completion[] = [];
  for await (const { index, text, tokenIds, logprobs = [], finish } of deltas) {
    const before = completions[index] ?? { text: '', tokenIds: [], logprobs: [], finish: undefined };
    expect(before.finish, 'nothing follows the end of a completion').toBeUndefined();
    completions[index] = {
      text: before.text + text,
      tokenIds: [...before.tokenIds, ...tokenIds],
      logprobs: [...before.logprobs, ...logprobs],
      finish,
    };
  }
  return completions;
}

/** The contract of every engine, for any executor. The suite calls `open` twice and closes the engines. */
export function engineSuite(name: string, open: () => Promise<AsyncEngine>): void {
  describe(`${name} as an engine`, () => {
    let engine: AsyncEngine;
    beforeAll(async () => {
      engine = await open();
    });
    afterAll(() => engine.close());
    const complete = async (prompt: string): Promise<Completion> =>
      (await completionsOf(engine.generate(requestOf(prompt))))[0]!;

    it('streams the text of its tokens with a logprob for each, and ends at maxTokens', async () => {
      const { text, tokenIds, logprobs, finish } = await complete(prompts[0]!);
      expect(text).toBe(engine.detokenize(tokenIds));
      expect([tokenIds.length, logprobs.length, finish?.reason]).toEqual([12, 12, 'length']);
    });

    it('gives a request the same bits alone, in a batch and from cached blocks', async () => {
      const alone: Completion[] = [];
      for (const prompt of prompts) alone.push(await complete(prompt));
      expect(await Promise.all(prompts.map(complete))).toEqual(alone);
    });

    it('keeps to a grammar, with the same bits alone and in a batch', async () => {
      const structuredOutputs = {
        json: { type: 'array', items: { enum: ['fox', 'owl'] }, minItems: 2, maxItems: 2 },
        disableAnyWhitespace: true,
      };
      const ask = async (prompt: string, seed: bigint): Promise<Completion> => {
        const params = { maxTokens: 60, temperature: 0.8, seed, logprobs: 2, structuredOutputs };
        return (await completionsOf(engine.generate({ prompt, params })))[0]!;
      };
      const alone: Completion[] = [];
      for (const [i, prompt] of prompts.entries()) alone.push(await ask(prompt, BigInt(i)));
      for (const { text, finish } of alone) {
        expect(JSON.parse(text)).toHaveLength(2);
        expect(finish?.reason).toBe('stop');
      }
      const others = prompts.map(complete);
      expect(await Promise.all(prompts.map((prompt, i) => ask(prompt, BigInt(i))))).toEqual(alone);
      await Promise.all(others);
    });

    it('gives n completions that equal n requests with ascending seeds', async () => {
      const { prompt, params } = requestOf(prompts[0]!);
      const together = await completionsOf(engine.generate({ prompt, params: { ...params, n: 2 } }));
      const apart = await Promise.all(
        [3n, 4n].map(async (seed) => completionsOf(engine.generate({ prompt, params: { ...params, seed } }))),
      );
      expect(together).toEqual(apart.flat());
    });

    it('ends at a stop string, which is not part of the text', async () => {
      const { text } = await complete(prompts[0]!);
      const stop = text.slice(4, 7);
      const { prompt, params } = requestOf(prompts[0]!);
      const [stopped] = await completionsOf(engine.generate({ prompt, params: { ...params, stop: [stop] } }));
      expect(stopped).toMatchObject({
        text: text.slice(0, text.indexOf(stop)),
        finish: { reason: 'stop', stopReason: stop },
      });
    });

    it('ends a request with `abort` when its signal aborts, and other requests continue', async () => {
      const expected = await complete(prompts[1]!);
      const abort = new AbortController();
      const deltas: OutputDelta[] = [];
      const other = complete(prompts[1]!);
      const { prompt, params } = requestOf(prompts[3]!);
      const long = { prompt, params: { ...params, maxTokens: 400 } };
      for await (const delta of engine.generate(long, { signal: abort.signal })) {
        deltas.push(delta);
        abort.abort();
      }
      expect(deltas.at(-1)?.finish?.reason).toBe('abort');
      expect(await other).toEqual(expected);
    });

    it('refuses an invalid request with an error of the catalogue, and serves the next request', async () => {
      const bad = { prompt: prompts[0]!, params: { temperature: -1 } };
      await expect(completionsOf(engine.generate(bad))).rejects.toMatchObject({ code: 'KVASIR_INVALID_PARAMETER' });
      expect((await complete(prompts[0]!)).finish?.reason).toBe('length');
    });

    it('drain waits for accepted requests and refuses new ones', async () => {
      const draining = await open();
      const expected = await complete(prompts[3]!);
      const accepted = completionsOf(draining.generate(requestOf(prompts[3]!)));
      const drained = draining.drain();
      await expect(completionsOf(draining.generate(requestOf(prompts[0]!)))).rejects.toMatchObject({
        code: expect.stringMatching(/^KVASIR_/),
      });
      await drained;
      expect(await accepted).toEqual([expected]);
      await draining.close();
      await draining.close();
      expect(draining.isHealthy()).toBe(false);
    });
  });
}
