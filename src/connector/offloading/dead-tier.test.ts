/**
 * What look-ups and loads of a tier that is down cost: real clients and servers, and a clock that only the test moves. A request that
 * needs no look-up and no load is scheduled as if there were no tier.
 */
import { afterEach, describe, expect, it } from 'vitest';
import { ManualTime } from '../../../test/support/manual-time.ts';
import { needs } from '../../../test/support/needs.ts';
import { freePort, hasRedisServer, needsRedisServer, RedisServer } from '../../../test/support/redis-server.ts';
import { hasS3Server, noS3Server, S3Server, s3Credentials } from '../../../test/support/s3-server.ts';
import { SilentServer } from '../../../test/support/silent-server.ts';
import { type BlockId, type BlockIndex, groupIndex, type RequestId, type TokenCount } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import { readKvTransferConfig } from '../config.ts';
import type { ConnectorRequest, KvBlock } from '../connector.ts';
import { ledgerBeside } from '../ledger-beside.suite.ts';
import { PlaceScheduler } from '../places/place-scheduler.ts';
import { RedisTier } from '../tier/redis/tier-redis.ts';
import { S3Tier } from '../tier/s3/tier-s3.ts';
import { suiteBytes, suiteIdentity, suiteKey } from '../tier/tier.suite.ts';
import type { Tier } from '../tier/tier.ts';
import { readOffloadingSettings } from './offloading-settings.ts';

const identity = { ...suiteIdentity, groups: [suiteIdentity.groups[0]!] };
const lookupTimeoutMs = 500;
const turns = async (): Promise<void> => {
  for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
};

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** A tier whose server is down in one way. */
interface DeadTier {
  readonly tier: Tier;
  /** Undefined: the server does not come back. */
  readonly mend?: () => void;
}

const openRedis = (port: number): Promise<RedisTier> =>
  RedisTier.open({ url: `redis://127.0.0.1:${port}`, identity, commandTimeoutMs: 300 });
const openS3 = (port: number): Promise<S3Tier> =>
  S3Tier.open({
    bucket: 'blocks',
    endpoint: `http://127.0.0.1:${port}`,
    credentials: s3Credentials,
    identity,
    refreshMs: 0,
    openTimeoutMs: 100,
  });

async function silent(open: (port: number) => Promise<Tier>): Promise<DeadTier> {
  const server = await SilentServer.start();
  ends.push(() => server.stop());
  return { tier: await open(server.port) };
}

const kinds = [
  {
    name: 'Redis',
    isThere: hasRedisServer,
    needs: needsRedisServer,
    open: openRedis,
    paused: async (): Promise<DeadTier> => {
      const server = await RedisServer.start();
      ends.push(() => server.stop());
      const tier = await openRedis(server.port);
      server.pause();
      return { tier, mend: () => server.resume() };
    },
  },
  {
    name: 'S3',
    isThere: hasS3Server,
    needs: noS3Server,
    open: openS3,
    paused: async (): Promise<DeadTier> => {
      const server = await S3Server.start('blocks');
      ends.push(() => server.stop());
      const tier = await openS3(server.port);
      server.pause();
      return { tier, mend: () => server.resume() };
    },
  },
];

/** A scheduler side above the tier. Time passes only by `advance`. */
function newScheduler(tier: Tier) {
  const time = new ManualTime();
  const calls: (readonly BlockKey[])[] = [];
  const counted: Tier = {
    name: tier.name,
    has: (keys, signal) => {
      calls.push(keys);
      return tier.has(keys, signal);
    },
    load: (key, into, signal, context) => tier.load(key, into, signal, context),
    store: (key, bytes, signal, context) => tier.store(key, bytes, signal, context),
    delete: (key) => tier.delete(key),
    takeEvicted: () => tier.takeEvicted(),
    counters: () => tier.counters(),
    close: () => tier.close(),
  };
  const settings = readOffloadingSettings(
    readKvTransferConfig({
      kvConnector: 'OffloadingConnector',
      kvRole: 'kv_both',
      kvConnectorExtraConfig: { cpu_bytes_to_use: 1e8, lookup_timeout_seconds: lookupTimeoutMs / 1000 },
    }),
  );
  const scheduler = new PlaceScheduler(
    [{ name: 'below', tiers: [counted], kind: { medium: 'STORAGE', locality: 'REMOTE' } }],
    { clock: time, timers: time, wake: () => undefined, identities: [identity] },
    settings,
  );
  ends.push(async () => {
    await scheduler.close();
    await tier.close();
  });
  const opened = () => scheduler.stats().tiers!.below!.breakerOpened!.lookup;
  const isOpen = (): boolean => scheduler.stats().levels!.tiers!.below!.breakerOpen!.lookup === 1;
  return { scheduler, time, calls, opened, isOpen };
}

const block = (index: number): KvBlock => ({ group: groupIndex(0), index: 0 as BlockIndex, key: suiteKey(index) });
const request = (i: number): ConnectorRequest => ({
  id: `r${i}` as RequestId,
  tokenCount: 100 as TokenCount,
  wanted: [block(i)],
});
const isFound = ({ kind }: { readonly kind: string }): boolean => kind === 'found';

for (const { name, isThere, needs: reason, open, paused } of kinds)
  describe(`${name} below host memory`, needs(isThere, reason), () => {
    it.each<[string, () => Promise<DeadTier>]>([
      ['refuses connections', async () => ({ tier: await open(await freePort()) })],
      ['accepts connections and never answers', () => silent(open)],
      ['is stopped (SIGSTOP)', paused],
    ])('that %s: five requests wait for a look-up, and then none', async (_, kill) => {
      const { tier } = await kill();
      const { scheduler, time, calls, opened } = newScheduler(tier);
      let waits = 0;
      const ask = async (i: number): Promise<void> => {
        if (!isFound(scheduler.getMatchedBlocks(request(i)))) {
          waits++;
          // The look-up ends at its deadline at the latest.
          time.advance(lookupTimeoutMs + 50);
          await turns();
          time.advance(50);
          await turns();
          expect(scheduler.getMatchedBlocks(request(i))).toEqual({ kind: 'found', mode: 'async', blocks: [] });
        }
        scheduler.updateStateAfterAlloc(request(i), undefined, () => []);
        scheduler.requestFinished(request(i), () => []);
      };
      for (let i = 0; i < 5; i++) await ask(i);
      expect([waits, calls.length, opened()]).toEqual([5, 5, 1]);
      // Two minutes with ten requests a second. Each call is the probe of a half-open breaker: after 1, 2, 4, 8, 16, 30 s, ...
      for (let i = 5; i < 1205; i++) {
        await ask(i);
        time.advance(100);
      }
      expect(waits).toBe(5);
      expect(calls.length).toBeLessThanOrEqual(5 + 8);
      expect(calls.length).toBeGreaterThan(5 + 4);
    });

    it('that answers again: a probe in the background closes the breaker, and the next request finds its block', async () => {
      const { tier, mend } = await paused();
      const { scheduler, time, isOpen } = newScheduler(tier);
      for (let i = 0; i < 5; i++) {
        scheduler.getMatchedBlocks(request(i));
        time.advance(lookupTimeoutMs + 50);
        await turns();
        time.advance(50);
        await turns();
      }
      expect(isOpen()).toBe(true);
      mend!();
      const store = () => tier.store(suiteKey('x'), suiteBytes(suiteKey('x')), new AbortController().signal);
      await expect.poll(() => store().catch(() => 'failed')).toMatch(/tored/);
      let i = 5;
      while (isOpen()) {
        time.advance(30_000);
        expect(scheduler.getMatchedBlocks(request(i++))).toMatchObject({ kind: 'found', blocks: [] });
        // The probe answers in real time; its deadline does not pass.
        for (let turn = 0; isOpen() && turn < 1000; turn++) await turns();
      }
      const later = { ...request(i), wanted: [{ ...block(0), key: suiteKey('x') }] };
      while (!isFound(scheduler.getMatchedBlocks(later))) await turns();
      expect(scheduler.getMatchedBlocks(later)).toMatchObject({ kind: 'found', blocks: [{ place: 'below' }] });
    });
  });

describe('a tier that answers look-ups and whose loads fail', () => {
  it('is not asked for a second after a load that its breaker refused', async () => {
    const tier: Tier = {
      name: 'below',
      has: (keys) => Promise.resolve(keys.map(() => true)),
      load: () => Promise.reject(new Error('down')),
      store: () => Promise.resolve('alreadyStored'),
      delete: () => Promise.resolve(),
      takeEvicted: () => [],
      counters: () => ({}),
      close: () => Promise.resolve(),
    };
    const { scheduler, time, calls } = newScheduler(tier);
    const promised = async (i: number): Promise<boolean> => {
      if (scheduler.getMatchedBlocks(request(i)).kind === 'askLater') await turns();
      const answer = scheduler.getMatchedBlocks(request(i));
      return answer.kind === 'found' && answer.blocks.length === 1;
    };
    expect(await promised(0)).toBe(true);
    const { load, output } = ledgerBeside(scheduler, time);
    const { transfer } = load('r0', [{ ...block(0), place: 'below', block: 7 as BlockId }]);
    output({
      finishedRecving: [transfer],
      loadFailures: [{ transfer, block: 7 as BlockId, reason: 'storeDown', isBlockBusy: false }],
    });
    for (let i = 1; i < 10; i++) expect(await promised(i)).toBe(false);
    expect(calls).toHaveLength(1);
    time.advance(1_000);
    expect(await promised(10)).toBe(true);
  });
});
