import { describe, expect, it } from 'vitest';
import type { BlockId } from '../../core/ids.ts';
import { suiteBytes, suiteKey } from '../tier/tier.suite.ts';
import { block, found, identity, newScheduler, open, request, settled, valid } from './scheduler-under-test.suite.ts';

describe('PlaceScheduler', () => {
  it('finds blocks of host memory at once, without asking a tier', () => {
    const { scheduler, save } = newScheduler();
    save(valid(0), valid(1));
    expect(scheduler.getMatchedBlocks(request('a', [0, 1]))).toEqual(found([0, 'host'], [1, 'host']));
  });

  it('looks up the other blocks in the tiers below, and says where each one is', async () => {
    const { scheduler, store, save, wakeups } = newScheduler();
    save(valid(0));
    await store.store(suiteKey(1), suiteBytes(suiteKey(1)), open);
    const asked = request('a', [0, 1, 2]);
    expect(scheduler.getMatchedBlocks(asked)).toMatchObject({ kind: 'askLater' });
    await settled();
    expect(wakeups()).toBe(1);
    expect(scheduler.getMatchedBlocks(asked)).toEqual(found([0, 'host'], [1, 'disk']));
  });

  it('looks up the blocks of a request when it arrives, so that it need not wait later', async () => {
    const { scheduler, store, wakeups } = newScheduler();
    await store.store(suiteKey(1), suiteBytes(suiteKey(1)), open);
    scheduler.requestArrived(request('a', [0, 1]));
    await settled();
    expect(wakeups()).toBe(1);
    expect(scheduler.getMatchedBlocks(request('a', [0, 1]))).toEqual(found([1, 'disk']));
  });

  it('looks up again what was looked up long before the first attempt to admit the request', async () => {
    const { scheduler, store, time } = newScheduler();
    scheduler.requestArrived(request('a', [1]));
    await settled();
    await store.store(suiteKey(1), suiteBytes(suiteKey(1)), open);
    time.advance(1_001);
    expect(scheduler.getMatchedBlocks(request('a', [1]))).toMatchObject({ kind: 'askLater' });
    await settled();
    time.advance(10_000);
    expect(scheduler.getMatchedBlocks(request('a', [1]))).toEqual(found([1, 'disk']));
  });

  it('a producer starts no look-up when a request arrives', async () => {
    const { scheduler, wakeups } = newScheduler({}, 'kv_producer');
    scheduler.requestArrived(request('a', [1]));
    await settled();
    expect(wakeups()).toBe(0);
  });

  it('a request waits for a block that is just being saved', () => {
    const { scheduler, step, output, asked } = newScheduler();
    const { saves } = step([valid(0)]);
    expect(scheduler.getMatchedBlocks(asked(request('a', [0])))).toMatchObject({ kind: 'askLater' });
    output({ finishedSending: [saves[0]!.transfer] });
    expect(scheduler.getMatchedBlocks(asked(request('a', [0])))).toEqual(found([0, 'host']));
  });

  it('forgets blocks that host memory evicted, and saves them again when they are computed again', async () => {
    const { scheduler, step, save, output } = newScheduler();
    save(valid(0));
    expect(step([valid(0)]).saves).toEqual([]);
    output({ evicted: [suiteKey(0)] });
    scheduler.getMatchedBlocks(request('a', [0]));
    await settled();
    expect(scheduler.getMatchedBlocks(request('a', [0]))).toEqual(found());
    expect(step([valid(0)]).saves).toHaveLength(1);
    expect(scheduler.takeEvents()).toEqual([
      { kind: 'stored', keys: [suiteKey(0)], place: 'host' },
      { kind: 'removed', keys: [suiteKey(0)], place: 'host' },
    ]);
    expect(scheduler.listed()).toEqual([{ place: 'host', keys: new Set() }]);
    expect(scheduler.placeKind('host')).toEqual({ medium: 'CPU', locality: 'LOCAL' });
    expect(scheduler.placeKind('nowhere')).toBeUndefined();
  });

  it('a block that was loaded from a tier below is in host memory afterwards', () => {
    const { scheduler, output, loads } = newScheduler();
    const { transfer } = loads('a', [3, 'disk']);
    output({ finishedRecving: [transfer] });
    expect(scheduler.getMatchedBlocks(request('b', [3]))).toEqual(found([3, 'host']));
  });

  it('a block that failed to load is not promised to the request again, and others look it up', async () => {
    const { scheduler, save, output, loads, asked } = newScheduler();
    save(valid(0), valid(1));
    const { transfer } = loads('a', [0, 'host'], [1, 'host']);
    const failure = { transfer, block: 50 as BlockId, reason: 'corrupt', isBlockBusy: false } as const;
    output({ finishedRecving: [transfer], loadFailures: [failure] });
    expect(scheduler.getMatchedBlocks(asked(request('a', [0, 1])))).toEqual(found([1, 'host']));
    expect(scheduler.getMatchedBlocks(request('b', [0]))).toMatchObject({ kind: 'askLater' });
    await settled();
    expect(scheduler.getMatchedBlocks(request('b', [0]))).toEqual(found());
  });

  it('max_load_tokens and max_offload_tokens of the request hold for loads and for saves', () => {
    const { scheduler, step, save } = newScheduler();
    save(valid(0), valid(1), valid(2));
    for (const [limit, loaded] of [
      [0, []],
      [40, [0, 1]],
      [48, [0, 1, 2]],
    ] as const)
      expect(scheduler.getMatchedBlocks(request(`at most ${limit}`, [0, 1, 2], { max_load_tokens: limit }))).toEqual(
        found(...loaded.map((index) => [index, 'host'] as const)),
      );
    for (const [id, limit, saved] of [
      ['none', 0, []],
      ['one', 95, [4]],
      ['both', 96, [4, 5]],
      ['all', null, [4, 5]],
    ] as const) {
      const keys = [4, 5].map((index) => ({ ...valid(index, id), key: suiteKey(`${index} of ${id}`) }));
      scheduler.updateStateAfterAlloc(request(id, [], { max_offload_tokens: limit }), undefined, () => []);
      const { saves } = step(keys);
      expect(saves.flatMap(({ blocks }) => blocks.map(({ key }) => key))).toEqual(
        saved.map((index) => suiteKey(`${index} of ${id}`)),
      );
    }
  });

  it('an empty kv_load_tiers means host memory alone', () => {
    const { scheduler, save } = newScheduler();
    save(valid(0));
    expect(scheduler.getMatchedBlocks(request('a', [0, 1], { kv_load_tiers: [] }))).toEqual(found([0, 'host']));
  });

  it('with offload_prompt_only, blocks with output tokens are not saved', () => {
    const { scheduler, step } = newScheduler({ offload_prompt_only: true });
    scheduler.updateStateAfterAlloc(request('a', []), undefined, () => []);
    const [saved] = step([valid(5, 'a'), valid(6, 'a')]).saves;
    expect(saved!.blocks.map(({ key }) => key)).toEqual([suiteKey(5)]);
  });

  it('saves have the cache salt of their request, also with chunks', () => {
    for (const settings of [{}, { blocks_per_chunk: 2 }]) {
      const { scheduler, step } = newScheduler(settings);
      scheduler.getMatchedBlocks({ ...request('r', [0, 1]), cacheSalt: 'tenant 1' });
      const inPool = new Map([0, 1].map((i) => [suiteKey(i), valid(i).block]));
      const { saves } = step([valid(0), valid(1)], inPool);
      expect(saves.flatMap(({ blocks }) => blocks.map(({ cacheSalt }) => cacheSalt))).toEqual(['tenant 1', 'tenant 1']);
    }
  });

  it('with chunks of three blocks, a chunk is saved when its last block becomes valid', () => {
    const { scheduler, step } = newScheduler({ block_size: 48 });
    scheduler.updateStateAfterAlloc(request('a', []), undefined, () => [block(0)]);
    expect(step([valid(1, 'a')]).saves).toEqual([]);
    const inPool = new Map([0, 1, 2].map((i) => [suiteKey(i), (i + 1) as BlockId]));
    const [saved] = step([valid(2, 'a')], inPool).saves;
    expect(saved!.blocks.map(({ key }) => key)).toEqual([0, 1, 2].map((i) => suiteKey(i)));
  });

  it('small loads from host memory happen within the step', () => {
    const { scheduler, save } = newScheduler({ sync_load_budget_bytes: 2 * identity.blockBytes });
    save(valid(0), valid(1), valid(2));
    expect(scheduler.getMatchedBlocks(request('a', [0, 1]))).toMatchObject({ mode: 'sync' });
    expect(scheduler.getMatchedBlocks(request('b', [0, 1, 2]))).toMatchObject({ mode: 'async' });
  });

  it('a wrong limit is ignored, with one warning', () => {
    const { scheduler, save, events } = newScheduler();
    save(valid(0));
    for (const id of ['a', 'b'])
      expect(scheduler.getMatchedBlocks(request(id, [0], { max_load_tokens: -1 }))).toEqual(found([0, 'host']));
    expect(events).toEqual([expect.stringContaining('max_load_tokens is ignored')]);
  });

  it('steps go on while blocks are written to a tier below', () => {
    const { scheduler, output } = newScheduler();
    expect(scheduler.hasPendingWork()).toBe(false);
    output({ stats: { levels: { tiers: { disk: { openStores: 3 } } } } });
    expect(scheduler.hasPendingWork()).toBe(true);
    output({ stats: { levels: { tiers: { disk: { openStores: -3 } } } } });
    expect(scheduler.hasPendingWork()).toBe(false);
  });
});
