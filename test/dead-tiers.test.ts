/**
 * A tier that is down costs no more than having no tier: the engine and the servers are real. Once the circuit breaker of the look-ups
 * is open, no request waits for the tier, no load is ordered from it, and the tier gets only the probes of the breaker.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { JsonObject } from '../src/base/json.ts';
import type { SchedulerConnector, SchedulerConnectorContext } from '../src/connector/connector.ts';
import { OffloadingConnector } from '../src/connector/offloading/offloading-connector.ts';
import { registerConnector } from '../src/connector/registry.ts';
import type { Tier, TierWrapping } from '../src/connector/tier/tier.ts';
import type { AsyncEngine } from '../src/engine/contract.ts';
import { promptOf } from './support/drive.ts';
import { openEngineWithTier } from './support/engine-with-tier.ts';
import { inLongForm } from './support/long-form.ts';
import { needs } from './support/needs.ts';
import { freePort, hasRedisServer, needsRedisServer, RedisServer } from './support/redis-server.ts';
import { replacing } from './support/replacing.ts';
import { hasS3Server, noS3Server, S3Server, s3Credentials } from './support/s3-server.ts';
import { SilentServer } from './support/silent-server.ts';

/** What requests and look-ups did since the start. */
const seen = { waits: 0, ordered: 0, lookups: 0 };

/** `OffloadingConnector`, whose scheduler side counts the answers "ask later", the loads and the calls of the tier. */
class CountedOffloading extends OffloadingConnector {
  override async openScheduler(context: SchedulerConnectorContext & TierWrapping): Promise<SchedulerConnector> {
    const wrapTier = (tier: Tier): Tier =>
      replacing(tier, {
        has: (keys, signal) => {
          seen.lookups++;
          return tier.has(keys, signal);
        },
      });
    const side = await super.openScheduler({ ...context, wrapTier });
    return replacing(side, {
      getMatchedBlocks: (request) => {
        const answer = side.getMatchedBlocks(request);
        if (answer.kind === 'askLater') seen.waits++;
        return answer;
      },
      updateStateAfterAlloc: (request, load, valid) => {
        if (load !== undefined) seen.ordered++;
        side.updateStateAfterAlloc(request, load, valid);
      },
    });
  }
}
registerConnector('CountedOffloading', async () => CountedOffloading);

interface DeadTier {
  readonly tier: JsonObject;
  /** After the engine has started. */
  readonly kill?: () => unknown;
  readonly end?: () => unknown;
}

const redisTier = (port: number): JsonObject => ({ type: 'redis', url: `redis://127.0.0.1:${port}` });
const s3Tier = (port: number): JsonObject => ({
  type: 'obj',
  store_config: {
    bucket: 'kvasir',
    endpoint_override: `http://127.0.0.1:${port}`,
    access_key: s3Credentials.accessKeyId,
    secret_key: s3Credentials.secretAccessKey,
    region: 'us-east-1',
  },
});
const kinds = [
  {
    name: 'redis',
    isThere: hasRedisServer,
    needs: needsRedisServer,
    tier: redisTier,
    start: () => RedisServer.start(),
  },
  {
    name: 's3',
    isThere: hasS3Server,
    needs: noS3Server,
    tier: s3Tier,
    start: () => S3Server.start('kvasir'),
  },
];

const promptLength = 200;
const outputLength = 8;
const request = (seed: number) => ({
  prompt: [...promptOf(promptLength, seed, 250)],
  params: { maxTokens: outputLength, temperature: 0, ignoreEos: true },
});

const open = (tier?: JsonObject): Promise<AsyncEngine> =>
  openEngineWithTier({ tier, connector: 'CountedOffloading', timeouts: { lookup: 0.1, load: 0.1, save: 0.2 } });

async function ask(engine: AsyncEngine, seed: number): Promise<readonly number[]> {
  const tokens: number[] = [];
  for await (const { tokenIds } of engine.generate(request(seed))) tokens.push(...tokenIds);
  return tokens;
}

let expected: (readonly number[])[];
const requestCount = inLongForm(12, 8);
beforeAll(async () => {
  const plain = await open();
  expected = [];
  for (let i = 0; i < requestCount; i++) expected.push(await ask(plain, i));
  await plain.close();
});

const engines: AsyncEngine[] = [];
const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const engine of engines.splice(0)) await engine.close();
});
afterAll(async () => {
  for (const end of ends.splice(0)) await end();
});

const counter = (engine: AsyncEngine, name: string): number => engine.stats().transfers.counters[name] ?? 0;

for (const { name, isThere, needs: reason, tier, start } of kinds)
  describe(`${name} below host memory`, needs(isThere, reason), () => {
    const faults: readonly [string, () => Promise<DeadTier>][] = [
      ['refuses connections', async () => ({ tier: tier(await freePort()) })],
      [
        'accepts connections and never answers',
        async () => {
          const server = await SilentServer.start();
          return { tier: tier(server.port), end: () => server.stop() };
        },
      ],
      [
        'is killed while the engine runs',
        async () => {
          const server = await start();
          const kill = () => ('killAndWait' in server ? server.killAndWait() : server.kill());
          return { tier: tier(server.port), kill, end: () => server.stop() };
        },
      ],
      [
        'is stopped (SIGSTOP) while the engine runs',
        async () => {
          const server = await start();
          return { tier: tier(server.port), kill: () => server.pause(), end: () => server.stop() };
        },
      ],
    ];

    // The same code waits for both, so the default form has the silent server only once more.
    it.each(inLongForm(faults, name === 'Redis' ? faults : faults.slice(1, 2)))(
      'that %s: no request waits for it once its breaker is open',
      async (_, fail) => {
        const dead = await fail();
        if (dead.end !== undefined) ends.push(dead.end);
        const engine = await open(dead.tier);
        engines.push(engine);
        expect(await ask(engine, 0)).toEqual(expected[0]);
        await dead.kill?.();
        const opened = (): number => counter(engine, `tier.${name}.breakerOpened.lookup`);
        // New prompts, because blocks of host memory are not looked up.
        for (let i = requestCount; opened() === 0; i++) await ask(engine, i);
        const before = { ...seen, opened: opened() };
        const failedLoads = counter(engine, `tier.${name}.loadFailed.timedOut`);
        for (let round = 0; round < inLongForm(2, 1); round++) {
          // Two requests at a time, which share no prefix.
          for (let i = 0; i < requestCount; i += 2) {
            const answers = await Promise.all([ask(engine, i), ask(engine, i + 1)]);
            expect(answers).toEqual(expected.slice(i, i + 2));
          }
        }
        // Blocks of host memory are loaded as if there were no tier below; no load waits for the tier.
        expect(seen.waits - before.waits).toBe(0);
        expect(counter(engine, `tier.${name}.loadFailed.timedOut`)).toBe(failedLoads);
        expect(seen.lookups - before.lookups).toBeLessThanOrEqual(opened() - before.opened + 1);
      },
    );
  });
