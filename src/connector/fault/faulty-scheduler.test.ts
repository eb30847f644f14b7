/** The faults around the scheduler side of a connector without a tier, with time that passes only by hand. */
import { beforeEach, expect, it } from 'vitest';
import { ManualTime } from '../../../test/support/manual-time.ts';
import { until } from '../../../test/support/until.ts';
import { blockedThreadCount } from '../../base/call-thread.ts';
import { blockIndex, groupIndex, requestId, tokenCount } from '../../core/ids.ts';
import type { ConnectorRequest, MatchAnswer, SchedulerConnector } from '../connector.ts';
import { suiteIdentity, suiteKey } from '../tier/tier.suite.ts';
import { type FaultRule, faultRule } from './fault-rules.ts';
import { faultyScheduler } from './faulty-scheduler.ts';

// Threads of other test files may be about to return.
beforeEach(() => until(() => blockedThreadCount() === 0));

const turn = () => new Promise((resolve) => setImmediate(resolve));

/** A side that finds every block. */
function make(rule: Pick<FaultRule, 'fault'> & Partial<FaultRule>) {
  const time = new ManualTime();
  let wakes = 0;
  const context = { clock: time, timers: time, wake: () => void wakes++, identities: [suiteIdentity] };
  const inner = {
    getMatchedBlocks: ({ wanted }: ConnectorRequest): MatchAnswer => ({
      kind: 'found',
      blocks: wanted.map((block) => ({ ...block, place: 'mine' })),
      mode: 'async',
    }),
    updateStateAfterAlloc: () => undefined,
    requestFinished: () => ({}),
    close: () => Promise.resolve(),
  } as unknown as SchedulerConnector;
  const side = faultyScheduler(inner, context, { seed: 1, rules: [faultRule({ on: 'has', ...rule })] });
  const request = (name: string): ConnectorRequest => ({
    id: requestId(name),
    tokenCount: tokenCount(64),
    wanted: [0, 1, 2].map((n) => ({ group: groupIndex(0), index: blockIndex(n), key: suiteKey(n) })),
  });
  const ask = (name = 'r'): readonly number[] | number => {
    const answer = side.getMatchedBlocks(request(name));
    return answer.kind === 'askLater' ? answer.deadlineMs : answer.blocks.map(({ index }) => index);
  };
  /** The answer after a turn: faults that take no time are drawn in the background, too. */
  const askTwice = async (name = 'r') => {
    ask(name);
    await turn();
    return ask(name);
  };
  const admit = (name = 'r'): void => side.updateStateAfterAlloc(request(name), undefined, () => []);
  return { time, side, ask, askTwice, admit, wakes: () => wakes };
}

it.each(['missing', 'error'] as const)(
  '%s: the block is left out of the answer, once for each look-up',
  async (fault) => {
    const { side, ask, askTwice, admit } = make({ fault, blocks: [1], limit: 1 });
    expect(await askTwice()).toEqual([0, 2]);
    expect(ask()).toEqual([0, 2]);
    admit();
    expect(await askTwice()).toEqual([0, 1, 2]);
    expect(side.counters?.()).toEqual({ [`injected.${fault}`]: 1 });
  },
);

it('rules select requests and keys', async () => {
  const { askTwice } = make({ fault: 'missing', requests: ['b'], keys: [suiteKey(2)] });
  expect([await askTwice('a'), await askTwice('b'), await askTwice('c')]).toEqual([
    [0, 1, 2],
    [0, 1],
    [0, 1, 2],
  ]);
});

it('slow: the answer comes after the delay, with all blocks, and the engine is woken', async () => {
  const { time, ask, wakes } = make({ fault: 'slow', blocks: [1], delayMs: 50 });
  const deadlineMs = ask();
  await turn();
  expect(deadlineMs).toBe(1100);
  time.advance(49);
  await turn();
  expect([ask(), wakes()]).toEqual([deadlineMs, 0]);
  time.advance(1);
  await turn();
  expect([ask(), wakes()]).toEqual([[0, 1, 2], 1]);
});

it('slow beyond the time limit: the answer comes before the deadline, without the block', async () => {
  const { time, ask, wakes } = make({ fault: 'slow', blocks: [1], delayMs: 5000 });
  const deadlineMs = ask();
  await turn();
  time.advance(1000);
  await turn();
  expect(time.nowMs()).toBeLessThan(deadlineMs as number);
  expect([ask(), wakes()]).toEqual([[0, 2], 1]);
});

it('hung: a thread is blocked, and the answer comes before the deadline', async () => {
  const { time, side, ask } = make({ fault: 'hung', blocks: [0, 1] });
  expect(ask()).toBe(1100);
  await turn();
  expect(blockedThreadCount()).toBe(1);
  time.advance(1000);
  await turn();
  expect(ask()).toEqual([2]);
  await until(() => blockedThreadCount() === 0);
  await side.close();
});

it('hung with ignoresAbort: there is no answer, and the engine goes on at the deadline', async () => {
  const { time, side, ask, askTwice, admit, wakes } = make({
    fault: 'hung',
    blocks: [1],
    limit: 1,
    ignoresAbort: true,
  });
  expect(ask()).toBe(1100);
  await turn();
  time.advance(5000);
  await turn();
  expect([ask(), wakes()]).toEqual([1100, 0]);
  admit();
  expect(await askTwice()).toEqual([0, 1, 2]);
  expect(blockedThreadCount()).toBe(1);
  await side.close();
  // One wake for the look-up after the admission.
  expect([blockedThreadCount(), wakes(), time.pending]).toEqual([0, 1, 0]);
});

it('a request that ends gives its look-up up', async () => {
  const { time, side, ask, admit, wakes } = make({ fault: 'slow' });
  expect(ask()).toBe(1100);
  await turn();
  admit();
  time.advance(5000);
  await turn();
  expect([wakes(), time.pending]).toEqual([0, 0]);
  await side.close();
});
