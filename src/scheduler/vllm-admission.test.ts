import { describe, expect, test } from 'vitest';
import { connected } from '../../sim/connected.ts';
import { range, shape, short } from '../../sim/harness.ts';

/**
 * vLLM's tests of how many loads may be under way beside the steps (test_kv_load_failure_recovery and the pull requests
 * 42568, 45406 and 55724), with their names and numbers, and ours. Blocks of 16 tokens.
 *
 * vLLM's main has no limit, so that requests which only wait can fill the pool (29877); the pull requests let a load take
 * a seat and rows of the step. Here a load takes a page for all its tokens and one of as many *places* as there are
 * seats. No seat: a slow store must not keep those from running that need nothing from it. No rows: nothing is computed,
 * and half a hit is not worth more than a whole one. But places: loads fill the next batch while this one runs, and what
 * goes beyond it would take pages from those that run for requests that nobody will run for long.
 */
const prompt = (own: number, blocks = 2) => range(blocks * 16, own * 10_000);
type World = ReturnType<typeof connected>;
const counts = ({ scheduler }: World) => {
  const { running, waiting, loading } = scheduler.stats();
  return { running, waiting, loading };
};
const allOf = ({ loads }: World) => [...loads.values()].map((load) => ({ load }));

describe('async_loads_count_toward_active_request_limit', () => {
  test('2 seats, three requests of 2 blocks with 1 outside: two load, the third when they run', () => {
    const world = connected(100, { maxNumSeqs: 2 });
    world.connector.blocks = () => 1;
    for (const own of [1, 2, 3]) world.scheduler.add(short(`${own}`, prompt(own), 1));
    const first = world.step();
    expect(first.tokenCount).toBe(0);
    expect(counts(world)).toEqual({ running: 0, waiting: 1, loading: 2 });
    // vLLM asks twice: the third has no seat. Here it is asked what the third needs, because it may need no load.
    expect(world.connector.asked).toEqual(['1', '2', '3']);
    world.step(allOf(world));
    const next = world.step();
    expect(shape(next)).toEqual(['1: 16-32', '2: 16-32']);
    expect(next.tokenCount).toBe(32);
    // vLLM: still waiting. Here its load goes on while the others run.
    world.scheduler.add(short('4', prompt(4), 1));
    expect(world.step().connectorMetadata?.loads.map(({ requestId }) => requestId)).toEqual(['3', '4']);
  });

  test('a request that needs no load runs beside loads that hang, however many', () => {
    const world = connected(100, { maxNumSeqs: 2 });
    world.connector.blocks = ({ id }) => (id === 'local' ? 0 : 1);
    for (const own of [1, 2]) world.scheduler.add(short(`${own}`, prompt(own), 1));
    world.step();
    world.scheduler.add(short('local', prompt(3), 2));
    // vLLM's rule keeps it waiting until a load has ended.
    expect(shape(world.step())).toEqual(['local: 0-32']);
    expect(counts(world)).toEqual({ running: 1, waiting: 0, loading: 2 });
  });

  test('sharers of a load take places too; a load within the step takes none', () => {
    const world = connected(100, { maxNumSeqs: 2 });
    world.connector.blocks = () => 1;
    for (const id of ['1', '2', '3']) world.scheduler.add(short(id, prompt(1), 1));
    world.step();
    expect(counts(world)).toEqual({ running: 0, waiting: 1, loading: 2 });
    world.connector.mode = 'sync';
    world.step(allOf(world));
    world.step();
    world.scheduler.add(short('4', prompt(4), 1));
    expect(shape(world.step())).toEqual(['3: 31-32', '4: 16-32']);
  });
});

test('priority_scheduling_promotes_async_loads_behind_new_request', () => {
  const world = connected(100, { maxNumSeqs: 1, policy: 'priority' });
  world.connector.blocks = ({ id }) => (id === 'urgent' ? 0 : 1);
  world.scheduler.add(short('load', prompt(1), 1, { priority: 1 }));
  world.step();
  world.scheduler.add(short('urgent', prompt(2), 2, { priority: 0 }));
  // vLLM: the load has the seat, so the urgent one waits for it, and is passed by so that the load can be promoted.
  // Here the seat is free until the bytes are there, and the urgent one takes it.
  expect(shape(world.step(allOf(world)))).toEqual(['urgent: 0-32']);
  expect(counts(world)).toEqual({ running: 1, waiting: 0, loading: 1 });
  expect(shape(world.step())).toEqual(['urgent: 32-33']);
  world.scheduler.add(short('more', prompt(3), 1, { priority: 0 }));
  // As in vLLM: what is loaded goes before what is new, whatever its priority. It has pages that others could use.
  expect(shape(world.step())).toEqual(['load: 16-32']);
});

test('async_loads_count_toward_token_budget', () => {
  const world = connected(100, { maxNumBatchedTokens: 32 });
  world.connector.blocks = () => 1;
  for (const own of [1, 2, 3]) world.scheduler.add(short(`${own}`, prompt(own), 1));
  const first = world.step();
  // vLLM: two loads of 16 tokens are a budget of 32, the third waits. Here a load costs no row.
  expect(first.tokenCount).toBe(0);
  expect(counts(world)).toEqual({ running: 0, waiting: 0, loading: 3 });
  world.step(allOf(world));
  expect(shape(world.step())).toEqual(['1: 16-32', '2: 16-32']);
  expect(shape(world.step())).toEqual(['3: 16-32']);
});

test('large_async_load_is_limited_by_token_budget', () => {
  const world = connected(100, { maxNumBatchedTokens: 32 });
  world.connector.blocks = () => 4;
  world.scheduler.add(short('1', prompt(1, 4), 1));
  world.step();
  // vLLM: 2 of the 4 blocks are loaded and the 32 tokens of the others computed. Here all 4 are loaded and one row is computed.
  expect(world.loads.get('1')!.blocks).toHaveLength(4);
  world.step(allOf(world));
  expect(shape(world.step())).toEqual(['1: 63-64']);
  expect(world.connector.asked).toEqual(['1']);
});

describe('in_flight_async_loads_limit_later_async_admission', () => {
  test('budget 32, two loads of 1 block under way: a third begins in the next step if there is a place', () => {
    for (const [maxNumSeqs, loading] of [
      [3, 3],
      [2, 2],
    ] as const) {
      const world = connected(100, { maxNumBatchedTokens: 32, maxNumSeqs });
      world.connector.blocks = () => 1;
      for (const own of [1, 2]) world.scheduler.add(short(`${own}`, prompt(own), 1));
      world.step();
      world.scheduler.add(short('3', prompt(3), 1));
      world.step();
      // vLLM: it waits, because what is under way counts against the budget of every step.
      expect(world.scheduler.stats().loading).toBe(loading);
    }
  });

  test('overlap: a load begins beside a step whose rows are all taken (pull request 55724)', () => {
    const world = connected(100, { maxNumBatchedTokens: 32 });
    world.connector.blocks = ({ id }) => (id === 'remote' ? 1 : 0);
    world.scheduler.add(short('local', prompt(1, 4), 1));
    world.scheduler.add(short('remote', prompt(2), 1));
    world.scheduler.add(short('next', prompt(3), 1));
    const first = world.step();
    // vLLM's main: the loop of admissions ends with the budget, the load begins two steps later.
    expect(shape(first)).toEqual(['local: 0-32']);
    expect(first.connectorMetadata?.loads.map(({ requestId }) => requestId)).toEqual(['remote']);
    expect(counts(world)).toEqual({ running: 1, waiting: 1, loading: 1 });
  });
});

describe('async_load_deadlock_head_of_line_blocking', () => {
  test('24 blocks: a preempted head that finds no room does not keep a finished load of 16 from running', () => {
    const world = connected(24);
    world.connector.blocks = ({ id }) => (id === 'remote' ? 15 : 0);
    world.scheduler.add(short('local', prompt(1, 6), 60));
    world.step();
    world.scheduler.add(short('remote', prompt(2, 16), 1));
    world.step();
    expect(counts(world)).toEqual({ running: 1, waiting: 0, loading: 1 });
    while (world.scheduler.stats().preemptions === 0) world.step();
    expect(counts(world)).toEqual({ running: 0, waiting: 1, loading: 1 });
    world.step(allOf(world));
    expect(shape(world.step())).toEqual(['remote: 240-256']);
    // It finds the 8 blocks again that it had filled.
    expect(shape(world.step())).toEqual(['local: 128-129']);
  });

  test('nor does a new one', () => {
    const world = connected(24);
    world.connector.blocks = ({ id }) => (id === 'remote' ? 15 : 0);
    world.scheduler.add(short('remote', range(16 * 16), 1));
    world.step();
    world.scheduler.add(short('big', prompt(5, 12), 1));
    world.step(allOf(world));
    expect(counts(world)).toEqual({ running: 0, waiting: 1, loading: 1 });
    expect(shape(world.step())).toEqual(['remote: 240-256']);
    expect(shape(world.step())).toEqual(['big: 0-192']);
  });
});
