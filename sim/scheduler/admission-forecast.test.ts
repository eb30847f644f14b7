import { expect, test } from 'vitest';
import { Prng } from '../../src/base/prng.ts';
import { FORECAST_STEPS } from '../../src/kv/block-forecast.ts';
import { harness, range, short } from '../harness.ts';

/** What an admission leaves in the pool for the requests that have blocks (ADR 6). */
const blockSize = 16;
const ownPrompt = (own: number, tokens: number): number[] => range(tokens, own * 1000);

test('a request is not admitted into the blocks that running requests need for their next tokens', () => {
  for (const [blocks, running] of [
    [4, 1],
    [5, 2],
  ] as const) {
    const { scheduler, step } = harness(blocks, {}, blockSize);
    scheduler.add(short('running', ownPrompt(1, 30), 20));
    step();
    // The running request has two blocks and fills the second one in two steps. The next request needs two.
    scheduler.add(short('next', ownPrompt(2, 30), 2));
    step();
    expect(scheduler.stats()).toMatchObject({ running, waiting: 2 - running, preemptions: 0 });
  }
});

test('a request is admitted into blocks that are available before the running requests need them', () => {
  const { scheduler, step } = harness(4, {}, blockSize);
  scheduler.add(short('ends', ownPrompt(1, 16), 2));
  scheduler.add(short('stays', ownPrompt(2, 14), 40));
  step();
  // One block is available. It was kept for `ends` before, which no longer needs one after its second token.
  scheduler.add(short('next', ownPrompt(3, 10), 4));
  step();
  expect(scheduler.stats()).toMatchObject({ running: 2, waiting: 0, preemptions: 0 });
});

test('a request runs at least as many steps as the forecast covers before it is preempted', () => {
  let preemptions = 0;
  for (let seed = 0; seed < 60; seed++) {
    const prng = new Prng(seed);
    const { scheduler, step, finished } = harness(prng.between(12, 40), { maxNumSeqs: prng.between(2, 12) }, blockSize);
    const begun = new Map<string, number>();
    let requests = 0;
    for (let steps = 0; requests < 20 || scheduler.hasWork(); steps++) {
      if (requests < 20 && (prng.chance(0.3) || !scheduler.hasWork()))
        scheduler.add(short(`${requests}`, ownPrompt(requests++, prng.between(1, 60)), prng.between(1, 70)));
      const { sequences, released } = step();
      for (const id of released) {
        if (!begun.has(id) || finished.has(id)) continue;
        preemptions++;
        expect(steps - begun.get(id)!).toBeGreaterThanOrEqual(FORECAST_STEPS);
        begun.delete(id);
      }
      for (const { requestId } of sequences) if (!begun.has(requestId)) begun.set(requestId, steps);
    }
    expect(finished.size).toBe(20);
  }
  expect(preemptions).toBeGreaterThan(20);
});
