/**
 * Blocks that the pool allocates while a save reads them. The engine, ranks and worker sides are real; the tier reads blocks so late
 * that the step would overwrite them first.
 */
import { describe, expect, test } from 'vitest';
import { replacing } from '../../test/support/replacing.ts';
import type { BlockKey } from './block-key.ts';
import type { KvConnector, KvIdentity, WorkerConnector } from './connector.ts';
import { keysOf, promptOf, suiteBlockSize, suiteFingerprint } from './connector-checks.suite.ts';
import { EngineHarness } from './connector-harness.suite.ts';
import { TierScheduler } from './places/tier-scheduler.ts';
import { HostTier } from './tier/host/tier-host.ts';
import type { Tier } from './tier/tier.ts';
import { TierWorker } from './tier/tier-worker.ts';

const blockBytes = 1024;
const identityOf = (rank: number, worldSize: number): KvIdentity => ({
  fingerprint: suiteFingerprint,
  modelName: 'model',
  dtype: 'f16',
  rank,
  worldSize,
  blockBytes,
  groups: [{ blockSize: suiteBlockSize, layers: [3 * rank, 3 * rank + 1, 3 * rank + 2] }],
});
const signal = new AbortController().signal;

/** Reads the block many turns of the event loop after the call, when the step that was launched meanwhile is over. */
const lateReading = (tier: Tier): Tier =>
  replacing(tier, {
    store: async (key, bytes, signal) => {
      for (let turn = 0; turn < 40; turn++) await new Promise((resolve) => setImmediate(resolve));
      return tier.store(key, bytes, signal);
    },
    close: () => Promise.resolve(),
  });

/**
 * Two requests, one after the other, in a pool that has room for one. Returns the stored blocks of the first. `isWaitedFor`: the step
 * waits for the saves that it flushes.
 */
async function overwritten(ranks: number, isWaitedFor: boolean, poolBlocks = 7) {
  const identities = Array.from({ length: ranks }, (_, rank) => identityOf(rank, ranks));
  const hosts = identities.map((identity) => new HostTier({ identity, maxBytes: 1e6 }));
  const tiers = hosts.map(lateReading);
  const connector: KvConnector = {
    openScheduler: async (context) => {
      const options = { role: 'kv_both', mode: 'async', lookupTimeoutMs: 1000 } as const;
      return new TierScheduler(tiers, context, options);
    },
    openWorker: async (context) =>
      new TierWorker(tiers[context.identity.rank]!, context, { loadsAtOnce: 4, savesAtOnce: 9, saveTimeoutMs: 60_000 }),
  };
  const wrapWorker = (side: WorkerConnector): WorkerConnector =>
    isWaitedFor
      ? side
      : replacing(side, {
          handlePreemptions: (metadata) => {
            void side.handlePreemptions(metadata);
            return Promise.resolve();
          },
        });
  const engine = await EngineHarness.open(connector, {
    identities,
    blockCount: poolBlocks,
    loadTimeoutMs: 60_000,
    wrapWorker,
  });
  const [first, second] = [promptOf('first', 5), promptOf('second', 5)];
  engine.add('first', first);
  engine.add('second', second);
  await engine.runToEnd();
  await engine.runToDrained();
  const { flushedSaves } = engine.scheduler.stats().transfers;
  await engine.close();
  const blocks = new Map<BlockKey, readonly Uint8Array[]>();
  for (const key of keysOf(first)) {
    const parts = hosts.map(() => new Uint8Array(blockBytes));
    const reasons = await Promise.all(hosts.map((host, rank) => host.load(key, parts[rank]!, signal)));
    if (reasons.every((reason) => reason === undefined)) blocks.set(key, parts);
  }
  return { blocks, flushedSaves };
}

const roomy = 40;

describe.each([1, 2])('a block that the pool allocates while a save reads it, %i rank(s)', (ranks) => {
  test('is stored with the KV of another block under its key if the step does not wait for the save', async () => {
    const right = await overwritten(ranks, true, roomy);
    expect(right).toMatchObject({ flushedSaves: 0 });
    expect(right.blocks.size).toBe(5);
    const { blocks } = await overwritten(ranks, false);
    const wrong = [...blocks].filter(([key, parts]) => !sameParts(parts, right.blocks.get(key)!));
    expect(wrong.length).toBeGreaterThan(0);
  });

  test('is stored with its own KV, because the step flushes the save before it writes', async () => {
    const right = await overwritten(ranks, true, roomy);
    const { blocks, flushedSaves } = await overwritten(ranks, true);
    expect(flushedSaves).toBeGreaterThan(0);
    expect([...blocks.keys()]).toEqual([...right.blocks.keys()]);
    for (const [key, parts] of blocks) expect(sameParts(parts, right.blocks.get(key)!), key).toBe(true);
  });
});

const sameParts = (a: readonly Uint8Array[], b: readonly Uint8Array[]): boolean =>
  a.every((part, rank) => Buffer.compare(part, b[rank]!) === 0);
