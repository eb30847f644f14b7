import { describe, expect, test } from 'vitest';
import { connected, fillLoad } from '../../sim/connected.ts';
import { range, shape, short } from '../../sim/harness.ts';
import type { LoadMode } from '../connector/connector.ts';

/**
 * The policy `fail` ends a request whose own load failed. A request that shares this load asks the connector itself and
 * loads or computes the blocks. This is as in vLLM, where each request has a load of its own.
 */
const prompt = range(4 * 16 + 4);
const request = (id: string) => short(id, prompt, 3);

/** Two requests with one prompt of four blocks, all in the store. The load of the first fails at block 2. */
function sharedLoad(mode: LoadMode) {
  const world = connected(100, { kvLoadFailurePolicy: 'fail' });
  world.connector.mode = mode;
  world.connector.blocks = () => 4;
  world.scheduler.add(request('1'));
  world.scheduler.add(request('2'));
  const plan = world.plan()!;
  const load = world.loads.get('1')!;
  expect(world.loads.has('2')).toBe(false);
  fillLoad(world, load, request('1'), ({ index }) => index === 2);
  world.apply(plan, [{ load, failed: [2] }]);
  return world;
}

const outcomes = ({ updates }: ReturnType<typeof connected>) =>
  updates.filter(({ finish }) => finish !== undefined).map(({ requestId, finish }) => [requestId, finish!.reason]);

const tokensOf = ({ updates }: ReturnType<typeof connected>, id: string) =>
  updates.filter(({ requestId }) => requestId === id).flatMap(({ newTokens }) => newTokens.map(({ token }) => token));

function expectSameText(world: ReturnType<typeof connected>): void {
  const alone = connected(100);
  alone.scheduler.add(request('2'));
  while (alone.scheduler.hasWork()) alone.step();
  expect(tokensOf(world, '2')).toEqual(tokensOf(alone, '2'));
}

describe.each(['async', 'sync'] as const)('policy fail, %s: a load that two requests share fails', (mode) => {
  test('the request that opened it ends; the other loads the failed block itself, with the same text', () => {
    const world = sharedLoad(mode);
    expect(outcomes(world)).toEqual([['1', 'error']]);
    const plan = world.plan()!;
    const own = world.loads.get('2')!;
    expect(own.blocks.map(({ index }) => index)).toEqual([2]);
    fillLoad(world, own, request('2'));
    world.apply(plan, [{ load: own }]);
    while (world.scheduler.hasWork()) world.step();
    expect(outcomes(world)).toEqual([
      ['1', 'error'],
      ['2', 'length'],
    ]);
    expectSameText(world);
  });

  test('the other computes the block if the connector does not promise it again', () => {
    const world = sharedLoad(mode);
    world.connector.blocks = () => 0;
    expect(shape(world.step())).toEqual(['2: 32-48 64-68']);
    while (world.scheduler.hasWork()) world.step();
    expect(outcomes(world)).toEqual([
      ['1', 'error'],
      ['2', 'length'],
    ]);
    expectSameText(world);
  });

  test('the other ends if its own load fails, too', () => {
    const world = sharedLoad(mode);
    const plan = world.plan()!;
    world.apply(plan, [{ load: world.loads.get('2')!, failed: [2] }]);
    expect(outcomes(world)).toEqual([
      ['1', 'error'],
      ['2', 'error'],
    ]);
    expect(world.scheduler.stats()).toMatchObject({ running: 0, waitingForRemoteKv: 0, blocks: { referenced: 0 } });
  });
});
