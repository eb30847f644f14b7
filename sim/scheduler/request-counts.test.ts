import { afterEach, describe, expect, test } from 'vitest';
import { KvCache } from '../../src/kv/kv-cache.ts';
import { ExternalKv } from '../../src/scheduler/external-kv.ts';
import { type PlantedBug, plant } from '../../test/support/planted-bugs.ts';
import { connected, fillLoad } from '../connected.ts';
import { range, short } from '../harness.ts';

/** `computedTokens` and `recomputedTokens` count all computed tokens, so they show a bug that computes too many. */
const prompt = range(160, 500);
let takeOut = (): void => undefined;
afterEach(() => takeOut());

/** One request of ten blocks, of which the connector promises nine; the loads of blocks 2 and 5 fail. */
function statsOf(bug: PlantedBug | undefined, mode: 'sync' | 'async') {
  takeOut = bug === undefined ? () => undefined : plant(bug, { KvCache, ExternalKv });
  const world = connected(50);
  world.connector.mode = mode;
  world.connector.blocks = () => 9;
  const request = short('1', prompt, 3);
  world.scheduler.add(request);
  const first = world.plan()!;
  const load = world.loads.get('1')!;
  fillLoad(world, load, request, ({ index }) => index === 2 || index === 5);
  world.apply(first, [{ load, failed: [2, 5] }]);
  while (world.scheduler.hasWork()) world.step();
  return world.updates.at(-1)!.stats;
}

describe.each(['sync', 'async'] as const)('%s loads', (mode) => {
  // In a step with a sync load, the fake runner computes the tokens of the last block, and these do not count.
  const wasted = mode === 'sync' ? 16 : 0;

  test('two failed blocks cause the computation of two blocks', () => {
    expect(statsOf(undefined, mode)).toMatchObject({
      cachedTokens: 144,
      computedTokens: 16 + 32 + 2 + wasted,
      recomputedTokens: 32 + wasted,
      failedLoads: 2,
    });
  });

  test.each([
    ['recompute-from-first', 7 * 16],
    ['discard-load', 9 * 16],
  ] as const)('the tokens that the bug %s computes again are counted', (bug, recomputed) => {
    expect(statsOf(bug, mode)).toMatchObject({
      computedTokens: 16 + recomputed + 2 + wasted,
      recomputedTokens: recomputed + wasted,
      failedLoads: 2,
    });
  });
});
