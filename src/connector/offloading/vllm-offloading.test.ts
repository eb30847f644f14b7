/**
 * vLLM's tests of its offloading connector (offloading_connector/test_scheduler, kv_offload/tiering), with our outcomes. The engine without
 * a model runs the real connector; blocks have 16 tokens and chunks three blocks.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { replacing } from '../../../test/support/replacing.ts';
import type { JsonObject } from '../../base/json.ts';
import type { BlockKey } from '../block-key.ts';
import { readKvTransferConfig } from '../config.ts';
import { keysOf, promptOf, suiteWorld } from '../connector-checks.suite.ts';
import { EngineHarness } from '../connector-harness.suite.ts';
import { found, newScheduler, request, settled, valid } from '../places/scheduler-under-test.suite.ts';
import { headerBytes } from '../tier/block-header.ts';
import { HostTier } from '../tier/host/tier-host.ts';
import { storedBlockBytes, suiteBlockBytes, suiteBytes, suiteIdentity, suiteKey } from '../tier/tier.suite.ts';
import type { Tier } from '../tier/tier.ts';
import { OffloadingConnector } from './offloading-connector.ts';
import { newStack } from './stack-under-test.suite.ts';

const root = mkdtempSync(join(tmpdir(), 'kvasir-vllm-offloading-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));

const signal = new AbortController().signal;
const identities = suiteWorld(1);
const blockBytes = identities[0]!.blockBytes + headerBytes;

/** An engine with host memory below a pool of `blockCount` blocks, one of them the null block. */
function open(blockCount: number, extra: JsonObject = {}): Promise<EngineHarness> {
  const config = readKvTransferConfig({
    kvConnector: 'OffloadingConnector',
    kvRole: 'kv_both',
    kvConnectorExtraConfig: { cpu_bytes_to_use: 1e6, ...extra },
  });
  return EngineHarness.open(new OffloadingConnector(config), { identities, blockCount, loadTimeoutMs: 60_000 });
}

const stored = (engine: EngineHarness) => engine.counters['tier.host.storedBlocks'];
const eventsOf = (engine: EngineHarness, kind: 'stored' | 'removed'): readonly BlockKey[] =>
  engine.events.flatMap((event) => (event.kind === kind ? event.keys : []));

async function run(engine: EngineHarness, name: string, prompt: Int32Array) {
  const asked = engine.add(name, prompt);
  await engine.runToEnd();
  await engine.runToDrained();
  return asked;
}

describe('main scenario', () => {
  test('whole chunks are stored one step later, and a part of a chunk is not; events name the blocks', async () => {
    const engine = await open(100, { block_size: 48 });
    const prompt = promptOf('main', 11);
    await run(engine, 'a', prompt);
    expect(stored(engine)).toBe(9);
    expect(eventsOf(engine, 'stored')).toEqual(keysOf(prompt).slice(0, 9));
    // One more block completes the chunk. The other blocks of the chunk are still in the pool.
    const longer = promptOf('main', 12);
    await run(engine, 'b', longer);
    expect(stored(engine)).toBe(12);
    expect(eventsOf(engine, 'stored')).toEqual(keysOf(longer));
    expect(engine.events.every(({ place }) => place === 'host')).toBe(true);
    await engine.close();
  });

  test('a chunk with output tokens is stored when its last token is computed, also if the request then ends', async () => {
    // The last token that a request generates is not computed.
    for (const [maxTokens, blocks] of [
      [48, 9],
      [49, 12],
    ] as const) {
      const engine = await open(100, { block_size: 48 });
      const prompt = promptOf('output', 9).subarray(0, 9 * 16);
      const asked = engine.add('a', prompt, maxTokens);
      await engine.runToEnd();
      await engine.runToDrained();
      expect(asked.tokens).toHaveLength(9 * 16 + maxTokens);
      expect(stored(engine)).toBe(blocks);
      expect(eventsOf(engine, 'stored')).toEqual(keysOf(Int32Array.from(asked.tokens)).slice(0, blocks));
      await engine.close();
    }
  });

  test('blocks that the pool evicted are loaded, also a middle part whose beginning host memory evicted', async () => {
    // Room for six blocks in host memory, and for one request in the pool.
    const engine = await open(12, { cpu_bytes_to_use: 6 * blockBytes });
    const prompt = promptOf('evicted', 6);
    await run(engine, 'a', prompt);
    await run(engine, 'other', promptOf('other', 10).subarray(0, 15));
    expect(eventsOf(engine, 'removed')).toEqual([]);
    await engine.close();

    const small = await open(12, { cpu_bytes_to_use: 6 * blockBytes });
    const [first, second] = [promptOf('first', 6), promptOf('second', 9)];
    await run(small, 'first', first);
    // Three blocks at a time: blocks that are being stored cannot be removed, and on a busy machine all nine may be.
    for (const blocks of [3, 6, 9]) await run(small, `second, ${blocks}`, second.subarray(0, blocks * 16 + 1));
    // Host memory has the last six blocks of the second prompt.
    expect(eventsOf(small, 'removed')).toEqual([...keysOf(first), ...keysOf(second).slice(0, 3)]);
    // Requests without a full block take the whole pool, and store nothing.
    for (let i = 0; i < 11; i++) small.add(`short ${i}`, promptOf('short', 1).subarray(0, 12));
    await small.runToEnd();
    const { loadedBlocks, computedBlocks } = await run(small, 'second again', second);
    expect({ loadedBlocks, computedBlocks }).toEqual({ loadedBlocks: 6, computedBlocks: 3 });
    await small.close();
  });
});

test('concurrent lookups of one prefix: one load, and both requests use its blocks', async () => {
  const engine = await open(12);
  const prompt = promptOf('shared', 8);
  await run(engine, 'first', prompt);
  await run(engine, 'evicting', promptOf('evicting', 10));
  const [a, b] = [engine.add('a', prompt), engine.add('b', prompt)];
  await engine.runToEnd();
  await engine.runToDrained();
  expect(engine.counters.loadedBlocks).toBe(a.loadedBlocks + b.loadedBlocks);
  expect([a.loadedBlocks, b.loadedBlocks]).toEqual([8, 0]);
  expect([a.computedBlocks, b.computedBlocks]).toEqual([0, 0]);
  await engine.close();
});

test('abort while loading: the load is cancelled, its blocks stay pinned until it has ended, and nothing is left', async () => {
  const engine = await open(12);
  const prompt = promptOf('aborted', 8);
  await run(engine, 'first', prompt);
  await run(engine, 'evicting', promptOf('evicting', 10));
  const asked = engine.add('aborted', prompt);
  await engine.runUntil(() => engine.scheduler.stats().waitingForRemoteKv === 1);
  engine.end(asked);
  expect(engine.usedBlocks).toBe(8);
  await engine.runToDrained();
  expect(engine.usedBlocks).toBe(0);
  expect(engine.scheduler.stats().transfers.open).toBe(0);
  // The same prompt later: the blocks are still in host memory.
  expect((await run(engine, 'again', prompt)).loadedBlocks).toBe(8);
  await engine.close();
});

test('small_hit_loads_synchronously: a hit within the budget loads within the step, also of the whole prompt', async () => {
  const engine = await open(12, { sync_load_budget_bytes: 3 * identities[0]!.blockBytes });
  const loaded: number[] = [];
  for (const tokens of [49, 48, 65]) {
    const prompt = promptOf('small', 4).subarray(0, tokens);
    await run(engine, `first ${tokens}`, prompt);
    await run(engine, `evicting ${tokens}`, promptOf('evicting', 10));
    const asked = engine.add(`again ${tokens}`, prompt);
    let hasWaited = false;
    await engine.runUntil(() => {
      hasWaited ||= engine.scheduler.stats().waitingForRemoteKv > 0;
      return asked.status === 'done';
    });
    loaded.push(asked.loadedBlocks);
    // Four blocks are over the budget.
    expect(hasWaited, `${tokens} tokens`).toBe(tokens === 65);
    await engine.runToDrained();
  }
  expect(loaded).toEqual([3, 3, 4]);
  await engine.close();
});

describe('pending transfer defers lookup', () => {
  test('a block that is being saved is answered "ask later", and no tier is asked for it', async () => {
    const { scheduler, step, output, time, store, asked } = newScheduler();
    let lookups = 0;
    const has = store.has.bind(store);
    store.has = (keys, until) => {
      lookups++;
      return has(keys, until);
    };
    const { saves } = step([valid(0), valid(1)]);
    const deadlineMs = time.nowMs() + 1_000;
    expect(scheduler.getMatchedBlocks(asked(request('a', [0, 1])))).toEqual({ kind: 'askLater', deadlineMs });
    await settled();
    expect(lookups).toBe(0);
    output({ finishedSending: [saves[0]!.transfer] });
    expect(scheduler.getMatchedBlocks(request('a', [0, 1]))).toEqual(found([0, 'host'], [1, 'host']));
  });

  test('complete_store per job: a save that ends makes only its own blocks known', async () => {
    const { scheduler, step, output, asked } = newScheduler();
    const [first] = step([valid(0)]).saves;
    const [second] = step([valid(1)]).saves;
    output({ finishedSending: [second!.transfer] });
    expect(scheduler.getMatchedBlocks(request('a', [1]))).toEqual(found([1, 'host']));
    expect(scheduler.getMatchedBlocks(asked(request('b', [0])))).toMatchObject({ kind: 'askLater' });
    output({
      finishedSending: [first!.transfer],
      saveFailures: [{ transfer: first!.transfer, key: suiteKey(0), reason: 'storeFull' }],
    });
    // The block whose save failed is unknown, so all tiers are asked for it.
    expect(scheduler.getMatchedBlocks(request('c', [0, 1]))).toMatchObject({ kind: 'askLater' });
    await settled();
    expect(scheduler.getMatchedBlocks(request('c', [0, 1]))).toEqual(found([1, 'host']));
  });
});

describe('lookup tables', () => {
  test.each<[string, readonly number[], readonly number[]]>([
    ['HIT, HIT', [0, 1], [0, 1]],
    ['MISS, HIT: the block after the hole counts too', [1], [1]],
    ['HIT, MISS', [0], [0]],
    ['MISS, MISS', [], []],
  ])('prefix: %s', async (_, inStore, expected) => {
    const { scheduler, store } = newScheduler();
    for (const i of inStore) await store.store(suiteKey(i), suiteBytes(suiteKey(i)), signal);
    const asked = request('a', [0, 1]);
    // RETRY: until all answers are known.
    expect(scheduler.getMatchedBlocks(asked)).toMatchObject({ kind: 'askLater' });
    await settled();
    expect(scheduler.getMatchedBlocks(asked)).toEqual(found(...expected.map((i) => [i, 'disk'] as const)));
  });
});

describe('tiering', () => {
  test('lookups are batched per request: one call for all its blocks', async () => {
    const { scheduler, store } = newScheduler();
    const calls: number[] = [];
    const has = store.has.bind(store);
    store.has = (keys, until) => {
      calls.push(keys.length);
      return has(keys, until);
    };
    scheduler.getMatchedBlocks(request('a', [0, 1, 2, 3, 4]));
    await settled();
    expect(scheduler.getMatchedBlocks(request('a', [0, 1, 2, 3, 4]))).toEqual(found());
    expect(calls).toEqual([5]);
  });

  test('a block is pinned in host memory until each tier below has written it', async () => {
    const writes: (() => void)[] = [];
    const slow = ['a', 'b'].map((name) => {
      const inner = new HostTier({ identity: suiteIdentity, maxBytes: 100 * storedBlockBytes, name });
      return replacing<Tier>(inner, {
        store: async (key, bytes, signal) => {
          await new Promise<void>((go) => void writes.push(go));
          return inner.store(key, bytes, signal);
        },
      });
    });
    const { stack, host, secondaries } = newStack(8, slow);
    expect(await stack.store(suiteKey(1), suiteBytes(suiteKey(1)), signal)).toBe('stored');
    expect(writes).toHaveLength(2);
    expect(host.levels().pinnedBlocks).toBe(1);
    writes[0]!();
    await secondaries[0]!.whenWritten();
    expect(host.levels().pinnedBlocks).toBe(1);
    writes[1]!();
    await secondaries[1]!.whenWritten();
    expect(host.levels().pinnedBlocks).toBe(0);
    await stack.close();
  });

  test('promotion: a block is in host memory when its load from a tier below is reported, and not before', async () => {
    const { scheduler, store, output, loads } = newScheduler();
    await store.store(suiteKey(3), suiteBytes(suiteKey(3)), signal);
    for (const id of ['a', 'b']) scheduler.getMatchedBlocks(request(id, [3]));
    await settled();
    for (const id of ['a', 'b']) expect(scheduler.getMatchedBlocks(request(id, [3]))).toEqual(found([3, 'disk']));
    const { transfer } = loads('a', [3, 'disk']);
    expect(scheduler.getMatchedBlocks(request('b', [3]))).not.toEqual(found([3, 'host']));
    output({ finishedRecving: [transfer] });
    expect(scheduler.getMatchedBlocks(request('b', [3]))).toEqual(found([3, 'host']));
  });

  test('partial promotion keeps successes: blocks that a lower tier gave are in host memory, and the others fail', async () => {
    const below = new HostTier({ identity: suiteIdentity, maxBytes: 100 * storedBlockBytes, name: 'below' });
    const { stack, host } = newStack(8, [below]);
    for (const i of [1, 3]) await below.store(suiteKey(i), suiteBytes(suiteKey(i)), signal);
    const load = (i: number) => stack.load(suiteKey(i), new Uint8Array(suiteBlockBytes), signal, { place: 'below' });
    expect(await Promise.all([1, 2, 3].map(load))).toEqual([undefined, 'missing', undefined]);
    expect([1, 2, 3].map((i) => host.holds(suiteKey(i)))).toEqual([true, false, true]);
    await stack.close();
  });

  test('duplicate lookups promote once: a block that two requests want is read from the disk once', async () => {
    const secondaries = [{ type: 'fs', root_dir: root }];
    const engine = await open(12, {
      spec_name: 'TieringOffloadingSpec',
      cpu_bytes_to_use: 10 * blockBytes,
      secondary_tiers: secondaries,
    });
    const prompt = promptOf('promoted', 8);
    await run(engine, 'first', prompt);
    await run(engine, 'evicting', promptOf('evicting', 10));
    expect(engine.counters).not.toHaveProperty(['tier.disk.loadedBlocks']);
    const a = engine.add('a', prompt);
    // The second request looks up the blocks while they are promoted.
    await engine.runUntil(() => engine.scheduler.stats().waitingForRemoteKv === 1);
    const b = engine.add('b', prompt);
    await engine.runToEnd();
    await engine.runToDrained();
    expect([a.loadedBlocks, b.loadedBlocks]).toEqual([8, 0]);
    expect([a.computedBlocks, b.computedBlocks]).toEqual([0, 0]);
    expect(engine.counters['tier.disk.loadedBlocks']).toBe(8);
    await engine.close();
  });

  test('a failed store does not cascade: a block for which host memory has no room is not offered below', async () => {
    const below = new HostTier({ identity: suiteIdentity, maxBytes: 100 * storedBlockBytes, name: 'below' });
    const { stack, host, whenWritten } = newStack(2, [below]);
    for (const i of [1, 2]) {
      host.storeNow(suiteKey(i), suiteBytes(suiteKey(i)));
      host.pin(suiteKey(i));
    }
    expect(await stack.store(suiteKey(3), suiteBytes(suiteKey(3)), signal)).toBe('full');
    await whenWritten();
    expect(await below.has([suiteKey(3)], signal)).toEqual([false]);
    expect(stack.stats().tiers).toMatchObject({ host: { storeFailed: { storeFull: 1 } } });
    for (const i of [1, 2]) host.unpin(suiteKey(i));
    await stack.close();
  });
});
