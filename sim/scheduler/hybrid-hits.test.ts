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

describe('requests that share a load compute the tokens after it once', () => {
  /** Equal prompts of 376 tokens, of which the store has some. Returns the tokens of all steps, with one decode for each request. */
  function computed(groups: readonly KvGroupSpec[], count: number, stored: number, maxNumBatchedTokens: number) {
    const world = connected(900, { maxNumBatchedTokens }, {}, groups);
    world.connector.blocks = () => stored / 16;
    const requests = range(count).map((i) => short(`${i}`, range(376), 2));
    for (const request of requests) world.scheduler.add(request);
    world.step();
    for (const load of world.loads.values()) fillLoad(world, load, requests[0]!);
    world.step([...world.loads.values()].map((load) => ({ load })));
    let tokens = 0;
    while (world.scheduler.hasWork()) tokens += world.step().tokenCount;
    for (const request of requests) expect(textOf(world, request.id)).toEqual(referenceOf(world, request));
    return tokens;
  }

  const kinds = [
    { what: 'full attention', groups: [full] },
    { what: 'states', groups: [full, state] },
    { what: 'windows', groups: [full, sliding] },
    { what: 'windows and states', groups: [full, sliding, state] },
  ];
  test.each(kinds)('two with $what', ({ groups }) => {
    expect(computed(groups, 2, 336, 1024)).toBe(40 + 8 + 2);
  });

  test.each(kinds)('eight with $what', ({ groups }) => {
    expect(computed(groups, 8, 160, 4096)).toBe(216 + 7 * 8 + 8);
    expect(computed(groups, 8, 160, 64)).toBe(216 + 7 * 8 + 8);
  });
});

describe('a short pool', () => {
  /** The tokens that the request computes after its load. */
  function computedAfterLoad(world: World, request: ReturnType<typeof short>): number {
    world.scheduler.add(request);
    world.step();
    const load = world.loads.get(request.id);
    if (load === undefined) throw new Error('nothing is loaded');
    fillLoad(world, load, request);
    world.step([{ load }]);
    let computed = 0;
    while (world.scheduler.hasWork()) computed += world.step().tokenCount;
    expect(textOf(world, request.id)).toEqual(referenceOf(world, request));
    return computed;
  }

  // vLLM computes 42 tokens. A request without hits needs 29 blocks.
  test.each([29, 30, 34, 38])('of %d blocks has room for all hits that are before the computed tokens', (blocks) => {
    const world = connected(blocks, { maxNumBatchedTokens: 64 }, {}, [full, sliding, state]);
    world.connector.blocks = () => 14;
    expect(computedAfterLoad(world, short('1', range(264), 1))).toBe(40);
  });

  // The window of token 224 waits in 8 blocks while tokens 48 to 63 are computed.
  test.each([
    { blocks: 29, computed: 16 + 40 },
    { blocks: 28, computed: 264 - 48 },
    { blocks: 26, computed: 264 - 48 },
  ])('of $blocks blocks: $computed tokens, if the store lacks a block of full attention', ({ blocks, computed }) => {
    const world = connected(blocks, { maxNumBatchedTokens: 64 }, {}, [full, sliding]);
    const { connector } = world;
    connector.blocks = () => 14;
    const getMatchedBlocks = connector.getMatchedBlocks.bind(connector);
    connector.getMatchedBlocks = (asked) =>
      getMatchedBlocks({ ...asked, wanted: asked.wanted.filter(({ group, index }) => group !== 0 || index !== 3) });
    expect(computedAfterLoad(world, short('1', range(264), 1))).toBe(computed);
  });

  test('the request waits for blocks that others have, instead of computing what the store has', () => {
    const world = connected(40, { maxNumBatchedTokens: 64 }, {}, [full, sliding]);
    world.connector.blocks = ({ id }) => (id === 'second' ? 14 : 0);
    const first = short('first', range(200, 1000), 20);
    const second = short('second', range(264), 1);
    world.scheduler.add(first);
    world.step();
    world.scheduler.add(second);
    while (world.loads.get('second') === undefined) world.step();
    const load = world.loads.get('second')!;
    fillLoad(world, load, second);
    world.step([{ load }]);
    while (world.scheduler.hasWork()) world.step();
    const { stats } = world.updates.findLast(({ requestId }) => requestId === 'second')!;
    expect(stats.computedTokens).toBe(40);
    expect(textOf(world, 'second')).toEqual(referenceOf(world, second));
  });
});
