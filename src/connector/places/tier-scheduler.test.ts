import { describe, expect, it, test } from 'vitest';
import { ManualTime } from '../../../test/support/manual-time.ts';
import { type BlockId, blockId, blockIndex, groupIndex, requestId, tokenCount } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import type { ConnectorRequest, KvBlock, LoadJob } from '../connector.ts';
import { namedCounts } from '../connector-stats.ts';
import { ledgerBeside } from '../ledger-beside.suite.ts';
import { HostTier } from '../tier/host/tier-host.ts';
import { lookUpEach } from '../tier/look-up.ts';
import { suiteBytes, suiteIdentity, suiteKey } from '../tier/tier.suite.ts';
import type { Tier } from '../tier/tier.ts';
import { TierScheduler } from './tier-scheduler.ts';

const keys = Array.from({ length: 6 }, (_, i) => suiteKey(i));
const open = new AbortController().signal;
const never = new Promise<boolean>(() => {});
const turns = async (): Promise<void> => {
  for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
};
const blocksOf = (some: readonly BlockKey[]): KvBlock[] =>
  some.map((key, index) => ({ group: groupIndex(0), index: blockIndex(index), key }));
const requestFor = (name: string, some: readonly BlockKey[] = keys): ConnectorRequest => ({
  id: requestId(name),
  tokenCount: tokenCount(100),
  wanted: blocksOf(some),
});

/** A tier whose look-ups have the test's answers: `undefined` hangs until the look-up is aborted. */
function tierWithAnswers(
  answer: (key: BlockKey) => boolean | undefined | Error,
): Tier & { readonly asked: BlockKey[][] } {
  const inner = new HostTier({ identity: suiteIdentity, maxBytes: 1e6 });
  const asked: BlockKey[][] = [];
  const has: Tier['has'] = (some, signal) => {
    asked.push([...some]);
    return lookUpEach(some, signal, async (key) => {
      const found = answer(key);
      if (found instanceof Error) throw found;
      return found ?? never;
    });
  };
  return Object.assign(inner, { has, asked });
}

function make(tiers: readonly Tier[]) {
  const time = new ManualTime();
  let wakes = 0;
  const scheduler = new TierScheduler(
    tiers,
    { clock: time, timers: time, wake: () => void wakes++, identities: tiers.map(() => suiteIdentity) },
    { role: 'kv_both', mode: 'async', lookupTimeoutMs: 1000 },
  );
  const engine = ledgerBeside(scheduler, time);
  /** The keys that were found, or the deadline of the look-up. */
  const ask = (request: ConnectorRequest): readonly BlockKey[] | number => {
    const answer = scheduler.getMatchedBlocks(engine.asked(request));
    return answer.kind === 'askLater' ? answer.deadlineMs : answer.blocks.map(({ key }) => key);
  };
  const admit = (request: ConnectorRequest, load?: LoadJob, valid: readonly KvBlock[] = []): void =>
    scheduler.updateStateAfterAlloc(request, load, () => valid);
  /** One step: offers the keys as newly valid, executes the saves, and returns their keys. */
  const step = async (offered: readonly BlockKey[], valid: readonly BlockKey[] = []): Promise<readonly BlockKey[]> => {
    const plan = engine.step(
      blocksOf(offered).map((block) => ({ ...block, requestId: requestId('r'), block: blockId(7) })),
      (key): BlockId | undefined => (valid.includes(key) ? blockId(8) : undefined),
    );
    for (const { transfer, blocks } of plan.saves) {
      for (const { key } of blocks) for (const tier of tiers) await tier.store(key, suiteBytes(key), open);
      engine.output({ finishedSending: [transfer], drained: [transfer] });
    }
    return plan.saves.flatMap(({ blocks }) => blocks.map(({ key }) => key));
  };
  return { scheduler, engine, time, ask, admit, step, wakes: () => wakes };
}

describe('a look-up', () => {
  it('ends with the answers so far at its timeout, before the deadline in `askLater`', async () => {
    const { time, ask, wakes } = make([tierWithAnswers((key) => (key === keys[2] ? undefined : key !== keys[4]))]);
    const request = requestFor('r');
    const deadlineMs = ask(request) as number;
    await turns();
    time.advance(999);
    await turns();
    expect(ask(request)).toBe(deadlineMs);
    time.advance(1);
    await turns();
    expect(time.nowMs()).toBeLessThan(deadlineMs);
    expect(wakes()).toBe(1);
    expect(ask(request)).toEqual([keys[0], keys[1], keys[3], keys[5]]);
  });

  it('uses the other answers when the call for one key fails', async () => {
    const { ask } = make([tierWithAnswers((key) => (key === keys[2] ? new Error('EACCES') : true))]);
    ask(requestFor('r'));
    await turns();
    expect(ask(requestFor('r'))).toEqual(keys.filter((key) => key !== keys[2]));
  });

  it('finds a block only if all ranks have their part of it', async () => {
    const world = make([
      tierWithAnswers((key) => key !== keys[1]),
      tierWithAnswers((key) => (key === keys[3] ? new Error('EIO') : true)),
    ]);
    world.ask(requestFor('r'));
    await turns();
    expect(world.ask(requestFor('r'))).toEqual([keys[0], keys[2], keys[4], keys[5]]);
  });

  it('ends in time when a tier ignores its signal, and five such look-ups open the breaker', async () => {
    const hung = Object.assign(
      tierWithAnswers(() => true),
      { has: () => new Promise<never>(() => {}) },
    );
    const { time, ask } = make([hung]);
    for (let i = 0; i < 5; i++) {
      const deadlineMs = ask(requestFor(`r${i}`)) as number;
      await turns();
      time.advance(1000);
      await turns();
      time.advance(50);
      await turns();
      expect(time.nowMs()).toBeLessThan(deadlineMs);
      expect(ask(requestFor(`r${i}`))).toEqual([]);
    }
    expect(ask(requestFor('later'))).toEqual([]);
  });

  it('counts as failed if it ends at its deadline, although some keys were answered', async () => {
    const tier = tierWithAnswers((key) => (key === keys[0] ? true : undefined));
    const { scheduler, time, ask } = make([tier]);
    for (let i = 0; i < 5; i++) {
      ask(requestFor(`r${i}`, [keys[0]!, suiteKey(`unique ${i}`)]));
      await turns();
      time.advance(1000);
      await turns();
      expect(ask(requestFor(`r${i}`, [keys[0]!, suiteKey(`unique ${i}`)]))).toEqual([keys[0]]);
    }
    expect(namedCounts(scheduler.stats())).toMatchObject({ 'breakerOpened.lookup': 1 });
  });

  it('that probes an open breaker runs in the background: the request does not wait', async () => {
    let isDown: boolean = true;
    const tier = tierWithAnswers(() => (isDown ? new Error('down') : true));
    const { time, ask } = make([tier]);
    for (let i = 0; i < 5; i++) {
      ask(requestFor(`r${i}`));
      await turns();
    }
    for (const coolDownMs of [1000, 2000, 4000]) {
      const { length } = tier.asked;
      time.advance(coolDownMs);
      expect(ask(requestFor(`after ${coolDownMs}`))).toEqual([]);
      expect(tier.asked).toHaveLength(length + 1);
      await turns();
      expect(ask(requestFor(`not after ${coolDownMs}`))).toEqual([]);
      expect(tier.asked).toHaveLength(length + 1);
    }
    isDown = false;
    time.advance(8000);
    expect(ask(requestFor('probe'))).toEqual([]);
    await turns();
    ask(requestFor('later'));
    await turns();
    expect(ask(requestFor('later'))).toEqual(keys);
  });

  it('waits for a key that hangs once, and omits it during its cool-down', async () => {
    const tier = tierWithAnswers((key) => (key === keys[2] ? undefined : true));
    const { time, ask, admit } = make([tier]);
    const rest = keys.filter((key) => key !== keys[2]);
    ask(requestFor('a'));
    await turns();
    time.advance(1000);
    await turns();
    expect(ask(requestFor('a'))).toEqual(rest);
    admit(requestFor('a'));
    ask(requestFor('b'));
    await turns();
    expect(ask(requestFor('b'))).toEqual(rest);
    expect(tier.asked.at(-1)).toEqual(rest);
    admit(requestFor('b'));
    time.advance(1000);
    ask(requestFor('c'));
    expect(tier.asked.at(-1)).toEqual(keys);
  });

  it('is repeated after an admission, but not for blocks that failed to load', async () => {
    const tier = tierWithAnswers(() => true);
    const { engine, ask, admit } = make([tier]);
    ask(requestFor('r'));
    await turns();
    const found = blocksOf(keys).map((block, i) => ({ ...block, place: 'host', block: blockId(i + 1) }));
    const load = engine.load('r', found);
    admit(requestFor('r'), load);
    const failure = (block: number, reason: 'corrupt' | 'workerDied') =>
      ({ transfer: load.transfer, block: blockId(block), reason, isBlockBusy: false }) as const;
    engine.output({
      loadFailures: [failure(2, 'corrupt'), failure(4, 'workerDied')],
      finishedRecving: [load.transfer],
    });
    expect(ask(requestFor('r', [keys[1]!]))).toEqual([]);
    expect(tier.asked).toHaveLength(1);
    expect(ask(requestFor('r', [keys[1]!, keys[3]!]))).toBeTypeOf('number');
    await turns();
    expect(ask(requestFor('r', [keys[1]!, keys[3]!]))).toEqual([keys[3]]);
    expect(tier.asked).toEqual([keys, [keys[3]]]);
  });
});

test('the counters have the counts of all tiers and of the look-up breaker', async () => {
  let isDown: boolean = true;
  const { scheduler, time, ask, admit } = make([tierWithAnswers(() => (isDown ? new Error('down') : true))]);
  const lookUp = async (name: string): Promise<void> => {
    ask(requestFor(name));
    await turns();
    ask(requestFor(name));
    admit(requestFor(name));
  };
  for (let i = 0; i < 5; i++) await lookUp(`r${i}`);
  expect(namedCounts(scheduler.stats())).toMatchObject({ 'breakerOpened.lookup': 1, 'now.breakerOpen.lookup': 1 });
  isDown = false;
  time.advance(1000);
  expect(namedCounts(scheduler.stats())).toMatchObject({ 'now.breakerOpen.lookup': 1, 'now.blocks': 0 });
  await lookUp('later');
  expect(namedCounts(scheduler.stats())).toMatchObject({ 'breakerOpened.lookup': 1, 'now.breakerOpen.lookup': 0 });
});

describe('a block that another process removed from the store', () => {
  const make2 = () => {
    const tier = new HostTier({ identity: suiteIdentity, maxBytes: 1e6 });
    return { tier, ...make([tier]) };
  };

  it('is saved again when it becomes valid after a look-up found it missing', async () => {
    const { tier, ask, step } = make2();
    expect(await step(keys)).toEqual(keys);
    expect(await step(keys)).toEqual([]);
    await tier.delete(keys[3]!);
    ask(requestFor('r'));
    await turns();
    expect(ask(requestFor('r'))).toEqual(keys.filter((key) => key !== keys[3]));
    expect(await step(keys)).toEqual([keys[3]]);
    expect(await tier.has([keys[3]!], open)).toEqual([true]);
  });

  it('is saved again from the pool when a request uses it', async () => {
    const { tier, admit, step, time, scheduler, wakes } = make2();
    await step(keys);
    await tier.delete(keys[3]!);
    await tier.delete(keys[4]!);
    admit(requestFor('soon', []), undefined, blocksOf(keys));
    await turns();
    expect(scheduler.hasPendingWork()).toBe(false);
    time.advance(60_000);
    admit(requestFor('later', []), undefined, blocksOf(keys));
    await turns();
    expect([scheduler.hasPendingWork(), wakes()]).toEqual([true, 1]);
    // The pool has only one of the two blocks.
    expect(await step([], [keys[3]!])).toEqual([keys[3]]);
    expect(await tier.has([keys[3]!, keys[4]!], open)).toEqual([true, false]);
    expect(scheduler.hasPendingWork()).toBe(false);
    expect(await step([keys[4]!])).toEqual([keys[4]]);
  });

  it('is saved again when an engine that only saves computes it again after the trust time', async () => {
    const { tier, step, time } = make2();
    await step(keys);
    await tier.delete(keys[3]!);
    expect(await step([keys[3]!])).toEqual([]);
    time.advance(60_000);
    expect(await step([keys[3]!])).toEqual([keys[3]]);
  });
});
