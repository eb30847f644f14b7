import { describe, expect, test } from 'vitest';
import type { TokenCount } from '../../src/core/ids.ts';
import type { KvGroupSpec } from '../../src/core/kv-spec.ts';
import { connected, fillLoad } from '../connected.ts';
import { range, shape, short } from '../harness.ts';
import { referenceOutput } from '../reference.ts';

/**
 * Models with windows or states: a request uses every hit that the pool and the store have when it begins to compute.
 */
const full: KvGroupSpec = { kind: 'full', blockSize: 16 as TokenCount, layers: [0] };
const state: KvGroupSpec = { kind: 'state', blockSize: 16 as TokenCount, layers: [1] };
const sliding: KvGroupSpec = { kind: 'window', blockSize: 16 as TokenCount, window: 128 as TokenCount, layers: [2] };

type World = ReturnType<typeof connected>;

function textOf({ updates }: World, id: string): number[] {
  return updates
    .filter(({ requestId }) => requestId === id)
    .flatMap(({ newTokens }) => newTokens.map(({ token }) => token));
}
const referenceOf = ({ runner }: World, request: ReturnType<typeof short>) =>
  referenceOutput(request, runner.kvCacheSpec, runner.vocabSize, 10_000).tokens;

describe('a request that waits for a load plans again when its load ends', () => {
  test.each([
    { what: 'states', groups: [full, state] },
    { what: 'windows', groups: [full, sliding] },
    { what: 'windows and states', groups: [full, sliding, state] },
  ])('with $what, it computes no token that another request has computed meanwhile', ({ groups }) => {
    const world = connected(400, { maxNumBatchedTokens: 64 }, {}, groups);
    const first = short('first', range(400), 1);
    const second = short('second', [...range(294), ...range(10, 900)], 1);
    world.connector.blocks = ({ id }) => (id === 'second' ? 12 : 0);
    world.scheduler.add(first);
    expect(shape(world.step())).toEqual(['first: 0-64']);
    world.scheduler.add(second);
    expect(shape(world.step())).toEqual(['first: 64-128']);
    const load = world.loads.get('second')!;
    while (world.scheduler.stats().running > 0) world.step();
    fillLoad(world, load, second);
    world.step([{ load }]);
    expect(shape(world.step())).toEqual(['second: 288-304']);
    while (world.scheduler.hasWork()) world.step();
    for (const request of [first, second]) expect(textOf(world, request.id)).toEqual(referenceOf(world, request));
  });
});

describe('a request whose hits do not fit into the pool with all that it computes', () => {
  test.each([30, 31, 34, 36, 37, 38])('uses the hits that fit: alone in a pool of %d blocks', (blocks) => {
    const world = connected(blocks, { maxNumBatchedTokens: 64 }, {}, [full, sliding, state]);
    world.connector.blocks = () => 14;
    const request = short('1', range(264), 1);
    world.scheduler.add(request);
    world.step();
    const load = world.loads.get('1');
    if (load === undefined) throw new Error('nothing is loaded');
    fillLoad(world, load, request);
    world.step([{ load }]);
    let computed = 0;
    while (world.scheduler.hasWork()) computed += world.step().tokenCount;
    expect(computed).toBe(40);
    expect(textOf(world, '1')).toEqual(referenceOf(world, request));
  });
});
