import { describe, expect, test } from 'vitest';
import { blockIndex } from '../../src/core/ids.ts';
import { connected } from '../connected.ts';
import { range, shape, short } from '../harness.ts';

/** Deadlines, wrong answers of connectors, and blocks offered for storing. vLLM's tests are in `vllm-*.test.ts`. */
const prompt = (own: number, blocks = 100) => range(blocks * 16, own * 10_000);

describe('deadlines', () => {
  test('a request computes its blocks in other blocks if the worker never reports the load', () => {
    const world = connected(10_000, {}, { loadTimeoutMs: () => 1000 });
    world.connector.blocks = () => 99;
    world.scheduler.add(short('1', prompt(1), 4));
    world.step();
    const blocks = new Set(world.loads.get('1')!.blocks.map(({ block }) => block));
    world.clock.nowMs = 5999;
    expect(world.step().sequences).toEqual([]);
    expect(world.scheduler.nextWakeMs()).toBe(6000);
    world.clock.nowMs = 6000;
    world.step();
    const next = world.step();
    expect(shape(next)).toEqual(['1: 0-1600']);
    expect(
      [...next.sequences[0]!.blockTables[0]!.ids.slice(0, 100)].filter((block) => blocks.has(block as never)),
    ).toEqual([]);
    expect(world.scheduler.stats().transfers.open).toBe(1);
  });

  test('a request whose connector answers "ask later" lets other requests pass, and waits until the first deadline', () => {
    const world = connected(10_000, { maxNumSeqs: 1 });
    world.connector.askLaterUntilMs = 500;
    world.scheduler.add(short('1', prompt(1, 2), 1));
    expect(world.plan()).toBeUndefined();
    world.connector.askLaterUntilMs = undefined;
    world.scheduler.add(short('2', prompt(2, 2), 1));
    expect(shape(world.plan()!)).toEqual(['2: 0-32']);
    const { scheduler } = world;
    expect(scheduler.stats().waiting).toBe(1);
    expect(scheduler.nextWakeMs()).toBe(500);
  });

  test('a request waits for "ask later" until its first deadline only, and then computes', () => {
    const world = connected(10_000);
    world.connector.askLaterUntilMs = 500;
    world.scheduler.add(short('1', prompt(1, 2), 1));
    expect(world.plan()).toBeUndefined();
    world.connector.askLaterUntilMs = 900;
    world.scheduler.notifyTransfers();
    world.clock.nowMs = 400;
    expect(world.plan()).toBeUndefined();
    world.clock.nowMs = 500;
    expect(shape(world.plan()!)).toEqual(['1: 0-32']);
  });
});

describe('arrivals', () => {
  test('the connector is told of a request and its wanted blocks before the next plan', () => {
    const { scheduler, connector, step } = connected(100);
    scheduler.add(short('1', prompt(1, 3), 1));
    expect([connector.arrived, connector.asked]).toEqual([['1: 3'], []]);
    step();
    expect([connector.arrived, connector.asked]).toEqual([['1: 3'], ['1']]);
  });

  test('a request whose blocks are all in the pool has nothing to look up', () => {
    const { scheduler, connector, step } = connected(100);
    scheduler.add(short('1', prompt(1, 3), 1));
    step();
    scheduler.add(short('2', prompt(1, 3), 1));
    expect(connector.arrived).toEqual(['1: 3']);
  });

  test('a request that has to wait for a running slot is looked up when it may be admitted', () => {
    const { scheduler, connector } = connected(100, { maxNumSeqs: 2 });
    for (const own of [1, 2, 3]) scheduler.add(short(`${own}`, prompt(own, 3), 1));
    expect(connector.arrived).toEqual(['1: 3', '2: 3']);
  });
});

test('the connector is offered each computed full block once, with its block id', () => {
  const world = connected(100);
  world.scheduler.add(short('1', range(40), 1));
  const first = world.step();
  world.step();
  const [a, b] = first.sequences[0]!.blockTables[0]!.ids;
  expect(world.connector.newlyValid.map(({ group, index, block }) => [group, index, block])).toEqual([
    [0, 0, a],
    [0, 1, b],
  ]);
});

test('blocks in an answer that the engine did not ask for are ignored', () => {
  const world = connected(100);
  const { connector } = world;
  connector.getMatchedBlocks = ({ wanted }) => ({
    kind: 'found',
    mode: 'async',
    blocks: [{ ...wanted[0]!, index: blockIndex(7), place: 'store' }],
  });
  world.scheduler.add(short('1', range(40), 1));
  expect(shape(world.step())).toEqual(['1: 0-40']);
});

test('`plan` without the time fails an assertion if there is a connector', () => {
  expect(() => connected(10).scheduler.plan()).toThrow('pass the time');
});
