import { describe, expect, test } from 'vitest';
import { sha256 } from '../../src/base/sha256.ts';
import { groupOfKey } from '../../src/connector/block-key.ts';
import { emptyOutput, type SaveJob, type TransferId } from '../../src/connector/connector.ts';
import type { ScheduledStep } from '../../src/scheduler/contract.ts';
import type { ConnectorPort } from '../../src/scheduler/external-kv.ts';
import { Scheduler } from '../../src/scheduler/scheduler.ts';
import { FakeRunner, type StoredBlock } from '../fake-runner.ts';
import { onePoolSpec, range, short } from '../harness.ts';

/**
 * vLLM's tests of preemption and fences in its offloading connector (offloading_connector/test_scheduler), with both outcomes. Blocks
 * have 4 tokens. The connector saves each block in a transfer of its own. Workers begin a save only when a step flushes it, or at
 * `endSaves`.
 */
function offloading(blocks: number) {
  const spec = onePoolSpec(blocks, 4);
  const runner = new FakeRunner(spec, 1000);
  const stored = new Map<string, StoredBlock>();
  const connector: ConnectorPort = {
    getMatchedBlocks: ({ wanted }) => {
      const found = wanted.filter(({ key }) => stored.has(key)).map((block) => ({ ...block, place: 'host' }));
      return { kind: 'found', blocks: found, mode: 'async' };
    },
    updateStateAfterAlloc: () => undefined,
    buildConnectorMeta: ({ newlyValid, newTransferId }) => ({
      saves: newlyValid.map(({ key, block }) => ({ transfer: newTransferId(), blocks: [{ key, block }] })),
    }),
    updateConnectorOutput: () => undefined,
    requestFinished: () => ({}),
    hasPendingWork: () => false,
  };
  const options = { maxNumBatchedTokens: 64, maxNumSeqs: 8, maxModelLen: 200, enablePrefixCaching: true } as const;
  const scheduler = new Scheduler(spec, { ...options, policy: 'fcfs' }, sha256, { connector });
  const open = new Map<TransferId, SaveJob>();
  const outputs = new Map<string, number[]>();
  /** The blocks of the last step's requests and loads. */
  const written = new Set<number>();
  let sent: TransferId[] = [];
  const store = (id: TransferId): void => {
    for (const { key, block } of open.get(id)!.blocks) stored.set(key, runner.readBlock(block, groupOfKey(key)));
    open.delete(id);
    sent.push(id);
  };
  const apply = (plan: ScheduledStep) => {
    const { loads, saves, jobsToFlush } = plan.connectorMetadata!;
    for (const save of saves) open.set(save.transfer, save);
    for (const id of jobsToFlush) store(id);
    for (const load of loads) for (const { block, key } of load.blocks) runner.writeBlock(block, stored.get(key)!);
    const arrived = loads.map(({ transfer }) => transfer);
    const connectorOutput = {
      ...emptyOutput,
      finishedRecving: arrived,
      finishedSending: sent,
      drained: [...arrived, ...sent],
    };
    sent = [];
    const updates = scheduler.apply(plan, { ...runner.execute(plan), connectorOutputs: [connectorOutput] }, 0);
    for (const { requestId, newTokens } of updates)
      outputs.set(requestId, [...(outputs.get(requestId) ?? []), ...newTokens.map(({ token }) => token)]);
    scheduler.checkInvariants();
  };
  const step = (): ScheduledStep => {
    scheduler.notifyTransfers();
    const plan = scheduler.plan(0)!;
    // The tables are emptied when their requests end.
    written.clear();
    for (const { blockTables } of plan.sequences)
      for (const { ids, length } of blockTables) for (const block of ids.subarray(0, length)) written.add(block);
    for (const { blocks } of plan.connectorMetadata!.loads) for (const { block } of blocks) written.add(block);
    apply(plan);
    return plan;
  };
  const endSaves = (): void => {
    for (const id of [...open.keys()]) store(id);
  };
  return { scheduler, stored, outputs, written, step, endSaves };
}

const savesOf = ({ connectorMetadata }: ScheduledStep) => connectorMetadata!.saves;

describe('request_preemption', () => {
  test('a preempted request loads the blocks whose saves were flushed, and computes no full block again', () => {
    const alone = offloading(100);
    const requests = () => [short('other', range(8, 500), 36), short('victim', range(24), 20)];
    for (const request of requests()) alone.scheduler.add(request);
    while (alone.scheduler.stats().running + alone.scheduler.stats().waiting > 0) alone.step();

    const { scheduler, outputs, stored, step, endSaves } = offloading(13);
    for (const request of requests()) scheduler.add(request);
    const saved = new Set<TransferId>();
    const computed = new Set<number>();
    let flushed = 0;
    let loaded = 0;
    while (scheduler.stats().running + scheduler.stats().waiting + scheduler.stats().waitingForRemoteKv > 0) {
      const plan = step();
      const { jobsToFlush, loads } = plan.connectorMetadata!;
      for (const { transfer } of savesOf(plan)) saved.add(transfer);
      for (const id of jobsToFlush) expect(saved.has(id)).toBe(true);
      flushed += jobsToFlush.length;
      for (const { requestId, blocks } of loads) if (requestId === 'victim') loaded += blocks.length;
      for (const { requestId, spans, tokens } of plan.sequences)
        for (const { start, end } of requestId === 'victim' ? spans : [])
          for (let token: number = start; token < end; token++) {
            const first = token - (token % 4);
            const isFilled = range(4, first).every((other) => computed.has(other));
            if (token < tokens.length - 1) expect(isFilled, `token ${token}`).toBe(false);
            computed.add(token);
          }
    }
    expect(scheduler.stats().preemptions).toBeGreaterThan(0);
    // vLLM flushes all stores of a preempted request. Here only those whose blocks the pool has allocated.
    expect(flushed).toBeGreaterThan(0);
    expect(flushed).toBeLessThan(saved.size);
    expect(scheduler.stats().transfers.flushedSaves).toBe(flushed);
    expect(loaded).toBeGreaterThan(0);
    expect(outputs).toEqual(alone.outputs);
    expect(stored.size).toBeGreaterThanOrEqual(loaded);
    // No fence is left: all saves end, and no transfer is open.
    step();
    endSaves();
    step();
    expect(scheduler.stats().transfers).toMatchObject({ open: 0, ignored: 0 });
  });

  test('a preempted request computes and stores the blocks again that the store has lost', () => {
    const requests = () => [short('other', range(8, 500), 36), short('victim', range(24), 20)];
    const alone = offloading(100);
    for (const request of requests()) alone.scheduler.add(request);
    while (alone.scheduler.stats().running + alone.scheduler.stats().waiting > 0) alone.step();
    alone.step();
    alone.endSaves();

    const { scheduler, outputs, stored, step, endSaves } = offloading(13);
    for (const request of requests()) scheduler.add(request);
    while (scheduler.stats().preemptions === 0) step();
    endSaves();
    const lost = stored.size;
    stored.clear();
    while (scheduler.stats().running + scheduler.stats().waiting + scheduler.stats().waitingForRemoteKv > 0) step();
    step();
    endSaves();
    step();
    expect(lost).toBeGreaterThan(0);
    expect(outputs).toEqual(alone.outputs);
    // The blocks that stayed in the pool are not stored again.
    expect(stored.size).toBeGreaterThan(alone.stored.size - lost);
    for (const [key, block] of stored) expect(block, key).toEqual(alone.stored.get(key));
    expect(scheduler.stats().transfers).toMatchObject({ open: 0, ignored: 0 });
  });
});

describe('fences of two blocks', () => {
  test('at alloc: the step in which a load gets the blocks flushes the saves that were ordered before', () => {
    const { scheduler, written, stored, step, endSaves } = offloading(2);
    const prompts = [range(8, 500), range(8)];
    scheduler.add(short('stored', prompts[0]!, 1));
    step();
    step();
    endSaves();
    step();
    const before = stored.size;
    scheduler.add(short('a', prompts[1]!, 1));
    step();
    const saves = savesOf(step());
    expect(saves).toHaveLength(2);
    scheduler.add(short('b', prompts[0]!, 1));
    const { jobsToFlush, loads } = step().connectorMetadata!;
    expect(loads.map(({ requestId, blocks }) => [requestId, blocks.length])).toEqual([['b', 2]]);
    expect(new Set(jobsToFlush)).toEqual(new Set(saves.map(({ transfer }) => transfer)));
    expect(written).toEqual(new Set(saves.map(({ blocks }) => blocks[0]!.block)));
    expect(stored.size).toBe(before + 2);
  });

  test('at store build: the step in which a request without a load gets the blocks flushes the saves', () => {
    const { scheduler, written, step } = offloading(2);
    scheduler.add(short('a', range(8), 1));
    step();
    const saves = savesOf(step());
    expect(saves).toHaveLength(2);
    scheduler.add(short('b', range(8, 500), 1));
    const next = step();
    expect(new Set(next.connectorMetadata!.jobsToFlush)).toEqual(new Set(saves.map(({ transfer }) => transfer)));
    expect(written).toEqual(new Set(saves.map(({ blocks }) => blocks[0]!.block)));
  });

  test('saves that the same step orders are flushed too', () => {
    const { scheduler, stored, step } = offloading(2);
    scheduler.add(short('a', range(8), 1));
    step();
    scheduler.add(short('b', range(8, 500), 1));
    const next = step();
    const saves = savesOf(next);
    expect(saves).toHaveLength(2);
    expect(next.connectorMetadata!.jobsToFlush).toEqual(saves.map(({ transfer }) => transfer));
    expect(stored.size).toBe(2);
  });
});
