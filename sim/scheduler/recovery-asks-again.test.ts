import { describe, expect, test } from 'vitest';
import type { BlockId, TokenCount } from '../../src/core/ids.ts';
import type { SchedulerOptions } from '../../src/scheduler/contract.ts';
import { connected, fillLoad } from '../connected.ts';
import { range, shape, short } from '../harness.ts';

/** Requests with invalid KV ask their connector for the blocks before they compute them again. */
type World = ReturnType<typeof connected>;

const prompt = (own: number, blocks: number) => range(blocks * 16 + 4, own * 10_000);
const allBlocks = (world: World): BlockId[] =>
  range(world.runner.kvCacheSpec.blockCount - 1, 1).map((block) => block as BlockId);

/** A worker dies: all blocks of the pool are invalid. */
function die(world: World): void {
  for (const block of allBlocks(world)) world.runner.overwrite(block);
  world.scheduler.invalidate(allBlocks(world));
}

/** A request of ten full blocks that has computed its prompt and decodes. */
function decoding(options: Partial<SchedulerOptions> = {}): World {
  const world = connected(100, options);
  world.scheduler.add(short('1', prompt(1, 10), 8));
  expect(shape(world.step())).toEqual(['1: 0-164']);
  world.connector.blocks = () => 10;
  return world;
}

const answer = (world: World, id: string) => {
  const tokens: number[] = [];
  for (const { requestId, newTokens } of world.updates)
    if (requestId === id) tokens.push(...newTokens.map(({ token }) => token));
  return tokens;
};

function runToEnd(world: World): void {
  for (let i = 0; i < 100 && world.scheduler.hasWork(); i++) world.step();
  expect(world.scheduler.hasWork()).toBe(false);
}

describe('after the death of a worker', () => {
  test.each(['async', 'sync'] as const)(
    'a request loads the blocks of the store and computes the other tokens (%s)',
    (mode) => {
      const world = decoding();
      world.connector.mode = mode;
      die(world);
      const plan = world.plan()!;
      const load = world.loads.get('1')!;
      expect(load.blocks.map(({ index }) => index)).toEqual(range(10));
      fillLoad(world, load, short('1', prompt(1, 10), 8));
      expect(shape(plan)).toEqual(mode === 'async' ? [] : ['1: 160-165']);
      world.apply(plan, [{ load }]);
      if (mode === 'async') expect(shape(world.step())).toEqual(['1: 160-165']);
      runToEnd(world);
      const alone = connected(100);
      alone.scheduler.add(short('1', prompt(1, 10), 8));
      runToEnd(alone);
      expect(answer(world, '1')).toEqual(answer(alone, '1'));
      expect(world.updates.at(-1)!.stats.recomputedTokens).toBe(4);
    },
  );

  test('a request computes blocks that the store does not have in the next step', () => {
    const world = decoding();
    world.connector.blocks = () => 0;
    die(world);
    expect(shape(world.step())).toEqual(['1: 0-165']);
  });

  test('a request waits for an answer until its first deadline and then computes', () => {
    const world = decoding();
    world.connector.askLaterUntilMs = 50;
    die(world);
    expect(world.plan()).toBeUndefined();
    expect(world.scheduler.nextWakeMs()).toBe(50);
    world.connector.askLaterUntilMs = undefined;
    world.connector.blocks = () => 0;
    world.scheduler.add(short('2', prompt(2, 1), 1));
    world.connector.askLaterUntilMs = 60;
    expect(world.plan()).toBeUndefined();
    world.clock.nowMs = 50;
    expect(shape(world.step())).toEqual(['1: 0-165']);
  });

  test('two requests with shared blocks load them once', () => {
    const world = connected(100);
    world.scheduler.add(short('1', [...prompt(1, 4).slice(0, 64), 1, 2], 8));
    world.step();
    world.scheduler.add(short('2', [...prompt(1, 4).slice(0, 64), 3, 4], 8));
    world.step();
    world.connector.blocks = () => 4;
    world.connector.asked.length = 0;
    die(world);
    const plan = world.plan()!;
    expect(shape(plan)).toEqual([]);
    expect(plan.connectorMetadata!.loads.map(({ requestId, blocks }) => [requestId, blocks.length])).toEqual([
      ['1', 4],
    ]);
    expect(world.connector.asked).toEqual(['1']);
    const [load] = plan.connectorMetadata!.loads;
    fillLoad(world, load!, short('1', [...prompt(1, 4).slice(0, 64), 1, 2], 8));
    world.apply(plan, [{ load: load! }]);
    expect(shape(world.step()).sort()).toEqual(['1: 64-68', '2: 64-67']);
    runToEnd(world);
  });

  test('a request loads again the blocks that the dead worker was loading', () => {
    const world = connected(100);
    world.connector.blocks = () => 10;
    world.scheduler.add(short('1', prompt(1, 10), 2));
    const first = world.plan()!;
    const before = world.loads.get('1')!;
    // The worker dies in this step, so its open load fails.
    const outputs = { died: true, load: before, failed: range(10) };
    for (const block of allBlocks(world)) world.runner.overwrite(block);
    world.scheduler.invalidate(allBlocks(world));
    world.apply(first, [outputs]);
    const plan = world.plan()!;
    const again = world.loads.get('1')!;
    expect(again.transfer).not.toBe(before.transfer);
    expect(again.blocks).toHaveLength(10);
    fillLoad(world, again, short('1', prompt(1, 10), 2));
    world.apply(plan, [{ load: again }]);
    expect(shape(world.step())).toEqual(['1: 160-164']);
    runToEnd(world);
  });

  test('a request that is aborted while it waits for an answer releases its blocks', () => {
    const world = decoding();
    world.connector.askLaterUntilMs = 50;
    die(world);
    expect(world.plan()).toBeUndefined();
    world.scheduler.abort('1' as never);
    world.scheduler.checkInvariants();
    expect(world.scheduler.hasWork()).toBe(false);
    expect(world.scheduler.stats().blocks.referenced).toBe(0);
  });
});

test('an invalid block in the middle is loaded, and only the last token is computed', () => {
  const world = decoding();
  const plan = world.plan()!;
  const block = plan.sequences[0]!.blockTables[0]!.ids[5] as BlockId;
  world.runner.overwrite(block);
  world.scheduler.invalidate([block]);
  world.apply(plan);
  const asking = world.plan()!;
  const load = world.loads.get('1')!;
  expect(load.blocks.map(({ index, block: into }) => [index, into])).toEqual([[5, block]]);
  fillLoad(world, load, short('1', prompt(1, 10), 8));
  expect(shape(asking)).toEqual([]);
  world.apply(asking, [{ load }]);
  expect(shape(world.step())).toEqual(['1: 164-165']);
  runToEnd(world);
});

test('a full block that becomes invalid while a request decodes costs its own tokens: the window in front of it is loaded', () => {
  const groups = [
    { kind: 'full', blockSize: 16 as TokenCount, layers: [0] },
    { kind: 'window', blockSize: 16 as TokenCount, window: 40 as TokenCount, layers: [1] },
  ] as const;
  const world = connected(100, {}, {}, groups);
  const request = short('1', prompt(1, 10), 8);
  world.scheduler.add(request);
  world.step();
  world.connector.blocks = () => 10;
  const plan = world.plan()!;
  const [fullTable, windowTable] = plan.sequences[0]!.blockTables;
  const block = fullTable!.ids[5] as BlockId;
  // The window of the next token begins at token 125, and the pool has evicted the blocks before it.
  const before = allBlocks(world).filter((id) => !windowTable!.ids.includes(id) && !fullTable!.ids.includes(id));
  for (const id of [block, ...before]) world.runner.overwrite(id);
  world.scheduler.invalidate([block, ...before]);
  world.apply(plan);
  const asking = world.plan()!;
  const load = world.loads.get('1')!;
  expect(load.blocks.map(({ group, index }) => [group, index])).toEqual([[0, 5]]);
  fillLoad(world, load, request, ({ group }) => group === 0);
  world.apply(asking, [{ load, failed: [5], failedGroup: 0 }]);
  const second = world.plan()!;
  const window = world.loads.get('1')!;
  expect(window.blocks.map(({ group, index }) => [group, index])).toEqual([
    [1, 2],
    [1, 3],
    [1, 4],
  ]);
  fillLoad(world, window, request);
  world.apply(second, [{ load: window }]);
  expect(shape(world.step())).toEqual(['1: 80-96 164-165']);
  runToEnd(world);
  const alone = connected(100, {}, {}, groups);
  alone.scheduler.add(request);
  runToEnd(alone);
  expect(answer(world, '1')).toEqual(answer(alone, '1'));
});

test('with the policy "fail", a request with invalid KV ends and does not ask the connector', () => {
  const world = decoding({ kvLoadFailurePolicy: 'fail' });
  world.connector.asked.length = 0;
  const updates = world.scheduler.invalidate(allBlocks(world));
  expect(updates.map(({ finish }) => finish?.reason)).toEqual(['error']);
  expect(world.plan()).toBeUndefined();
  expect(world.connector.asked).toEqual([]);
});

test('a block that failed to load is computed and not loaded from the same store again', () => {
  const world = connected(100);
  world.connector.blocks = () => 10;
  world.scheduler.add(short('1', prompt(1, 10), 2));
  const first = world.step();
  const load = world.loads.get('1')!;
  fillLoad(world, load, short('1', prompt(1, 10), 2), ({ index }) => index === 3);
  expect(shape(first)).toEqual([]);
  world.step([{ load, failed: [3] }]);
  expect(shape(world.step())).toEqual(['1: 48-64 160-164']);
  expect(world.loads.get('1')).toBe(load);
  runToEnd(world);
});

test('a preempted request asks its connector again, with a new deadline', () => {
  // Two requests of four blocks, and a pool in which only one of them can decode to its end.
  const world = connected(9, { maxNumSeqs: 2 });
  world.connector.askLaterUntilMs = 10;
  for (const own of [1, 2]) world.scheduler.add(short(`${own}`, prompt(own, 3), 40));
  expect(world.plan()).toBeUndefined();
  world.clock.nowMs = 10;
  while (world.scheduler.stats().preemptions === 0) world.step();
  world.clock.nowMs = 1000;
  world.connector.asked.length = 0;
  world.connector.askLaterUntilMs = 1500;
  for (let plan = world.plan(); plan !== undefined; plan = world.plan()) world.apply(plan);
  expect(new Set(world.connector.asked)).toEqual(new Set(['2']));
  expect(world.scheduler.stats()).toMatchObject({ running: 0, waiting: 1 });
  expect(world.scheduler.nextWakeMs()).toBe(1500);
  world.connector.askLaterUntilMs = undefined;
  world.connector.blocks = () => 4;
  world.scheduler.notifyTransfers();
  world.plan();
  expect(world.loads.get('2')!.blocks.length).toBeGreaterThan(0);
});
