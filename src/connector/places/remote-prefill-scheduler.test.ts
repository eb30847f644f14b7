import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../base/json.ts';
import { modelFolder } from '../tier/identity.ts';
import { suiteBytes, suiteKey } from '../tier/tier.suite.ts';
import { block, found, identity, newScheduler, open, request, settled, valid } from './scheduler-under-test.suite.ts';

const doRemoteDecode: JsonObject = { do_remote_decode: true, do_remote_prefill: false, remote_block_ids: null };
const promise = (...ids: number[]): JsonObject => ({
  do_remote_decode: false,
  do_remote_prefill: true,
  remote_block_ids: [ids],
  remote_kv_identity: modelFolder(identity),
});
const put = async ({ store }: ReturnType<typeof newScheduler>, ...indexes: number[]): Promise<void> => {
  for (const i of indexes) await store.store(suiteKey(i), suiteBytes(suiteKey(i)), open);
};

describe('do_remote_decode', () => {
  it('the blocks of the request are saved and leased as soon as they are valid, and the answer lists them', () => {
    const { scheduler, step } = newScheduler({ store_threshold: 2 });
    const prefill = request('p', [0, 1], doRemoteDecode);
    scheduler.getMatchedBlocks(prefill);
    scheduler.updateStateAfterAlloc(prefill, undefined, () => []);
    const newlyValid = [valid(0, 'p'), valid(1, 'p'), valid(2, 'other')];
    const plan = step(newlyValid, new Map(newlyValid.map(({ key, block }) => [key, block])));
    expect(plan.extra).toEqual({ leased: [suiteKey(0), suiteKey(1)] });
    expect(plan.saves.flatMap(({ blocks }) => blocks.map(({ key }) => key))).toEqual([suiteKey(0), suiteKey(1)]);
    // The block table has no block of a window group that later tokens do not read.
    expect(scheduler.requestFinished(prefill, () => [block(1)]).kvTransferParams).toEqual({
      do_remote_decode: false,
      do_remote_prefill: true,
      remote_request_id: 'p',
      remote_block_ids: [[0, 1]],
      remote_kv_identity: modelFolder(identity),
      stored_blocks: 2,
    });
    expect(step([]).extra).toBeUndefined();
    expect(scheduler.hasPendingWork()).toBe(false);
  });

  it('blocks that the pool had already are leased, too, and saved if no tier here has them', () => {
    const { scheduler, step, save } = newScheduler();
    save(valid(0));
    const prefill = request('p', [], doRemoteDecode);
    scheduler.getMatchedBlocks(prefill);
    scheduler.updateStateAfterAlloc(prefill, undefined, () => [block(0), block(1)]);
    const plan = step([], new Map([[suiteKey(1), valid(1).block]]));
    expect(plan.extra).toEqual({ leased: [suiteKey(0), suiteKey(1)] });
    expect(plan.saves.flatMap(({ blocks }) => blocks.map(({ key }) => key))).toEqual([suiteKey(1)]);
  });

  it('a server that stores nothing, or nothing for others, promises nothing', () => {
    const nothing = { do_remote_decode: false, do_remote_prefill: false, remote_request_id: 'p', stored_blocks: 0 };
    const prefill = request('p', [], doRemoteDecode);
    for (const { scheduler, step } of [newScheduler({}, 'kv_consumer'), newScheduler({}, 'kv_both', false)]) {
      scheduler.getMatchedBlocks(prefill);
      scheduler.updateStateAfterAlloc(prefill, undefined, () => [block(0)]);
      expect(scheduler.requestFinished(prefill, () => [block(0)]).kvTransferParams).toEqual(nothing);
      expect(step([]).extra).toBeUndefined();
      expect(scheduler.hasPendingWork()).toBe(false);
    }
  });

  it('promises at most the tokens that the client lets it store', () => {
    const { scheduler, step } = newScheduler();
    const prefill = request('p', [0, 1], { ...doRemoteDecode, max_offload_tokens: identity.groups[0]!.blockSize });
    scheduler.getMatchedBlocks(prefill);
    scheduler.updateStateAfterAlloc(prefill, undefined, () => [block(0), block(1)]);
    expect(step([]).extra).toEqual({ leased: [suiteKey(0)] });
    const answer = scheduler.requestFinished(prefill, () => [block(0), block(1)]);
    expect(answer.kvTransferParams).toMatchObject({ remote_block_ids: [[0]], stored_blocks: 1 });
  });
});

describe('do_remote_prefill', () => {
  it('a block that is not stored yet is waited for, and loaded when it is there', async () => {
    const under = newScheduler();
    const { scheduler, time, wakeups } = under;
    await put(under, 0);
    const decode = request('d', [0, 1, 2], promise(0, 1));
    scheduler.requestArrived(decode);
    await settled();
    expect(scheduler.getMatchedBlocks(decode)).toMatchObject({ kind: 'askLater' });
    time.advance(100);
    await settled();
    expect(wakeups()).toBe(0);
    expect(scheduler.getMatchedBlocks(decode)).toMatchObject({ kind: 'askLater' });
    await put(under, 1);
    time.advance(100);
    await settled();
    time.advance(100);
    expect(wakeups()).toBe(1);
    expect(scheduler.getMatchedBlocks(decode)).toEqual(found([0, 'disk'], [1, 'disk']));
    expect(scheduler.counters()).toMatchObject({ remotePrefillWaits: 1, remotePrefillWaitsInVain: 0 });
    expect(time.pending).toBe(0);
  });

  it('at the deadline, the blocks that have come are loaded, and the others are computed', async () => {
    const under = newScheduler({ remote_prefill_timeout_seconds: 1 });
    const { scheduler, time } = under;
    const decode = request('d', [0, 1], promise(0, 1));
    const answer = scheduler.getMatchedBlocks(decode);
    expect(answer.kind === 'askLater' && answer.deadlineMs).toBeGreaterThan(1_000);
    await settled();
    await put(under, 1);
    for (let i = 0; i < 10; i++) {
      time.advance(99);
      await settled();
      expect(scheduler.getMatchedBlocks(decode)).toMatchObject({ kind: 'askLater' });
    }
    time.advance(20);
    await settled();
    expect(scheduler.getMatchedBlocks(decode)).toEqual(found([1, 'disk']));
    expect(scheduler.counters()).toMatchObject({ remotePrefillWaits: 1, remotePrefillWaitsInVain: 1 });
    // A later look-up, after a preemption, does not wait again.
    scheduler.updateStateAfterAlloc(decode, undefined, () => []);
    scheduler.getMatchedBlocks(decode);
    await settled();
    expect(scheduler.getMatchedBlocks(decode)).toEqual(found([1, 'disk']));
  });

  it('a request that ends while it waits leaves no timer', async () => {
    const { scheduler, time, step } = newScheduler();
    const decode = request('d', [0], promise(0));
    scheduler.requestArrived(decode);
    await settled();
    expect(time.pending).toBeGreaterThan(0);
    scheduler.requestFinished(decode, () => []);
    step([]);
    time.advance(300);
    await settled();
    expect(time.pending).toBe(0);
  });

  it('after five waits in vain, requests do not wait for a while', async () => {
    const { scheduler, time } = newScheduler();
    for (let i = 0; i < 5; i++) {
      scheduler.requestArrived(request(`${i}`, [i], promise(i)));
      await settled();
    }
    time.advance(3_000);
    await settled();
    const decode = request('d', [9], promise(9));
    scheduler.requestArrived(decode);
    await settled();
    expect(scheduler.getMatchedBlocks(decode)).toEqual(found());
    time.advance(1_000);
    const next = request('next', [10], promise(10));
    scheduler.requestArrived(next);
    await settled();
    expect(scheduler.getMatchedBlocks(next)).toMatchObject({ kind: 'askLater' });
  });

  it('KV of another model or layout is not waited for, and a message says so once', async () => {
    const { scheduler, events } = newScheduler();
    for (const id of ['a', 'b']) {
      const decode = request(id, [0], { ...promise(0), remote_kv_identity: 'kv-1', remote_engine_id: 'p1' });
      scheduler.requestArrived(decode);
      await settled();
      expect(scheduler.getMatchedBlocks(decode)).toEqual(found());
    }
    expect(events).toEqual([expect.stringMatching(/^The prefill server p1 stored KV as "kv-1", .* same model file/)]);
  });

  it.each([
    [{ do_remote_prefill: true }, 0],
    [{ do_remote_prefill: true, remote_block_ids: null }, 0],
    [{ do_remote_prefill: 'yes', remote_block_ids: [[0]] }, 0],
    [{ do_remote_prefill: true, remote_block_ids: [[-1]] }, 1],
    [{ do_remote_prefill: true, remote_block_ids: 'all' }, 1],
    [{ do_remote_prefill: true, remote_block_ids: [[0.5], {}] }, 1],
  ])('%j promises nothing', async (params, warnings) => {
    const { scheduler, events } = newScheduler();
    const decode = request('d', [0], params);
    scheduler.requestArrived(decode);
    await settled();
    expect(scheduler.getMatchedBlocks(decode)).toEqual(found());
    expect(events).toHaveLength(warnings);
  });
});
