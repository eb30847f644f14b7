/**
 * Real servers below host memory fail in the middle of 200 requests: Redis and an S3 server are paused, killed and started
 * again. All texts are right, no request is lost, and the circuit breakers close again.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { JsonObject } from '../src/base/json.ts';
import { createEngine } from '../src/compose.ts';
import { tierReports } from '../src/connector/offloading/tier-report.ts';
import type { RequestStats } from '../src/core/request.ts';
import type { AsyncEngine } from '../src/engine/contract.ts';
import type { EngineOptions } from '../src/engine/options.ts';
import { buildCommand } from './support/cli-process.ts';
import { promptOf } from './support/drive.ts';
import { inLongForm } from './support/long-form.ts';
import { needs } from './support/needs.ts';
import { hasRedisServer, needsRedisServer, RedisServer } from './support/redis-server.ts';
import { hasS3Server, noS3Server, S3Server, s3Credentials } from './support/s3-server.ts';

// Threads of the disk tier need the built files.
beforeAll(buildCommand);

interface Store {
  /** As in `secondary_tiers`. */
  readonly tier: JsonObject;
  readonly name: string;
  pause(): void;
  resume(): void;
  kill(): Promise<void>;
  startAgain(): Promise<void>;
  stop(): Promise<void>;
}

async function redis(): Promise<Store> {
  const server = await RedisServer.start();
  return {
    name: 'redis',
    tier: { type: 'redis', url: server.url },
    pause: () => server.pause(),
    resume: () => server.resume(),
    kill: () => server.kill(),
    startAgain: () => server.run(),
    stop: () => server.stop(),
  };
}

async function bucket(): Promise<Store> {
  const server = await S3Server.start('kvasir');
  const { accessKeyId, secretAccessKey } = s3Credentials;
  const store = {
    bucket: 'kvasir',
    endpoint_override: server.endpoint,
    access_key: accessKeyId,
    secret_key: secretAccessKey,
  };
  return {
    name: 's3',
    tier: { type: 'obj', store_config: { ...store, region: 'us-east-1' } },
    pause: () => server.pause(),
    resume: () => server.resume(),
    kill: () => server.killAndWait(),
    startAgain: () => server.startAgain(),
    stop: () => server.stop(),
  };
}

const stores: Store[] = [];
const engines: AsyncEngine[] = [];
afterEach(async () => {
  for (const engine of engines.splice(0)) await engine.close();
});
afterAll(async () => {
  for (const store of stores.splice(0)) await store.stop();
});

async function open(tiers?: readonly JsonObject[], extra: JsonObject = {}, options: Partial<EngineOptions> = {}) {
  const transfer = {
    kv_connector: 'OffloadingConnector',
    kv_role: 'kv_both',
    kv_connector_extra_config: {
      spec_name: 'TieringOffloadingSpec',
      // Twelve blocks of the demo model: nearly all loads come from the tier below.
      cpu_bytes_to_use: 600_000,
      secondary_tiers: tiers ?? [],
      lookup_timeout_seconds: 0.2,
      load_timeout_seconds: 0.3,
      save_timeout_seconds: 1,
      // The demo model may compute faster than Redis and S3 serve.
      kv_load_policy: 'always',
      // On a busy machine, too, blocks are written while the engine computes.
      busy_write_share: 1,
      ...extra,
    },
  };
  const engine = await createEngine({
    model: 'models/kvasir-demo.gguf',
    threads: 1,
    kvCacheMemory: 3 << 20,
    maxModelLen: 512,
    maxNumSeqs: 4,
    ...options,
    ...(tiers === undefined ? {} : { kvTransferConfig: transfer }),
  });
  engines.push(engine);
  return engine;
}

interface Answer {
  readonly tokens: readonly number[];
  readonly stats: RequestStats;
}

const promptCount = 10;
const requestCount = inLongForm(200, 80);
/** The number of the request before which something happens. */
const at = (part: number): number => Math.round(part * requestCount);
const promptLength = (i: number): number => 40 + 16 * (i % promptCount);

async function ask(engine: AsyncEngine, i: number): Promise<Answer> {
  const tokens: number[] = [];
  let stats: RequestStats | undefined;
  const params = {
    maxTokens: 12,
    ignoreEos: true,
    ...(i % 2 === 0 ? { temperature: 0 } : { temperature: 0.9, seed: 5 }),
  };
  for await (const delta of engine.generate({ prompt: [...promptOf(promptLength(i), i % promptCount, 250)], params })) {
    tokens.push(...delta.tokenIds);
    stats = delta.stats;
  }
  return { tokens, stats: stats! };
}

/** What an engine without tiers answers to each prompt. */
async function expectedAnswers(): Promise<readonly (readonly number[])[]> {
  const engine = await open();
  const answers: (readonly number[])[] = [];
  for (let i = 0; i < promptCount; i++) answers.push((await ask(engine, i)).tokens);
  return answers;
}

/** Requests, four at a time. `before`: what happens before a request starts. */
async function askMany(engine: AsyncEngine, before: ReadonlyMap<number, () => void | Promise<void>>) {
  const answers: Answer[] = [];
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < requestCount) {
      const i = next++;
      await before.get(i)?.();
      answers[i] = await ask(engine, i);
    }
  };
  await Promise.all([worker(), worker(), worker(), worker()]);
  return answers;
}

/** Sends requests until the tier has loaded a block for one. */
async function untilLoaded(engine: AsyncEngine, tier: string, expected: readonly (readonly number[])[]): Promise<void> {
  let loaded = 0;
  for (let i = 0; loaded === 0; i++) {
    const { tokens, stats } = await ask(engine, i);
    expect(tokens).toEqual(expected[i % promptCount]);
    loaded = stats.loadedTokens?.[tier] ?? 0;
  }
}

const tierOf = (engine: AsyncEngine, name: string) =>
  tierReports(engine.stats().transfers.connector).find((report) => report.name === name)!;
const isOpen = (engine: AsyncEngine, name: string): boolean => tierOf(engine, name).openBreakers.length > 0;
const loadedFrom = (answers: readonly Answer[], name: string): number =>
  answers.reduce((sum, { stats }) => sum + (stats.loadedTokens?.[name] ?? 0), 0);

const kinds = [
  { name: 'Redis', start: redis, isThere: hasRedisServer, needs: needsRedisServer },
  { name: 'an S3 server', start: bucket, isThere: hasS3Server, needs: noS3Server },
];

for (const { name, start, isThere, needs: reason } of inLongForm(kinds, kinds.slice(0, 1)))
  describe(`${name} below host memory`, needs(isThere, reason), () => {
    it('paused, resumed, killed and started again in the middle of many requests: every text is right', async () => {
      const store = await start();
      stores.push(store);
      const expected = await expectedAnswers();
      const engine = await open([store.tier]);
      await untilLoaded(engine, store.name, expected);
      const answers = await askMany(
        engine,
        new Map<number, () => void | Promise<void>>([
          [at(0.3), () => store.pause()],
          [at(0.45), () => store.resume()],
          [at(0.6), () => store.kill()],
          [at(0.75), () => store.startAgain()],
        ]),
      );
      expect(answers).toHaveLength(requestCount);
      for (const [i, { tokens }] of answers.entries())
        expect(tokens, `request ${i}`).toEqual(expected[i % promptCount]);
      // The breakers close when the tier answers their probes, which requests make.
      for (let i = 0; isOpen(engine, store.name); i++)
        expect((await ask(engine, i)).tokens).toEqual(expected[i % promptCount]);
      // After that, blocks are stored and loaded as before.
      await untilLoaded(engine, store.name, expected);
    });

    it('two engines share what one has stored, and an engine with another layout finds nothing', async () => {
      const store = await start();
      stores.push(store);
      const expected = await expectedAnswers();
      const first = await open([store.tier], {
        lookup_timeout_seconds: 60,
        load_timeout_seconds: 60,
        save_timeout_seconds: 60,
      });
      for (let i = 0; i < promptCount; i++) await ask(first, i);
      await first.close();
      const second = await open([store.tier], { lookup_timeout_seconds: 60, load_timeout_seconds: 60 });
      const answers: Answer[] = [];
      for (let i = 0; i < promptCount; i++) answers.push(await ask(second, i));
      expect(answers.map(({ tokens }) => tokens)).toEqual(expected);
      expect(loadedFrom(answers, store.name)).toBeGreaterThan(0);
      const other = await open([store.tier], { lookup_timeout_seconds: 60 }, { blockSize: 8 });
      for (let i = 0; i < promptCount; i++)
        expect((await ask(other, i)).stats.loadedTokens?.[store.name]).toBeUndefined();
    });
  });

describe('identical prompts at once', () => {
  it('cost one store and one load of each block', async () => {
    const engine = await open([], {
      cpu_bytes_to_use: 100_000_000,
      spec_name: 'CPUOffloadingSpec',
      secondary_tiers: null,
    });
    const same = () => Promise.all([1, 2, 3, 4].map(() => ask(engine, 9)));
    const [first] = await same();
    const blocksOf = (i: number): number => Math.floor((promptLength(i) + 11) / 16);
    const blocks = blocksOf(9);
    let stored = blocks;
    // Other prompts evict the blocks from the pool.
    for (let i = 0; i < 9; i++) {
      await ask(engine, i);
      stored += blocksOf(i);
    }
    // A request ends before its last blocks are stored.
    await expect.poll(() => tierOf(engine, 'host').stores.blocks, { timeout: 60_000 }).toBe(stored);
    const before = tierOf(engine, 'host');
    const again = await same();
    for (const { tokens } of again) expect(tokens).toEqual(first!.tokens);
    const after = tierOf(engine, 'host');
    expect(after.stores.blocks).toBe(before.stores.blocks);
    const promised = loadedFrom(again, 'host') / 16;
    expect(after.loads.blocks - before.loads.blocks).toBeLessThanOrEqual(blocks);
    expect(after.loads.blocks - before.loads.blocks).toBe(promised);
    expect(promised).toBeGreaterThan(0);
  });
});
