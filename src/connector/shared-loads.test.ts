/** Requests that share the load of a block. The engine, ranks and worker sides are real; the test decides when a block arrives. */
import { describe, expect, it } from 'vitest';
import { replacing } from '../../test/support/replacing.ts';
import type { BlockKey } from './block-key.ts';
import type { KvConnector } from './connector.ts';
import { keysOf, promptOf, suiteWorld } from './connector-checks.suite.ts';
import { EngineHarness } from './connector-harness.suite.ts';
import { TierScheduler } from './places/tier-scheduler.ts';
import { HostTier } from './tier/host/tier-host.ts';
import type { Tier } from './tier/tier.ts';
import { TierWorker } from './tier/tier-worker.ts';

const [short, long] = [promptOf('shared', 1), promptOf('shared', 2)];
const [a, b] = keysOf(long) as [BlockKey, BlockKey];

/** An engine whose tiers have the blocks `a` and `b`. Loads of `b` wait for `release`. */
async function open(ranks: number) {
  const identities = suiteWorld(ranks);
  const hosts = identities.map((identity) => new HostTier({ identity, maxBytes: 1e6 }));
  const held: (() => void)[] = [];
  const loads = new Map<BlockKey, number>();
  const kept = (tier: Tier): Tier => replacing(tier, { close: () => Promise.resolve() });
  const gated = (tier: Tier): Tier =>
    replacing(tier, {
      load: async (key, into, signal, context) => {
        loads.set(key, (loads.get(key) ?? 0) + 1);
        if (key === b) await new Promise<void>((go) => held.push(go));
        return tier.load(key, into, signal, context);
      },
    });
  const connectorOn = (tiers: readonly Tier[]): KvConnector => ({
    openScheduler: async (context) =>
      new TierScheduler(tiers, context, { role: 'kv_both', mode: 'async', lookupTimeoutMs: 60_000 }),
    openWorker: async (context) =>
      new TierWorker(tiers[context.identity.rank]!, context, { loadsAtOnce: 4, savesAtOnce: 2, saveTimeoutMs: 60_000 }),
  });
  const options = { identities, blockCount: 20, loadTimeoutMs: 60_000 };
  const first = await EngineHarness.open(connectorOn(hosts.map(kept)), options);
  first.add('first', long);
  await first.runToEnd();
  await first.runToDrained();
  await first.close();
  const engine = await EngineHarness.open(connectorOn(hosts.map(gated)), options);
  const release = (): void => {
    for (const go of held.splice(0)) go();
  };
  return { engine, loads, isHeld: () => held.length === ranks, release };
}

describe.each([1, 2])(
  'two requests share the load of one block, and one also needs a slow block, %i rank(s)',
  (ranks) => {
    it.each([
      ['begins the load', ['short', 'long']],
      ['came second', ['long', 'short']],
    ])('the request that does not need the slow block goes on: it %s', async (_, order) => {
      const { engine, loads, isHeld, release } = await open(ranks);
      const requests = new Map(
        [...order].map((name) => [name, engine.add(name, name === 'short' ? short : long)] as const),
      );
      const [quick, slow] = [requests.get('short')!, requests.get('long')!];
      await engine.runUntil(() => quick.status === 'done');
      await engine.runUntil(isHeld);
      expect(slow.status).toBe('live');
      release();
      await engine.runToEnd();
      await engine.runToDrained();
      // Each rank has loaded each block once, and no request has computed one.
      expect(Object.fromEntries(loads)).toEqual({ [a]: ranks, [b]: ranks });
      expect([quick.computedBlocks, slow.computedBlocks]).toEqual([0, 0]);
      expect(engine.usedBlocks).toBe(0);
      await engine.close();
    });
  },
);
