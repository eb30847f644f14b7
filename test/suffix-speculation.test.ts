/**
 * Exact suffix decoding with the bundled model (I2): with drafts from the own text and from earlier outputs, tokens and logprobs equal those
 * without speculation. This holds with an empty and with a full cache of outputs.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SuffixDrafts } from '../sim/suffix-drafts.ts';
import { Prng } from '../src/base/prng.ts';
import { createEngine } from '../src/compose.ts';
import type { SamplingOptions } from '../src/core/sampling.ts';
import type { AsyncEngine } from '../src/engine/contract.ts';
import { computeHere } from './support/compute-here.ts';
import { Drive, type DriveOptions, type DriveRequest, type RequestTrace } from './support/drive.ts';
import { describeInLongForm } from './support/long-form.ts';

computeHere();
const model = 'models/kvasir-demo.gguf';
const prompts = ['Once upon a time, there was a little girl', 'The dog ran to the ball and', 'A', 'Tom said to Lily:'];
const samplings: SamplingOptions[] = [
  { maxTokens: 48, temperature: 0, logprobs: 2 },
  { maxTokens: 48, temperature: 0.9, topP: 0.9, seed: 3n },
  { maxTokens: 40, temperature: 0.7, seed: 4n, repetitionPenalty: 1.3, presencePenalty: 0.5, frequencyPenalty: 0.4 },
  { maxTokens: 40, temperature: 0.5, seed: 5n, structuredOutputs: { regex: '[A-Za-z ,]{20,60}\\.' } },
];

let engine: AsyncEngine;
let drive: Drive;
let requests: DriveRequest[];
let plain: Map<string, RequestTrace>;

beforeAll(async () => {
  engine = await createEngine({ model, threads: 1, maxModelLen: 256 });
  drive = await Drive.open(model, { kvCacheBytes: (blockBytes) => 64 * blockBytes });
  // The drive has no grammars.
  requests = prompts.flatMap((prompt, i) =>
    samplings.slice(0, 3).map((params, j) => ({ id: `${i}.${j}`, prompt: engine.tokenize(prompt), params })),
  );
  plain = await drive.run(requests);
});
afterAll(async () => {
  await drive.close();
  await engine.close();
});

/** Runs the requests and returns the number of accepted drafts. */
async function expectSame(some: readonly DriveRequest[], options: DriveOptions): Promise<number> {
  const traces = await drive.run(some, options);
  let accepted = 0;
  expect(traces.size).toBe(some.length);
  for (const [id, { tokens, logprobs, stats }] of traces) {
    expect(tokens, id).toEqual(plain.get(id)!.tokens);
    expect(logprobs, id).toEqual(plain.get(id)!.logprobs);
    accepted += stats!.acceptedTokens ?? 0;
  }
  return accepted;
}

/** With the default depth, drafts are as many as a user may have. */
const drafts = (seed: number): SuffixDrafts =>
  new SuffixDrafts(new Prng(seed), { depth: 24, responses: 100, tokens: 100_000 });

describe('drafts of suffix decoding, all of which are verified,', () => {
  it('change no token of a request alone, and a warm cache has most of its tokens', async () => {
    const speculator = drafts(1);
    for (const request of requests) await expectSame([request], { speculator });
    for (const request of requests) {
      const before = speculator.fromResponses;
      const accepted = await expectSame([request], { speculator });
      expect(accepted, request.id).toBeGreaterThan(20);
      expect(speculator.fromResponses).toBeGreaterThan(before);
    }
  });

  it('change no token in a batch, whose outputs come into the cache one after the other', async () => {
    await drive.run(requests);
    const plainSteps = drive.steps;
    const speculator = drafts(2);
    await expectSame(requests, { speculator, arrive: (index) => 5 * index });
    expect(await expectSame(requests, { speculator })).toBeGreaterThan(300);
    expect(drive.steps).toBeLessThan(plainSteps / 2);
  });

  it('change no token if requests are preempted, prompts come in chunks, and the cache is small', async () => {
    const few = { blocks: 14, maxNumBatchedTokens: 24, arrive: (index: number) => 3 * index };
    for (const seed of [3, 4, 5]) {
      const speculator = new SuffixDrafts(new Prng(seed), { depth: 12, responses: 2, tokens: 1000 });
      const traces = await drive.run(requests, { ...few, speculator });
      expect([...traces.values()].some(({ stats }) => stats!.preemptions > 0)).toBe(true);
      expect(await expectSame(requests, { ...few, speculator })).toBeGreaterThan(0);
      expect(speculator.fromResponses).toBeGreaterThan(0);
    }
  });

  it('come from no output with another cache salt', async () => {
    const speculator = drafts(6);
    const salted = (cacheSalt: string) => requests.map((request) => ({ ...request, cacheSalt }));
    await expectSame(requests, { speculator });
    await expectSame(salted('a'), { speculator });
    const before = speculator.fromResponses;
    // The cache has these outputs twice, under other salts. Alone, so that they do not repeat each other.
    const [first] = salted('b');
    await expectSame([first!], { speculator });
    expect(speculator.fromResponses).toBe(before);
    await expectSame([first!], { speculator });
    expect(speculator.fromResponses).toBeGreaterThan(before);
  });
});

// The default form has engines with drafts of other kinds in `speculation.test.ts` and `draft-model.test.ts`.
describeInLongForm('an engine with suffix decoding', () => {
  async function textOf(from: AsyncEngine, i: number, cacheSalt?: string): Promise<string> {
    let text = '';
    const request = { prompt: prompts[i]!, params: samplings[i]!, ...(cacheSalt === undefined ? {} : { cacheSalt }) };
    for await (const output of from.generate(request)) text += output.text;
    return text;
  }
  const textsOf = (from: AsyncEngine, salt?: string): Promise<string[]> =>
    Promise.all(prompts.map((_, i) => textOf(from, i, salt)));

  it.each([0, 3, 10_000])(
    'has the same texts with a cache of %i outputs, alone and in batches, whether the cache is warm or not',
    async (cachedRequests) => {
      const expected = await textsOf(engine);
      const speculativeConfig = { method: 'suffix', suffix_decoding_max_cached_requests: cachedRequests };
      const drafting = await createEngine({ model, threads: 1, maxModelLen: 256, speculativeConfig });
      try {
        for (const salt of [undefined, undefined, 'a', 'a']) {
          expect(await textsOf(drafting, salt)).toEqual(expected);
          for (const i of prompts.keys()) expect(await textOf(drafting, i, salt)).toBe(expected[i]);
        }
        // How many drafts are worth their time depends on the machine. Without a cache, these texts hardly repeat.
        while (cachedRequests > 0 && drafting.stats().acceptedTokens === 0)
          expect(await textOf(drafting, 0)).toBe(expected[0]);
      } finally {
        await drafting.close();
      }
    },
  );
});
