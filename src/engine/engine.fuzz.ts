import fc from 'fast-check';
import { expect, test } from 'vitest';
import { toyEngine, untilIdle } from '../../test/support/toy-model.ts';
import type { AsyncEngine, OutputDelta } from './contract.ts';

/**
 * Many requests at once, with aborts, against the same requests one at a time in a fresh engine (the naive twin).
 * Not covered: what the KV holds (the toy model reads tokens), priorities.
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
  /** Turns of the event loop before it is sent. */
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
  // 100 tokens of the longest request need 25 pages: a pool of 26 preempts all the time.
  pageCount: fc.constantFrom(27, 40, 200),
  enablePrefixCaching: fc.boolean(),
  /** Turns of the event loop that a step takes at most, so that requests also go away while a plan is out. */
  stepTurns: fc.integer({ min: 0, max: 3 }),
});

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

/** What each completion came to, without how it was cut into deltas and what it cost. */
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

test('requests that share an engine get what each gets alone', async () => {
  await fc.assert(
    fc.asyncProperty(scenario, async ({ requests, pageCount, stepTurns, ...scheduler }) => {
      const { engine, scheduler: blocks } = toyEngine({
        pageCount,
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

      const { engine: quiet } = toyEngine({ scheduler: { maxModelLen: 100, maxNumSeqs: 1 } });
      for (const [index, request] of requests.entries()) {
        const alone = outcome(await run(quiet, { ...request, goes: undefined }), request.n);
        const shared = outcome(together[index]!, request.n);
        for (const [completion, expected] of alone.entries()) {
          const seen = shared[completion]!;
          if (request.goes !== undefined && seen.finish?.reason !== expected.finish?.reason) {
            // It went away: what it got until then is how the other one begins.
            expect(expected.text.startsWith(seen.text) || seen.finish?.reason === 'abort').toBe(true);
            expect(seen.tokens).toEqual(expected.tokens.slice(0, seen.tokens.length));
          } else expect(seen).toEqual(expected);
        }
      }
      await quiet.close();
    }),
    { numRuns: 60 },
  );
});
