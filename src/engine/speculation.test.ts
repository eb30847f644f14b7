import { expect, test } from 'vitest';
import { RandomDrafts } from '../../sim/random-drafts.ts';
import { toyEngine } from '../../test/support/toy-model.ts';
import { Prng } from '../base/prng.ts';
import type { SamplingOptions } from '../core/sampling.ts';
import type { Speculator } from '../scheduler/speculation/speculator.ts';

interface Output {
  readonly text: string;
  readonly tokens: readonly number[];
  readonly finish: unknown;
  readonly outputTokens: number;
}

async function run(params: SamplingOptions, speculator?: Speculator) {
  const { engine } = toyEngine(speculator === undefined ? {} : { speculator });
  const output = { text: '', tokens: [] as number[], finish: undefined as unknown, outputTokens: 0 };
  for await (const { text, tokenIds, finish, stats } of engine.generate({ prompt: 'the bird', params })) {
    output.text += text;
    output.tokens.push(...tokenIds);
    if (finish !== undefined) output.finish = finish;
    output.outputTokens = stats.outputTokens;
  }
  const { draftedTokens, acceptedTokens, generatedTokens, steps } = engine.stats();
  await engine.close();
  return { output: output as Output, draftedTokens, acceptedTokens, generatedTokens, steps };
}

/** Drafts that are partly the tokens of a longer plain run. */
function drafts(right: readonly number[], seed: number): Speculator {
  let done = 0;
  const random = new RandomDrafts(new Prng(seed), 256, () => right.slice(done));
  return {
    draft: (decodes) => {
      done = decodes[0]!.outputTokens;
      return random.draft(decodes);
    },
    verified: () => undefined,
    observe: () => undefined,
  };
}

const long = { maxTokens: 60, temperature: 0.6, seed: 5n, ignoreEos: true };

test.each([
  ['a length limit', { maxTokens: 23 }],
  ['a stop string in the middle of accepted drafts', { stop: ['bird'] }],
  ['a stop string that is part of the output', { stop: ['sings', 'and'], includeStopStrInOutput: true }],
  ['penalties', { presencePenalty: 1, repetitionPenalty: 1.2, maxTokens: 40 }],
  ['EOS', { ignoreEos: false }],
] as const)('an output with %s is the same with drafts', async (_, more) => {
  const params = { ...long, ...more } as SamplingOptions;
  const plain = await run(params);
  // The right drafts go on after the stop, as the text would.
  const { stop: _stop, includeStopStrInOutput: _include, stopTokenIds: _ids, ...endless } = more as SamplingOptions;
  const right = (await run({ ...long, ...endless, maxTokens: 60, ignoreEos: true })).output.tokens;
  let accepted = 0;
  for (let seed = 1; seed <= 5; seed++) {
    const drafted = await run(params, drafts(right, seed));
    expect(drafted.output).toEqual(plain.output);
    expect(drafted.generatedTokens).toBe(plain.generatedTokens);
    expect(drafted.acceptedTokens).toBeLessThanOrEqual(drafted.draftedTokens);
    accepted += drafted.acceptedTokens;
  }
  expect(accepted).toBeGreaterThan(0);
});

test('an output with a stop token ends at the same token with drafts that go on after it', async () => {
  const right = (await run(long)).output.tokens;
  const params = { ...long, stopTokenIds: [right[30]!] };
  const plain = await run(params);
  let accepted = 0;
  for (let seed = 1; seed <= 5; seed++) {
    const drafted = await run(params, drafts(right, seed));
    expect(drafted.output).toEqual(plain.output);
    accepted += drafted.acceptedTokens;
  }
  expect(accepted).toBeGreaterThan(0);
});

test('an output with a grammar is the same with drafts, also with drafts that the grammar refuses', async () => {
  const params: SamplingOptions = { ...long, ignoreEos: false, structuredOutputs: { regex: '([a-c]{3} ){2,12}' } };
  const plain = await run(params);
  for (let seed = 1; seed <= 5; seed++) {
    const drafted = await run(params, drafts(plain.output.tokens, seed));
    expect(drafted.output).toEqual(plain.output);
    expect(drafted.acceptedTokens).toBeGreaterThan(0);
    expect(drafted.steps).toBeLessThan(plain.steps);
  }
});
