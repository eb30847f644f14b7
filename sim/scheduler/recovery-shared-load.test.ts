import { describe, expect, test } from 'vitest';
import type { LoadMode } from '../../src/connector/connector.ts';
import type { TokenCount } from '../../src/core/ids.ts';
import type { KvGroupSpec } from '../../src/core/kv-spec.ts';
import { connected, fillLoad } from '../connected.ts';
import { range, shape, short } from '../harness.ts';

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

/**
 * Request 2 shares the full blocks of request 1 and loads one block of its second group. Without its full block 3, it computes tokens from
 * before that block on, so it no longer needs the block. Its load failed all the same.
 */
describe.each(['state', 'window'] as const)('policy fail, a %s group', (kind) => {
  const tokens = { blockSize: 16 as TokenCount };
  const own: KvGroupSpec =
    kind === 'state' ? { kind, ...tokens, layers: [0] } : { kind, ...tokens, window: 24 as TokenCount, layers: [0] };
  const reports = ['in one report', 'one report later'] as const;
  test.each(['async', 'sync'] as const)('%s: a request ends if a shared block and its own load fail', (mode) => {
    for (const when of reports) {
      const options = { kvLoadFailurePolicy: 'fail' } as const;
      const world = connected(100, options, {}, [{ kind: 'full', ...tokens, layers: [0] }, own]);
      world.connector.mode = mode;
      world.connector.blocks = () => 5;
      world.scheduler.add(short('1', range(5 * 16 + 4), 3));
      world.scheduler.add(short('2', [...range(4 * 16), ...range(4, 500)], 3));
      const plan = world.plan()!;
      const [first, second] = [world.loads.get('1')!, world.loads.get('2')!];
      expect(second.blocks.map(({ group }) => group)).toEqual([1]);
      const shared = { load: first, failed: [3], failedGroup: 0 };
      const ownFailure = { load: second, failed: second.blocks.map(({ index }) => index) };
      world.apply(plan, when === 'in one report' ? [shared, ownFailure] : [shared]);
      world.connector.blocks = () => 0;
      if (when === 'one report later') {
        world.step();
        world.step([ownFailure]);
      }
      expect(outcomes(world), when).toEqual([
        ['1', 'error'],
        ['2', 'error'],
      ]);
    }
  });
});
