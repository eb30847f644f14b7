import { describe, expect, it } from 'vitest';
import { ManualTime } from '../../../test/support/manual-time.ts';
import type { JsonObject } from '../../base/json.ts';
import { blockId, blockIndex, groupIndex, requestId, tokenCount } from '../../core/ids.ts';
import type { ConnectorRequest, KvBlock } from '../connector.ts';
import { ledgerBeside } from '../ledger-beside.suite.ts';
import { HostTier } from '../tier/host/tier-host.ts';
import { modelFolder } from '../tier/identity.ts';
import { suiteBytes, suiteIdentity, suiteKey } from '../tier/tier.suite.ts';
import type { Tier } from '../tier/tier.ts';
import { TierScheduler } from './tier-scheduler.ts';

const open = new AbortController().signal;
const settled = async (): Promise<void> => {
  for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
};
const block = (index: number): KvBlock => ({
  group: groupIndex(0),
  index: blockIndex(index),
  key: suiteKey(index),
});
const request = (wanted: readonly number[], kvTransferParams: JsonObject): ConnectorRequest => ({
  id: requestId('r'),
  tokenCount: tokenCount(100),
  wanted: wanted.map(block),
  kvTransferParams,
});
const promise: JsonObject = { do_remote_prefill: true, remote_block_ids: [[0, 1]] };

function newScheduler(role: 'kv_both' | 'kv_consumer' = 'kv_both') {
  const time = new ManualTime();
  const store = new HostTier({ identity: suiteIdentity, maxBytes: 1e6 });
  let isDown = false;
  const goDown = (): void => {
    isDown = true;
  };
  const has: Tier['has'] = async (keys) => {
    if (isDown) throw new Error('the store is down');
    return keys.map((key) => store.holds(key));
  };
  const tier: Tier = Object.assign(store, { has });
  const context = { clock: time, timers: time, wake: () => undefined, identities: [suiteIdentity] };
  const scheduler = new TierScheduler([tier], context, { role, mode: 'async', lookupTimeoutMs: 1_000 });
  const put = (...indexes: number[]) =>
    Promise.all(indexes.map((index) => store.store(suiteKey(index), suiteBytes(suiteKey(index)), open)));
  /** Indexes of the found blocks; undefined: ask later. */
  const ask = (asked: ConnectorRequest): readonly number[] | undefined => {
    const answer = scheduler.getMatchedBlocks(asked);
    return answer.kind === 'askLater' ? undefined : answer.blocks.map(({ index }) => index);
  };
  return { scheduler, time, put, ask, goDown };
}

describe('TierScheduler with prefill and decode on different servers', () => {
  it('answers do_remote_decode with all blocks of the request, also those that its block tables no longer have', () => {
    const { scheduler, time } = newScheduler();
    const prefill = request([0, 1, 2], { do_remote_decode: true });
    scheduler.updateStateAfterAlloc(prefill, undefined, () => [block(0)]);
    const valid = { ...block(1), requestId: prefill.id, block: blockId(1) };
    ledgerBeside(scheduler, time).step([valid], () => undefined);
    expect(scheduler.requestFinished(prefill, () => [block(2)]).kvTransferParams).toEqual({
      do_remote_decode: false,
      do_remote_prefill: true,
      remote_request_id: 'r',
      remote_block_ids: [[0, 1, 2], ...suiteIdentity.groups.slice(1).map(() => [])],
      remote_kv_identity: modelFolder(suiteIdentity),
      stored_blocks: 3,
    });
  });

  it('a consumer promises nothing', () => {
    const { scheduler } = newScheduler('kv_consumer');
    const prefill = request([0], { do_remote_decode: true });
    scheduler.updateStateAfterAlloc(prefill, undefined, () => [block(0)]);
    const { kvTransferParams } = scheduler.requestFinished(prefill, () => [block(0)]);
    expect(kvTransferParams).toMatchObject({ do_remote_prefill: false, stored_blocks: 0 });
  });

  it('waits for promised blocks, and not for others', async () => {
    const { time, put, ask, scheduler } = newScheduler();
    const decode = request([0, 1, 2], promise);
    await put(0);
    expect(ask(decode)).toBeUndefined();
    time.advance(50);
    await settled();
    expect(ask(decode)).toBeUndefined();
    await put(1);
    time.advance(200);
    await settled();
    expect(ask(decode)).toEqual([0, 1]);
    expect(scheduler.counters()).toMatchObject({ remotePrefillWaits: 1, remotePrefillWaitsInVain: 0 });
  });

  it('a store that goes down ends the wait', async () => {
    const { time, put, ask, goDown, scheduler } = newScheduler();
    const decode = request([0, 1], promise);
    await put(0);
    ask(decode);
    await settled();
    goDown();
    time.advance(10);
    await settled();
    expect(ask(decode)).toEqual([0]);
    expect(scheduler.counters()).toMatchObject({ remotePrefillWaits: 1, remotePrefillWaitsInVain: 0 });
    expect(time.pending).toBe(0);
  });

  it('does not wait for a store that is down already', async () => {
    const { time, ask, goDown, scheduler } = newScheduler();
    goDown();
    for (let i = 0; i < 5; i++) {
      const one = { ...request([i], promise), id: requestId(`${i}`) };
      ask(one);
      await settled();
      expect(ask(one)).toEqual([]);
    }
    // The breaker of look-ups is open.
    expect(ask(request([0, 1], promise))).toEqual([]);
    expect(scheduler.stats()).toMatchObject({ breakerOpened: { lookup: 1 } });
    expect(time.pending).toBe(0);
  });
});
