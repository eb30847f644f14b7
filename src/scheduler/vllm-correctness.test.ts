import { describe, expect, test } from 'vitest';
import { connected, fillTruly } from '../../sim/connected.ts';
import { range, shape, short } from '../../sim/harness.ts';
import { referenceOutput } from '../../sim/reference.ts';

/**
 * vLLM's tests of what counts after a failed load, and what must not (test_invalid_blocks_correctness,
 * test_cache_pollution_prevention, test_kv_load_reject_recompute, issue 49250), with their names and numbers, and ours.
 * Blocks of 16 tokens. The fake runner's next token is a hash of the KV that it reads through the block tables, and the
 * pages of blocks that failed hold garbage: a text that is right did not read them.
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
/** The next step, in which the request's load comes true but for these blocks. */
function stepWithLoad(world: World, request: Request, failed: readonly number[], isDecided = true) {
  const plan = world.plan()!;
  const load = world.loads.get(request.id)!;
  fillTruly(world, load, request, ({ index }) => failed.includes(index));
  const said = world.apply(plan, [{ load, failed, isDecided }]);
  return { plan, load, said };
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
    const { plan, said } = stepWithLoad(world, request, [50]);
    expect(said).toEqual([]);
    expect(world.scheduler.stats()).toMatchObject({ running: 1, waiting: 0, blocks: { referenced: 100 } });
    const blocks = [...plan.sequences[0]!.blockTables[0]!.ids.slice(0, 100)];
    const next = world.step();
    // vLLM: computed 800, so 800 rows. Here blocks 51 to 98 are there and stay, so 32.
    expect(shape(next)).toEqual(['1: 800-816 1584-1600']);
    expect([...next.sequences[0]!.blockTables[0]!.ids.slice(0, 100)]).toEqual(blocks);
    finish(world);
    expect(textOf(world, request)).toEqual(referenceOf(world, request));
  });

  test('test_sync_fail_invalid_blocks_evicted: one output with reason error; nobody finds the block', () => {
    const world = open('sync', 'fail');
    const request = short('1', prompt(1), 4);
    world.scheduler.add(request);
    const { said } = stepWithLoad(world, request, [50]);
    expect(said).toMatchObject([{ requestId: '1', newTokens: [], finish: { reason: 'error' } }]);
    // vLLM's connector statistics: 1 request, 1600 queries, 1584 hits.
    expect(said[0]?.stats).toMatchObject({ promptTokens: 1600, externalTokens: 1584, failedLoads: 1 });
    expect(world.scheduler.hasWork()).toBe(false);
    // vLLM evicts 50 and all behind it, because it had published them before they were there. Here 98 have arrived.
    expect(world.scheduler.stats().blocks).toMatchObject({ referenced: 0, cached: 98 });
    const again = short('2', prompt(1), 4);
    world.scheduler.add(again);
    expect(shape(world.step())).toEqual(['2: 800-816 1584-1600']);
    finish(world);
    expect(textOf(world, again)).toEqual(referenceOf(world, again));
  });

  test('test_async_recompute_blocks_not_cached_when_invalid: nothing is found before it is there', () => {
    const world = open('async');
    const request = short('1', prompt(1), 4);
    world.scheduler.add(request);
    const { load } = stepWithLoad(world, request, [50], false);
    expect(world.scheduler.stats()).toMatchObject({ loading: 1, blocks: { cached: 0, referenced: 100 } });
    world.step([{ load }]);
    // vLLM: caches 800 tokens once, computes 800. Here 98 blocks are published, and 32 tokens are computed.
    expect(shape(world.step())).toEqual(['1: 800-816 1584-1600']);
    finish(world);
    expect(textOf(world, request)).toEqual(referenceOf(world, request));
    expect(world.updates.at(-1)?.stats).toMatchObject({ externalTokens: 1584, failedLoads: 1, recomputedTokens: 16 });
  });
});

test('test_cache_pollution_prevention: policy fail, sync, index 50; 0 to 49 can be found, 50 cannot', () => {
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
  // vLLM: 50 to 99. Here 51 to 98 were not spoilt by 50 being lost; 99 was computed upon garbage and was never published.
  expect(wanted).toEqual([50, 99]);
});

describe('test_kv_load_reject_recompute', () => {
  test('4 blocks, 3 outside, sync, all invalid: one token is thrown away, and the text is the baseline’s', () => {
    const world = open('sync');
    world.connector.blocks = () => 3;
    const request = short('1', prompt(1, 4), 8);
    world.scheduler.add(request);
    const { plan, said } = stepWithLoad(world, request, [0, 1, 2]);
    // vLLM has two more tokens in flight and must take them back. Here one plan is out at a time: there is nothing to take
    // back, and the one token of this step is never seen.
    expect(shape(plan)).toEqual(['1: 48-64']);
    expect(said).toEqual([]);
    expect(shape(world.step())).toEqual(['1: 0-64']);
    finish(world);
    expect(textOf(world, request)).toEqual(referenceOf(world, request));
    // Once at its admission, and once more for the blocks that failed, from another place.
    expect(world.connector.asked).toEqual(['1', '1']);
  });
});

describe('issue 49250: who shares a broken block says nothing before its owner has refilled it', () => {
  /** 100 blocks, 99 outside, the first 50 in common. The owner refills 4 rows a step, so that others have time to err. */
  test.each([[[0, 49]], [[25, 49]], [[49]]])('invalid %j of the owner’s blocks', (failed) => {
    const world = open('sync', 'recompute', { longPrefillTokenThreshold: 4 });
    const owner = short('1', prompt(1), 12);
    const sharer = short('2', [...prompt(1).slice(0, 800), ...range(4, 77_777)], 12);
    world.scheduler.add(owner);
    world.scheduler.add(sharer);
    const { plan, said } = stepWithLoad(world, owner, failed);
    // The sharer counts on blocks that are loaded in this very step; vLLM lets it run on while they are refilled.
    expect(shape(plan)).toEqual(['1: 1584-1588', '2: 800-804']);
    expect(said).toEqual([]);
    let refilled = 0;
    while (refilled < failed.length * 16) {
      expect(textOf(world, sharer)).toEqual([]);
      const { sequences } = world.step();
      const spans = sequences.find(({ requestId }) => requestId === '1')!.spans;
      for (const { start, end } of spans) if (end <= 800) refilled += end - start;
    }
    finish(world);
    expect(textOf(world, owner)).toEqual(referenceOf(world, owner));
    expect(textOf(world, sharer)).toEqual(referenceOf(world, sharer));
    // Refilled once: the sharer computed nothing but its own four tokens again.
    expect(world.updates.findLast(({ requestId }) => requestId === '2')?.stats.recomputedTokens).toBe(4);
  });

  test('the owner goes while it refills: the sharer goes on where it stopped', () => {
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
