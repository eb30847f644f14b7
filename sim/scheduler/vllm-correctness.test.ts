import { describe, expect, test } from 'vitest';
import { connected, fillLoad } from '../connected.ts';
import { range, shape, short } from '../harness.ts';
import { referenceOutput } from '../reference.ts';

/**
 * vLLM's tests of which KV and tokens count after a failed load (test_invalid_blocks_correctness,
 * test_cache_pollution_prevention, test_kv_load_reject_recompute, issue 49250) with their names and numbers, and both
 * outcomes. Blocks have 16 tokens. The fake runner's next token is a hash of the KV that it reads through the block
 * tables, and blocks whose loads failed contain garbage. So an equal output proves that no token read them.
 */
const prompt = (own: number, blocks = 100) => range(blocks * 16, own * 10_000);
type World = ReturnType<typeof connected>;
type Request = ReturnType<typeof short>;
const referenceOf = ({ runner }: World, request: Request) =>
  referenceOutput(request, runner.kvCacheSpec, runner.vocabSize, 10_000).tokens;
const textOf = ({ updates }: World, { id }: Request): number[] =>
  updates.flatMap(({ requestId, newTokens }) => (requestId === id ? newTokens.map(({ token }) => token) : []));
function finish(world: World): void {
  while (world.scheduler.hasWork()) world.step();
}
/** The next step, in which the request's load succeeds except for these blocks. */
function stepWithLoad(world: World, request: Request, failed: readonly number[], isDecided = true) {
  const plan = world.plan()!;
  const load = world.loads.get(request.id)!;
  fillLoad(world, load, request, ({ index }) => failed.includes(index));
  const updates = world.apply(plan, [{ load, failed, isDecided }]);
  return { plan, load, updates };
}
function open(mode: 'sync' | 'async', policy: 'recompute' | 'fail' = 'recompute', more = {}): World {
  const world = connected(10_000, { kvLoadFailurePolicy: policy, ...more });
  world.connector.mode = mode;
  world.connector.blocks = ({ id }) => (id === '1' ? 99 : 0);
  return world;
}

describe('test_invalid_blocks_correctness', () => {
  test('test_sync_recompute_blocks_not_freed_for_running_requests: 100/99, index 50', () => {
    const world = open('sync');
    const request = short('1', prompt(1), 4);
    world.scheduler.add(request);
    const { plan, updates } = stepWithLoad(world, request, [50]);
    expect(updates).toEqual([]);
    expect(world.scheduler.stats()).toMatchObject({ running: 1, waiting: 0, blocks: { referenced: 100 } });
    const blocks = [...plan.sequences[0]!.blockTables[0]!.ids.slice(0, 100)];
    const next = world.step();
    // vLLM keeps 800 tokens and computes 800. Here blocks 51 to 98 are valid and stay, so 32 tokens are computed.
    expect(shape(next)).toEqual(['1: 800-816 1584-1600']);
    expect([...next.sequences[0]!.blockTables[0]!.ids.slice(0, 100)]).toEqual(blocks);
    finish(world);
    expect(textOf(world, request)).toEqual(referenceOf(world, request));
  });

  test('test_sync_fail_invalid_blocks_evicted: one update with reason error, and the invalid block is not cached', () => {
    const world = open('sync', 'fail');
    const request = short('1', prompt(1), 4);
    world.scheduler.add(request);
    const { updates } = stepWithLoad(world, request, [50]);
    expect(updates).toMatchObject([{ requestId: '1', newTokens: [], finish: { reason: 'error' } }]);
    // vLLM's connector statistics: 1 request, 1600 queries, 1584 hits.
    expect(updates[0]?.stats).toMatchObject({ promptTokens: 1600, externalTokens: 1584, failedLoads: 1 });
    expect(world.scheduler.hasWork()).toBe(false);
    // vLLM evicts 50 and all later blocks, because it cached them before they were loaded. Here 98 blocks have arrived.
    expect(world.scheduler.stats().blocks).toMatchObject({ referenced: 0, cached: 98 });
    const again = short('2', prompt(1), 4);
    world.scheduler.add(again);
    expect(shape(world.step())).toEqual(['2: 800-816 1584-1600']);
    finish(world);
    expect(textOf(world, again)).toEqual(referenceOf(world, again));
  });

  test('test_async_recompute_blocks_not_cached_when_invalid: no block is cached before it is loaded', () => {
    const world = open('async');
    const request = short('1', prompt(1), 4);
    world.scheduler.add(request);
    const { load } = stepWithLoad(world, request, [50], false);
    const { scheduler } = world;
    expect(scheduler.stats()).toMatchObject({ waitingForRemoteKv: 1, blocks: { referenced: 100 } });
    expect(scheduler.inspector.cachedKeys().size).toBe(0);
    world.step([{ load }]);
    expect(scheduler.inspector.cachedKeys().size).toBe(98);
    // vLLM caches 800 tokens once and computes 800. Here 98 blocks are cached and 32 tokens are computed.
    expect(shape(world.step())).toEqual(['1: 800-816 1584-1600']);
    finish(world);
    expect(textOf(world, request)).toEqual(referenceOf(world, request));
    expect(world.updates.at(-1)?.stats).toMatchObject({ externalTokens: 1584, failedLoads: 1, recomputedTokens: 16 });
  });
});

test('test_cache_pollution_prevention: policy fail, sync, index 50; only 50 and 99 are not cached', () => {
  const world = open('sync', 'fail');
  const request = short('1', prompt(1), 4);
  world.scheduler.add(request);
  stepWithLoad(world, request, [50]);
  const wanted: number[] = [];
  world.connector.getMatchedBlocks = (asking) => {
    wanted.push(...asking.wanted.map(({ index }) => index));
    return { kind: 'found', blocks: [], mode: 'sync' };
  };
  world.scheduler.add(short('2', prompt(1), 1));
  world.step();
  // vLLM: 50 to 99. Here 51 to 98 are valid; 99 was computed from invalid KV and never cached.
  expect(wanted).toEqual([50, 99]);
});

describe('test_kv_load_reject_recompute', () => {
  test('4 blocks, 3 in the store, sync, all invalid: one token does not count, and the output equals the baseline', () => {
    const world = open('sync');
    world.connector.blocks = () => 3;
    const request = short('1', prompt(1, 4), 8);
    world.scheduler.add(request);
    const { plan, updates } = stepWithLoad(world, request, [0, 1, 2]);
    // vLLM has two more tokens in flight and must discard them. Here one step is in flight at a time, and its token is
    // never emitted.
    expect(shape(plan)).toEqual(['1: 48-64']);
    expect(updates).toEqual([]);
    expect(shape(world.step())).toEqual(['1: 0-64']);
    finish(world);
    expect(textOf(world, request)).toEqual(referenceOf(world, request));
    // Asked at its admission, and again for the blocks that failed, because another store may have them.
    expect(world.connector.asked).toEqual(['1', '1']);
  });
});

describe('issue 49250: a request emits no token before the owner has filled a shared invalid block again', () => {
  /**
   * 100 blocks, 99 in the store, the first 50 shared. The owner computes 4 tokens a step, so that filling takes many
   * steps.
   */
  test.each([[[0, 49]], [[25, 49]], [[49]]])('the owner’s blocks %j are invalid', (failed) => {
    const world = open('sync', 'recompute', { longPrefillTokenThreshold: 4 });
    const owner = short('1', prompt(1), 12);
    const sharer = short('2', [...prompt(1).slice(0, 800), ...range(4, 77_777)], 12);
    world.scheduler.add(owner);
    world.scheduler.add(sharer);
    const { plan, updates } = stepWithLoad(world, owner, failed);
    // The sharer counts on blocks that are loaded in this step. vLLM lets it continue while the owner fills them again.
    expect(shape(plan)).toEqual(['1: 1584-1588', '2: 800-804']);
    expect(updates).toEqual([]);
    // Of both requests.
    let refilled = 0;
    const step = () => {
      for (const { spans } of world.step().sequences)
        for (const { start, end } of spans) refilled += Math.max(0, Math.min(end, 800) - start);
    };
    while (refilled < failed.length * 16) {
      expect(textOf(world, sharer)).toEqual([]);
      step();
    }
    while (world.scheduler.hasWork()) step();
    expect(refilled).toBe(failed.length * 16);
    expect(textOf(world, owner)).toEqual(referenceOf(world, owner));
    expect(textOf(world, sharer)).toEqual(referenceOf(world, sharer));
    // The blocks are filled once: the sharer computes only its own four tokens again.
    expect(world.updates.findLast(({ requestId }) => requestId === '2')?.stats.recomputedTokens).toBe(4);
  });

  test('if the owner is aborted while it fills the block, the sharer continues where it stopped', () => {
    const world = open('sync', 'recompute', { longPrefillTokenThreshold: 4 });
    const owner = short('1', prompt(1), 12);
    const sharer = short('2', [...prompt(1).slice(0, 800), ...range(4, 77_777)], 12);
    world.scheduler.add(owner);
    world.scheduler.add(sharer);
    stepWithLoad(world, owner, [49]);
    expect(shape(world.step())).toEqual(['1: 784-788']);
    world.scheduler.abort(owner.id);
    expect(shape(world.step())).toEqual(['2: 788-792']);
    finish(world);
    expect(textOf(world, sharer)).toEqual(referenceOf(world, sharer));
  });
});
