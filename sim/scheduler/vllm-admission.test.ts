import { describe, expect, test } from 'vitest';
import { requestId } from '../../src/core/ids.ts';
import { connected } from '../connected.ts';
import { range, shape, short } from '../harness.ts';

/**
 * vLLM's tests of how many async loads may be in progress, with their names and numbers, and both outcomes. They are
 * from test_kv_load_failure_recovery and the pull requests 42568, 45406 and 55724. Blocks have 16 tokens.
 *
 * vLLM's main has no limit, so requests that only wait can fill the pool (29877). In the pull requests, a load uses a
 * running slot and the token budget. Here, a request that waits for a load has blocks for all its tokens, and
 * `maxNumSeqs` requests may wait.
 *   - It uses no running slot, so a slow store does not delay requests without loads.
 *   - It uses no token budget, because no tokens are computed.
 *   - The limit exists because loads prepare the next batch. With few running slots, up to 16 requests may wait, as far
 *     as no request with blocks may need the blocks that these loads take.
 */
const prompt = (own: number, blocks = 2) => range(blocks * 16, own * 10_000);
type World = ReturnType<typeof connected>;
const counts = ({ scheduler }: World) => {
  const { running, waiting, waitingForRemoteKv } = scheduler.stats();
  return { running, waiting, waitingForRemoteKv };
};
const allOf = ({ loads }: World) => [...loads.values()].map((load) => ({ load }));

describe('async_loads_count_toward_active_request_limit', () => {
  test('2 running slots, three requests of 2 blocks with 1 in the store: all load, and two of them run', () => {
    const world = connected(100, { maxNumSeqs: 2 });
    world.connector.blocks = () => 1;
    for (const own of [1, 2, 3]) world.scheduler.add(short(`${own}`, prompt(own), 1));
    expect(world.step().tokenCount).toBe(0);
    expect(counts(world)).toEqual({ running: 0, waiting: 0, waitingForRemoteKv: 3 });
    world.step(allOf(world));
    const next = world.step();
    expect(shape(next)).toEqual(['1: 16-32', '2: 16-32']);
    expect(next.tokenCount).toBe(32);
    expect(shape(world.step())).toEqual(['3: 16-32']);
  });

  test('the same with 6 blocks: two load, and the third loads when they run', () => {
    const world = connected(6, { maxNumSeqs: 2 });
    world.connector.blocks = () => 1;
    for (const own of [1, 2]) world.scheduler.add(short(`${own}`, prompt(own), 2));
    world.scheduler.add(short('3', prompt(3), 1));
    const first = world.step();
    expect(first.tokenCount).toBe(0);
    // Requests 1 and 2 may need one more block each.
    expect(counts(world)).toEqual({ running: 0, waiting: 1, waitingForRemoteKv: 2 });
    expect(world.connector.asked).toEqual(['1', '2']);
    world.step(allOf(world));
    const next = world.step();
    expect(shape(next)).toEqual(['1: 16-32', '2: 16-32']);
    expect(next.tokenCount).toBe(32);
    // vLLM: the third still waits. Here it loads as soon as its blocks are available.
    expect(world.step().connectorMetadata?.loads.map(({ requestId }) => requestId)).toEqual([]);
    expect(world.step().connectorMetadata?.loads.map(({ requestId }) => requestId)).toEqual(['3']);
  });

  test('at most 16 requests wait for loads if fewer may run', () => {
    const world = connected(1000, { maxNumSeqs: 2 });
    world.connector.blocks = () => 1;
    for (let own = 0; own < 20; own++) world.scheduler.add(short(`${own}`, prompt(own), 1));
    world.step();
    expect(counts(world)).toEqual({ running: 0, waiting: 4, waitingForRemoteKv: 16 });
  });

  test('a request without loads runs while any number of loads hang', () => {
    for (const loads of [2, 16]) {
      const world = connected(100, { maxNumSeqs: 2 });
      world.connector.blocks = ({ id }) => (id === 'local' ? 0 : 1);
      for (let own = 1; own <= loads; own++) world.scheduler.add(short(`${own}`, prompt(own), 1));
      world.step();
      world.scheduler.add(short('local', prompt(loads + 1), 2));
      // In vLLM's pull request it waits until a load ends.
      expect(shape(world.step())).toEqual(['local: 0-32']);
      expect(counts(world)).toEqual({ running: 1, waiting: 0, waitingForRemoteKv: loads });
    }
  });

  test('requests that share a load count towards the limit; sync loads do not', () => {
    const world = connected(5, { maxNumSeqs: 2 });
    world.connector.blocks = () => 1;
    // Each has a second block of its own, and may need a third.
    for (const id of ['1', '2', '3']) world.scheduler.add(short(id, prompt(1).slice(0, 17), 30));
    world.step();
    expect(counts(world)).toEqual({ running: 0, waiting: 1, waitingForRemoteKv: 2 });
    world.scheduler.abort(requestId('3'));
    world.connector.mode = 'sync';
    world.scheduler.add(short('4', prompt(4), 1));
    expect(shape(world.step())).toEqual(['4: 16-32']);
    expect(counts(world)).toEqual({ running: 1, waiting: 0, waitingForRemoteKv: 2 });
  });
});

test('priority_scheduling_promotes_async_loads_behind_new_request', () => {
  const world = connected(100, { maxNumSeqs: 1, policy: 'priority' });
  world.connector.blocks = ({ id }) => (id === 'urgent' ? 0 : 1);
  world.scheduler.add(short('load', prompt(1), 1, { priority: 1 }));
  world.step();
  world.scheduler.add(short('urgent', prompt(2), 2, { priority: 0 }));
  // vLLM: the load has the running slot, so the urgent request waits until the loaded request has run.
  // Here the slot is free until the load ends, so the urgent request runs.
  expect(shape(world.step(allOf(world)))).toEqual(['urgent: 0-32']);
  expect(counts(world)).toEqual({ running: 1, waiting: 0, waitingForRemoteKv: 1 });
  expect(shape(world.step())).toEqual(['urgent: 32-33']);
  world.scheduler.add(short('more', prompt(3), 1, { priority: 0 }));
  // As in vLLM: a loaded request runs before new requests of any priority, because it has blocks already.
  expect(shape(world.step())).toEqual(['load: 16-32']);
});

test('async_loads_count_toward_token_budget', () => {
  const world = connected(100, { maxNumBatchedTokens: 32 });
  world.connector.blocks = () => 1;
  for (const own of [1, 2, 3]) world.scheduler.add(short(`${own}`, prompt(own), 1));
  const first = world.step();
  // vLLM: two loads of 16 tokens use the budget of 32, and the third waits. Here a load uses no budget.
  expect(first.tokenCount).toBe(0);
  expect(counts(world)).toEqual({ running: 0, waiting: 0, waitingForRemoteKv: 3 });
  world.step(allOf(world));
  expect(shape(world.step())).toEqual(['1: 16-32', '2: 16-32']);
  expect(shape(world.step())).toEqual(['3: 16-32']);
});

test('large_async_load_is_limited_by_token_budget', () => {
  const world = connected(100, { maxNumBatchedTokens: 32 });
  world.connector.blocks = () => 4;
  world.scheduler.add(short('1', prompt(1, 4), 1));
  world.step();
  // vLLM loads 2 of the 4 blocks and computes 32 tokens. Here all 4 blocks are loaded and 1 token is computed.
  expect(world.loads.get('1')!.blocks).toHaveLength(4);
  world.step(allOf(world));
  expect(shape(world.step())).toEqual(['1: 63-64']);
  expect(world.connector.asked).toEqual(['1']);
});

describe('in_flight_async_loads_limit_later_async_admission', () => {
  test('budget 32, two loads of 1 block in progress: a third begins in the next step if slots or blocks allow', () => {
    for (const [maxNumSeqs, blocks, loads] of [
      [3, 8, 3],
      [2, 8, 2],
      [2, 100, 3],
    ] as const) {
      const world = connected(blocks, { maxNumBatchedTokens: 32, maxNumSeqs });
      world.connector.blocks = () => 1;
      for (const own of [1, 2]) world.scheduler.add(short(`${own}`, prompt(own), 100));
      world.step();
      world.scheduler.add(short('3', prompt(3), 1));
      world.step();
      // vLLM: it waits, because loads in progress count in the budget of every step.
      expect(world.scheduler.stats().waitingForRemoteKv).toBe(loads);
    }
  });

  test('a load begins in a step whose token budget is used up (pull request 55724)', () => {
    const world = connected(100, { maxNumBatchedTokens: 32 });
    world.connector.blocks = ({ id }) => (id === 'remote' ? 1 : 0);
    world.scheduler.add(short('local', prompt(1, 4), 1));
    world.scheduler.add(short('remote', prompt(2), 1));
    world.scheduler.add(short('next', prompt(3), 1));
    const first = world.step();
    // vLLM's main: the loop of admissions ends with the budget, so the load begins two steps later.
    expect(shape(first)).toEqual(['local: 0-32']);
    expect(first.connectorMetadata?.loads.map(({ requestId }) => requestId)).toEqual(['remote']);
    expect(counts(world)).toEqual({ running: 1, waiting: 1, waitingForRemoteKv: 1 });
  });
});

describe('async_load_deadlock_head_of_line_blocking', () => {
  test('24 blocks: a preempted request at the head of the queue does not block a finished load of 16 blocks', () => {
    const world = connected(24);
    world.connector.blocks = ({ id }) => (id === 'remote' ? 15 : 0);
    world.scheduler.add(short('local', prompt(1, 6), 60));
    world.step();
    world.scheduler.add(short('remote', prompt(2, 16), 1));
    world.step();
    expect(counts(world)).toEqual({ running: 1, waiting: 0, waitingForRemoteKv: 1 });
    while (world.scheduler.stats().preemptions === 0) world.step();
    expect(counts(world)).toEqual({ running: 0, waiting: 1, waitingForRemoteKv: 1 });
    world.step(allOf(world));
    expect(shape(world.step())).toEqual(['remote: 240-256']);
    // Its 8 full blocks are still cached.
    expect(shape(world.step())).toEqual(['local: 128-129']);
  });

  test('24 blocks: a new request at the head of the queue does not block a finished load of 16 blocks', () => {
    const world = connected(24);
    world.connector.blocks = ({ id }) => (id === 'remote' ? 15 : 0);
    world.scheduler.add(short('remote', range(16 * 16), 1));
    world.step();
    world.scheduler.add(short('big', prompt(5, 12), 1));
    world.step(allOf(world));
    expect(counts(world)).toEqual({ running: 0, waiting: 1, waitingForRemoteKv: 1 });
    expect(shape(world.step())).toEqual(['remote: 240-256']);
    expect(shape(world.step())).toEqual(['big: 0-192']);
  });
});
