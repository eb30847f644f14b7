import { describe, expect, test } from 'vitest';
import { sha256 } from '../../src/base/sha256.ts';
import { emptyOutput, type KvRole, type SaveJob } from '../../src/connector/connector.ts';
import { TierScheduler } from '../../src/connector/places/tier-scheduler.ts';
import { HostTier } from '../../src/connector/tier/host/tier-host.ts';
import { Scheduler } from '../../src/scheduler/scheduler.ts';
import { ManualTime } from '../../test/support/manual-time.ts';
import { connected } from '../connected.ts';
import { FakeRunner } from '../fake-runner.ts';
import { onePoolSpec, range, shape, short } from '../harness.ts';

/**
 * vLLM's tests of requests whose KV comes from or goes to another instance (test_remote_prefill_lifecycle,
 * test_remote_decode_lifecycle) with their names and numbers, and both outcomes. Blocks have 16 tokens.
 */
type World = ReturnType<typeof connected>;
const local = (blocks: number) => range(blocks * 16, 500);
const idle = { running: 0, waiting: 0, waitingForRemoteKv: 0 };
const arrive = (world: World) => world.step([{ load: world.loads.get('remote')! }]);

describe('remote_prefill', () => {
  test('basic: 2.5 blocks; no tokens are scheduled during the load, and the other tokens after it', () => {
    const world = connected(100);
    const { scheduler } = world;
    world.connector.blocks = () => 2;
    scheduler.add(short('remote', range(40), 2));
    expect(world.step().sequences).toEqual([]);
    expect(world.step().sequences).toEqual([]);
    expect(scheduler.stats()).toMatchObject({ running: 0, waitingForRemoteKv: 1, blocks: { referenced: 3 } });
    expect(scheduler.inspector.cachedKeys().size).toBe(0);
    expect(arrive(world).sequences).toEqual([]);
    expect(scheduler.inspector.cachedKeys().size).toBe(2);
    // vLLM loads the half block too, so it computes only the last token.
    expect(shape(world.step())).toEqual(['remote: 32-40']);
    expect(scheduler.stats().blocks).toMatchObject({ referenced: 3 });
    expect(scheduler.inspector.cachedKeys().size).toBe(2);
    expect(shape(world.step())).toEqual(['remote: 40-41']);
    expect(scheduler.stats()).toMatchObject({ ...idle, blocks: { cached: 2, referenced: 0 } });
  });

  test('interleaved: two local requests of 2.5 blocks run while the third loads', () => {
    const world = connected(100);
    world.connector.blocks = ({ id }) => (id === 'remote' ? 2 : 0);
    world.scheduler.add(short('a', range(40, 500), 6));
    expect(shape(world.step())).toEqual(['a: 0-40']);
    world.scheduler.add(short('b', range(40, 700), 5));
    world.scheduler.add(short('remote', range(40), 2));
    expect(shape(world.step())).toEqual(['a: 40-41', 'b: 0-40']);
    expect(world.scheduler.stats()).toMatchObject({ running: 2, waitingForRemoteKv: 1 });
    expect(shape(world.step())).toEqual(['a: 41-42', 'b: 40-41']);
    expect(shape(arrive(world))).toEqual(['a: 42-43', 'b: 41-42']);
    expect(shape(world.step())).toEqual(['a: 43-44', 'b: 42-43', 'remote: 32-40']);
    while (world.scheduler.hasWork()) world.step();
    expect(world.scheduler.stats()).toMatchObject({ ...idle, blocks: { referenced: 0 } });
  });

  test('interleaved: the same with one running slot', () => {
    const world = connected(100, { maxNumSeqs: 1 });
    world.connector.blocks = ({ id }) => (id === 'remote' ? 2 : 0);
    world.scheduler.add(short('remote', range(40), 2));
    world.scheduler.add(short('local', range(20, 500), 2));
    expect(shape(world.step())).toEqual(['local: 0-20']);
    expect(shape(arrive(world))).toEqual(['local: 20-21']);
    expect(shape(world.step())).toEqual(['remote: 32-40']);
  });

  test('no_spurious_prefix_caching: loading blocks are not read before they arrive', () => {
    const world = connected(100);
    world.connector.blocks = ({ id }) => (id === 'remote' ? 2 : 0);
    world.scheduler.add(short('remote', range(40), 1));
    world.step();
    world.scheduler.add(short('local', range(40), 1));
    // vLLM: the local request computes its 40 tokens in blocks of its own. Here it waits for the load in progress, and
    // emits no token before the load has arrived.
    expect(world.step().sequences).toEqual([]);
    expect(world.scheduler.stats()).toMatchObject({ waitingForRemoteKv: 2 });
    expect(world.scheduler.inspector.cachedKeys().size).toBe(0);
    arrive(world);
    expect(shape(world.step())).toEqual(['remote: 32-40', 'local: 32-40']);
    expect(world.updates.map(({ requestId, newTokens }) => [requestId, newTokens.length])).toEqual([
      ['remote', 1],
      ['local', 1],
    ]);
  });

  test('full_block_prompt: exactly two blocks, one token is computed, and no other block is allocated', () => {
    const world = connected(100);
    world.connector.blocks = () => 2;
    world.scheduler.add(short('remote', range(32), 2));
    world.step();
    expect(world.scheduler.stats().blocks).toMatchObject({ referenced: 2 });
    arrive(world);
    expect(shape(world.step())).toEqual(['remote: 31-32']);
    expect(world.scheduler.stats().blocks).toMatchObject({ referenced: 2 });
    // The token that this step generates needs a third block.
    const next = world.plan()!;
    expect(shape(next)).toEqual(['remote: 32-33']);
    expect(world.scheduler.stats().blocks).toMatchObject({ referenced: 3 });
    world.apply(next);
    expect(world.scheduler.stats().blocks).toMatchObject({ referenced: 0, cached: 2 });
  });

  describe('cannot_schedule_after_recv', () => {
    test('5 blocks: the request does not load before it can be scheduled, and is never preempted', () => {
      const world = connected(5);
      world.connector.blocks = ({ id }) => (id === 'remote' ? 2 : 0);
      world.scheduler.add(short('local', local(2), 4));
      world.step();
      world.scheduler.add(short('remote', range(32), 2));
      // vLLM: received, scheduled once, preempted for lack of a block, and resumed when the other request has ended.
      // Here the load waits until the pool has blocks for the next tokens of both requests. It begins in the step with
      // the last token of the local request.
      for (const row of ['32-33', '33-34']) expect(shape(world.step())).toEqual([`local: ${row}`]);
      expect(world.scheduler.stats()).toMatchObject({ running: 1, waiting: 1, waitingForRemoteKv: 0 });
      expect(shape(world.step())).toEqual(['local: 34-35']);
      expect(world.scheduler.stats()).toMatchObject({ running: 0, waiting: 0, waitingForRemoteKv: 1 });
      arrive(world);
      expect(shape(world.step())).toEqual(['remote: 31-32']);
      expect(shape(world.step())).toEqual(['remote: 32-33']);
      expect(world.scheduler.stats()).toMatchObject({ ...idle, preemptions: 0 });
    });

    test('6 blocks: the request is preempted when both requests need one more block, and resumes with its 2 blocks', () => {
      const world = connected(6);
      world.connector.blocks = ({ id }) => (id === 'remote' ? 2 : 0);
      world.scheduler.add(short('local', local(2), 20));
      world.step();
      world.scheduler.add(short('remote', range(32), 30));
      world.step();
      arrive(world);
      while (world.scheduler.stats().preemptions === 0) world.step();
      expect(world.scheduler.stats()).toMatchObject({ running: 1, waiting: 1 });
      let next = world.step();
      while (world.scheduler.stats().waiting > 0) next = world.step();
      // As in vLLM, its two full blocks are still cached. The tokens of its third block are computed again. The
      // connector is not asked, because that block is not full.
      expect(shape(next)).toEqual(['remote: 32-46']);
      expect(world.connector.asked).toEqual(['local', 'remote']);
      while (world.scheduler.hasWork()) world.step();
      expect(world.updates.at(-1)?.stats).toMatchObject({ outputTokens: 30, preemptions: 1, recomputedTokens: 13 });
    });
  });

  test('cannot_recv: 5 blocks; the request needs 3 and 2 are available, so it does not load before the other has ended', () => {
    const world = connected(5);
    world.connector.blocks = ({ id }) => (id === 'remote' ? 2 : 0);
    world.scheduler.add(short('local', local(2), 3));
    world.step();
    world.scheduler.add(short('remote', range(40), 1));
    world.step();
    expect(world.scheduler.stats()).toMatchObject({ running: 1, waitingForRemoteKv: 0, waiting: 1 });
    world.step();
    expect(world.scheduler.stats()).toMatchObject({ running: 0, waitingForRemoteKv: 0, waiting: 1 });
    world.step();
    expect(world.scheduler.stats()).toMatchObject({ waitingForRemoteKv: 1, waiting: 0 });
    arrive(world);
    expect(shape(world.step())).toEqual(['remote: 32-40']);
    expect(world.scheduler.stats()).toMatchObject({ ...idle, blocks: { referenced: 0 } });
  });
});

describe('async loads reserve blocks', () => {
  /** By request, the blocks of its prompt, and how many of them are in the store. */
  function loading(poolBlocks: number, prompts: Record<string, number>, stored: Record<string, number>) {
    const world = connected(poolBlocks);
    world.connector.blocks = ({ id }) => stored[id] ?? 0;
    Object.entries(prompts).forEach(([id, blocks], i) => {
      world.scheduler.add(short(id, range(blocks * 16, i * 10_000), 1));
    });
    world.step();
    return world;
  }

  test('async_load_reserves_blocks_for_inflight: a load does not take blocks that the request before it still needs', () => {
    const { connector, scheduler, loads } = loading(7, { a: 4, b: 5 }, { a: 1, b: 4 });
    expect([...loads.keys()]).toEqual(['a']);
    expect(scheduler.stats()).toMatchObject({ waitingForRemoteKv: 1, waiting: 1 });
    // vLLM asks for b and then does not admit it. Here the pool decides before the connector is asked.
    expect(connector.asked).toEqual(['a']);
  });

  test('async_loads_both_admitted_when_pool_fits', () => {
    const { scheduler, loads } = loading(63, { a: 5, b: 5 }, { a: 1, b: 1 });
    expect([...loads.keys()]).toEqual(['a', 'b']);
    expect(scheduler.stats()).toMatchObject({ waitingForRemoteKv: 2, waiting: 0 });
  });

  test('deferred_lookup_does_not_block_parked_load: a load behind a request whose look-up takes long is promoted', () => {
    const world = connected(7);
    const { connector, scheduler } = world;
    const answer = connector.getMatchedBlocks.bind(connector);
    let isDeferred = true;
    connector.getMatchedBlocks = (request) =>
      request.id === 'a' && isDeferred ? { kind: 'askLater', deadlineMs: 60_000 } : answer(request);
    connector.blocks = ({ id }) => (id === 'remote' ? 5 : 0);
    scheduler.add(short('a', range(4 * 16, 10_000), 1));
    scheduler.add(short('remote', range(5 * 16), 1));
    world.step();
    expect(scheduler.stats()).toMatchObject({ waitingForRemoteKv: 1, waiting: 1 });
    // The look-up ends without a hit. The request needs 4 blocks, and 2 are free.
    isDeferred = false;
    expect(arrive(world).sequences).toEqual([]);
    expect(shape(world.step())).toEqual(['remote: 79-80']);
    expect(shape(world.step())).toEqual(['a: 0-64']);
    while (scheduler.hasWork()) world.step();
    expect(scheduler.stats()).toMatchObject({ ...idle, blocks: { referenced: 0 } });
  });
});

/**
 * An instance that computes prompts for other instances, with a real tier on the scheduler side and a simulated worker.
 */
function prefillInstance(role: KvRole = 'kv_producer', blocks = 100) {
  const time = new ManualTime();
  const identity = {
    fingerprint: 'test',
    modelName: 'test',
    dtype: 'f16',
    rank: 0,
    worldSize: 1,
    blockBytes: 64,
    groups: [{ blockSize: 16, layers: [0] }],
  };
  const context = { clock: time, timers: time, wake: () => {}, identities: [identity] };
  const options = { role, mode: 'async', lookupTimeoutMs: 1000, engineId: 'prefill-1' } as const;
  const connector = new TierScheduler([new HostTier({ identity, maxBytes: 1 << 20 })], context, options);
  const spec = onePoolSpec(blocks, 16);
  const scheduler = new Scheduler(
    spec,
    { maxNumBatchedTokens: 64, maxNumSeqs: 16, maxModelLen: 10_000, enablePrefixCaching: true, policy: 'fcfs' },
    sha256,
    { connector },
  );
  const runner = new FakeRunner(spec, 1000);
  const step = (sent: readonly SaveJob[] = []) => {
    scheduler.notifyTransfers();
    const plan = scheduler.plan(0)!;
    const ids = sent.map(({ transfer }) => transfer);
    const connectorOutput = { ...emptyOutput, finishedSending: ids, drained: ids };
    const updates = scheduler.apply(plan, { ...runner.execute(plan), connectorOutputs: [connectorOutput] }, 0);
    scheduler.checkInvariants();
    return { plan, updates };
  };
  return { scheduler, step };
}
const remote = { kvTransferParams: { do_remote_decode: true, do_remote_prefill: false } };

describe('remote_decode', () => {
  test('basic: 2.5 blocks, max_tokens 1: the client gets stored_blocks, and the blocks are stored after the end of the request', () => {
    const { scheduler, step } = prefillInstance();
    scheduler.add(short('1', range(40), 1, remote));
    const { plan, updates } = step();
    expect(shape(plan)).toEqual(['1: 0-40']);
    // vLLM lists the ids of 3 blocks, the last one half full, from which the other instance reads. Here 2 full blocks
    // go to a store, where any instance finds them by their keys. The other instance computes the last 8 tokens.
    expect(updates).toMatchObject([
      {
        requestId: '1',
        finish: {
          reason: 'length',
          kvTransferParams: {
            do_remote_decode: false,
            do_remote_prefill: true,
            remote_engine_id: 'prefill-1',
            stored_blocks: 2,
          },
        },
      },
    ]);
    expect(scheduler.stats()).toMatchObject(idle);
    // vLLM keeps the request and its 3 blocks until they are sent. Here the request has ended, and its 2 blocks are
    // cached. The pool may allocate them, and then the step flushes their save first.
    expect(scheduler.stats().blocks).toMatchObject({ referenced: 0, cached: 2 });
    const next = step();
    expect(next.plan.released).toEqual(['1']);
    const { saves } = next.plan.connectorMetadata!;
    expect(saves.map(({ blocks }) => blocks.length)).toEqual([2]);
    expect(scheduler.stats()).toMatchObject({ blocks: { cached: 2 }, transfers: { open: 1 } });
    step(saves);
    expect(scheduler.stats()).toMatchObject({ ...idle, blocks: { referenced: 0, cached: 2 }, transfers: { open: 0 } });
    expect(scheduler.hasWork()).toBe(false);
  });

  test('basic: a step that overwrites the blocks of the request flushes their save first', () => {
    const { scheduler, step } = prefillInstance('kv_producer', 3);
    scheduler.add(short('1', range(40), 1, remote));
    step();
    const { saves } = step().plan.connectorMetadata!;
    scheduler.add(short('2', range(40, 500), 1));
    const { plan } = step();
    expect(shape(plan)).toEqual(['2: 0-40']);
    expect(plan.connectorMetadata!.jobsToFlush).toEqual(saves.map(({ transfer }) => transfer));
  });

  test('short_prompt: half a block; vLLM lists 1 block, here no block is stored', () => {
    const { scheduler, step } = prefillInstance();
    scheduler.add(short('1', range(8), 1, remote));
    expect(step().updates[0]?.finish?.kvTransferParams).toMatchObject({ do_remote_prefill: false, stored_blocks: 0 });
    expect(scheduler.hasWork()).toBe(false);
    expect(scheduler.stats().blocks.referenced).toBe(0);
  });

  test('prefix hit: cached blocks count in stored_blocks and are not stored again', () => {
    const { scheduler, step } = prefillInstance();
    scheduler.add(short('1', range(56), 1));
    step();
    const { saves } = step().plan.connectorMetadata!;
    expect(saves.map(({ blocks }) => blocks.length)).toEqual([3]);
    step(saves);
    scheduler.add(short('2', range(40), 1, remote));
    const { plan, updates } = step();
    expect(shape(plan)).toEqual(['2: 32-40']);
    // vLLM: 3 blocks, of which 2 are hits.
    expect(updates[0]?.finish?.kvTransferParams).toMatchObject({ stored_blocks: 2 });
    expect(scheduler.hasWork()).toBe(false);
    scheduler.add(short('3', range(8, 500), 1));
    expect([plan, step().plan].map(({ connectorMetadata }) => connectorMetadata!.saves)).toEqual([[], []]);
  });

  test('a request without kvTransferParams gets none, and a consumer answers with 0 stored blocks', () => {
    const { scheduler, step } = prefillInstance();
    scheduler.add(short('1', range(40), 1));
    expect(step().updates[0]?.finish).toEqual({ reason: 'length' });
    const consumer = prefillInstance('kv_consumer');
    consumer.scheduler.add(short('1', range(8), 1, remote));
    expect(consumer.step().updates[0]?.finish?.kvTransferParams).toMatchObject({ stored_blocks: 0 });
  });

  test('abort_during_kv_transfer: an abort after the end of the request changes nothing, and its blocks are stored', () => {
    const { scheduler, step } = prefillInstance();
    scheduler.add(short('1', range(40), 1, remote));
    step();
    const { saves } = step().plan.connectorMetadata!;
    expect(scheduler.abort(short('1', [0], 1).id)).toBeUndefined();
    expect(step().plan.connectorMetadata!.cancelled).toEqual([]);
    expect(scheduler.stats()).toMatchObject({ blocks: { referenced: 0, cached: 2 }, transfers: { open: 1 } });
    step(saves);
    expect(scheduler.stats()).toMatchObject({ ...idle, blocks: { referenced: 0, cached: 2 }, transfers: { open: 0 } });
    expect(scheduler.hasWork()).toBe(false);
  });

  test('abort_during_kv_transfer: `abort` returns kvTransferParams also while the request is in flight', () => {
    const { scheduler, step } = prefillInstance();
    scheduler.add(short('1', range(80), 2, remote));
    step();
    const plan = scheduler.plan(0)!;
    // Four blocks are computed, and the step in flight computes the fifth.
    expect(scheduler.abort(short('1', [0], 1).id)?.kvTransferParams).toMatchObject({ stored_blocks: 4 });
    scheduler.apply(plan, { stepId: plan.stepId, sampled: plan.sequences.map(() => undefined) }, 0);
    scheduler.checkInvariants();
    expect(scheduler.stats()).toMatchObject(idle);
  });
});
