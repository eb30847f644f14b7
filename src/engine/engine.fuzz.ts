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
  blockCount: fc.constantFrom(27, 40, 200),
  enablePrefixCaching: fc.boolean(),
  /** Turns of the event loop that a step takes at most, so that requests also go away while a plan is out. */
  stepTurns: fc.integer({ min: 0, max: 3 }),
});

const numRuns = Number(process.env.KVASIR_FUZZ_RUNS ?? 60);

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

/**
 * As much of the whole text as an aborted request can have. When the abort cuts a character of several tokens, its bytes so far
 * come out as U+FFFD, which the whole text has not.
 */
function beginningOf(whole: string, part: string): string {
  const isCut = part.endsWith('\ufffd') && !whole.startsWith(part);
  return isCut ? `${whole.slice(0, part.length - 1)}\ufffd` : whole.slice(0, part.length);
}

test('requests that share an engine get what each gets alone', async () => {
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

      const { engine: quiet } = toyEngine({ scheduler: { maxModelLen: 100, maxNumSeqs: 1 } });
      for (const [index, request] of requests.entries()) {
        const alone = outcome(await run(quiet, { ...request, goes: undefined }), request.n);
        const shared = outcome(together[index]!, request.n);
        for (const [completion, expected] of alone.entries()) {
          const seen = shared[completion]!;
          if (request.goes !== undefined && seen.finish?.reason !== expected.finish?.reason) {
            // The request was aborted. Its text, tokens and logprobs are the beginning of those of the whole answer.
            expect(beginningOf(expected.text, seen.text)).toBe(seen.text);
            if (seen.tokens.length > 0) cutAnswers++;
            expect(seen.tokens).toEqual(expected.tokens.slice(0, seen.tokens.length));
            expect(seen.logprobs).toEqual(expected.logprobs.slice(0, seen.logprobs.length));
          } else expect(seen).toEqual(expected);
        }
      }
      await quiet.close();
    }),
    { numRuns },
  );
  // Otherwise no beginning was compared.
  expect(cutAnswers).toBeGreaterThan(10);
});
