import fc from 'fast-check';
import { expect, test } from 'vitest';
import { fuzzRuns } from '../../test/support/long-form.ts';
import { toyEngine, untilIdle } from '../../test/support/toy-model.ts';
import type { AsyncEngine, OutputDelta } from './contract.ts';

/**
 * Runs many requests at once, with aborts, and compares them with the same requests run one at a time in a new engine.
 * Not covered: the content of KV (the toy model reads tokens), priorities.
 */
const request = fc.record({
  prompt: fc.stringMatching(/^[a-c]{1,30}$/),
  n: fc.constantFrom(1, 1, 1, 3),
  temperature: fc.constantFrom(0, 1),
  seed: fc.bigInt({ min: 0n, max: 1000n }),
  maxTokens: fc.integer({ min: 1, max: 60 }),
  minTokens: fc.constantFrom(0, 0, 1),
  stop: fc.subarray(['the bird', 'sings. ', '#E', '\n\n', 'd', '🐦'], { maxLength: 2 }),
  includeStopStrInOutput: fc.boolean(),
  logprobs: fc.constantFrom(undefined, 1),
  /** Turns of the event loop before the request is sent. */
  delay: fc.integer({ min: 0, max: 30 }),
  goes: fc.oneof(
    { weight: 3, arbitrary: fc.constant(undefined) },
    { weight: 1, arbitrary: fc.record({ how: fc.constantFrom('signal', 'break', 'before'), afterDeltas: fc.nat(20) }) },
  ),
});
type Request = typeof request extends fc.Arbitrary<infer T> ? T : never;

const scenario = fc.record({
  requests: fc.array(request, { minLength: 1, maxLength: 12 }),
  maxNumSeqs: fc.integer({ min: 1, max: 6 }),
  maxNumBatchedTokens: fc.integer({ min: 1, max: 40 }),
  // The longest request has 100 tokens and needs 25 blocks, so a pool of 26 usable blocks preempts often.
  blockCount: fc.constantFrom(27, 40, 200),
  enablePrefixCaching: fc.boolean(),
  /** The largest number of event loop turns in a step, so that requests are also aborted while a step is in flight. */
  stepTurns: fc.integer({ min: 0, max: 3 }),
});

const numRuns = fuzzRuns(60);

type Scenario = typeof scenario extends fc.Arbitrary<infer T> ? T : never;

/** Its request is aborted after some tokens. Random scenarios may have none. */
const withCutAnswer: Scenario = {
  requests: [
    {
      prompt: 'abc',
      n: 1,
      temperature: 0,
      seed: 1n,
      maxTokens: 60,
      minTokens: 1,
      stop: [],
      includeStopStrInOutput: false,
      logprobs: 1,
      delay: 0,
      goes: { how: 'signal', afterDeltas: 3 },
    },
  ],
  maxNumSeqs: 2,
  maxNumBatchedTokens: 40,
  blockCount: 200,
  enablePrefixCaching: true,
  stepTurns: 0,
};

async function turns(count: number): Promise<void> {
  for (let turn = 0; turn < count; turn++) await new Promise(setImmediate);
}

async function run(engine: AsyncEngine, { prompt, delay: _, goes, ...params }: Request): Promise<OutputDelta[]> {
  const controller = new AbortController();
  const deltas: OutputDelta[] = [];
  if (goes?.how === 'before') controller.abort();
  for await (const delta of engine.generate({ prompt, params: params as object }, { signal: controller.signal })) {
    deltas.push(delta);
    if (goes === undefined || deltas.length <= goes.afterDeltas) continue;
    if (goes.how === 'break') break;
    controller.abort();
  }
  return deltas;
}

/** Each completion without its division into deltas and without its stats. */
function outcome(deltas: readonly OutputDelta[], n: number) {
  return Array.from({ length: n }, (_, index) => {
    const mine = deltas.filter((delta) => delta.index === index);
    return {
      text: mine.map(({ text }) => text).join(''),
      tokens: mine.flatMap(({ tokenIds }) => tokenIds),
      logprobs: mine.flatMap(({ logprobs }) => logprobs ?? []),
      finish: mine.at(-1)?.finish,
    };
  });
}

/**
 * The beginning of the whole text that an aborted request can have. If the abort cuts a character of several tokens, its
 * first bytes become U+FFFD, which is not in the whole text.
 */
function beginningOf(whole: string, part: string): string {
  const isCut = part.endsWith('\ufffd') && !whole.startsWith(part);
  return isCut ? `${whole.slice(0, part.length - 1)}\ufffd` : whole.slice(0, part.length);
}

test('requests that share an engine give the same output as alone', async () => {
  let cutAnswers = 0;
  await fc.assert(
    fc.asyncProperty(scenario, async ({ requests, blockCount, stepTurns, ...scheduler }) => {
      const { engine, scheduler: blocks } = toyEngine({
        blockCount,
        scheduler: { ...scheduler, maxModelLen: 100 },
        beforeStep: (step) => turns(step % (stepTurns + 1)),
      });
      const together = await Promise.all(
        requests.map(async (request) => {
          await turns(request.delay);
          const deltas = await run(engine, request);
          blocks.checkInvariants();
          return deltas;
        }),
      );
      await engine.drain();
      await untilIdle(blocks);
      expect(blocks.stats().blocks.referenced).toBe(0);
      blocks.checkInvariants();
      await engine.close();

      const { engine: reference } = toyEngine({ scheduler: { maxModelLen: 100, maxNumSeqs: 1 } });
      for (const [index, request] of requests.entries()) {
        const alone = outcome(await run(reference, { ...request, goes: undefined }), request.n);
        const shared = outcome(together[index]!, request.n);
        for (const [completion, expected] of alone.entries()) {
          const seen = shared[completion]!;
          if (request.goes !== undefined && seen.finish?.reason !== expected.finish?.reason) {
            // The request was aborted. Its text, tokens and logprobs are the beginning of those of the whole completion.
            expect(beginningOf(expected.text, seen.text)).toBe(seen.text);
            if (seen.tokens.length > 0) cutAnswers++;
            expect(seen.tokens).toEqual(expected.tokens.slice(0, seen.tokens.length));
            expect(seen.logprobs).toEqual(expected.logprobs.slice(0, seen.logprobs.length));
          } else expect(seen).toEqual(expected);
        }
      }
      await reference.close();
    }),
    { numRuns, examples: [[withCutAnswer]] },
  );
  // Ensures that the test compared aborted requests with tokens.
  expect(cutAnswers).toBeGreaterThan(0);
});
