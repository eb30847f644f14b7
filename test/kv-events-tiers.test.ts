/** KV events of blocks in Redis and S3: they have the medium and the locality, and name the blocks that the store has. */
import { readdirSync } from 'node:fs';
import { Redis } from 'ioredis';
import { afterEach, expect, it } from 'vitest';
import { KvEventSubscriber } from '../examples/kv-event-subscriber.ts';
import type { JsonObject } from '../src/base/json.ts';
import { createEngine } from '../src/compose.ts';
import { needs } from './support/needs.ts';
import { hasRedisServer, needsRedisServer, RedisServer } from './support/redis-server.ts';
import { hasS3Server, noS3Server, S3Server, s3Credentials } from './support/s3-server.ts';
import { serveEngine } from './support/served-model.ts';

const closers: (() => void | Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

const patience = { timeout: 60_000, interval: 50 };

/** A server whose blocks go to this tier, and a subscriber of its events. */
async function serve(tier: JsonObject) {
  const engine = await createEngine({
    model: 'models/kvasir-demo.gguf',
    threads: 1,
    kvCacheMemory: 1 << 20,
    maxModelLen: 256,
    kvEventsConfig: { enable_kv_cache_events: true, endpoint: 'tcp://*:0', replay_endpoint: 'tcp://*:0' },
    kvTransferConfig: {
      kv_connector: 'OffloadingConnector',
      kv_role: 'kv_both',
      kv_connector_extra_config: {
        spec_name: 'TieringOffloadingSpec',
        cpu_bytes_to_use: 64 << 20,
        secondary_tiers: [tier],
        kv_load_policy: 'always',
        busy_write_share: 1,
      },
    },
  });
  const server = await serveEngine(engine);
  const origin = new URL(server.client.baseURL).origin;
  const [source] = (await (await fetch(`${origin}/kv_event_sources`)).json()) as [Record<string, string>];
  const [endpoint, replay] = [source.endpoint!, source.replay_endpoint!].map((text) => text.replace('*', '127.0.0.1'));
  const subscriber = new KvEventSubscriber(endpoint!, replay!);
  closers.push(async () => {
    subscriber.close();
    await server.close();
    await engine.close();
  });
  const complete = async (prompt: readonly number[]) => {
    const response = await fetch(`${origin}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ prompt, max_tokens: 1, temperature: 0 }),
    });
    const { usage } = (await response.json()) as { usage: { prompt_tokens_details: unknown } };
    return usage.prompt_tokens_details;
  };
  /** The blocks of the store, by their hashes. */
  const stored = async () => {
    await subscriber.catchUp();
    const blocks = [...subscriber.blocks.values()].filter(({ medium }) => medium === 'STORAGE');
    return new Map(blocks.map((block) => [block.hash, block]));
  };
  return { complete, stored };
}

const common = Array.from({ length: 64 }, (_, i) => 300 + i);
const prompts = [100, 97, 65].map((length, n) =>
  Array.from({ length }, (_, i) => (i < common.length ? common[i]! : 400 + 50 * n + i)),
);
/** Whole blocks: four common ones, two of the first prompt and two of the second. */
const blockCount = 4 + 2 + 2;

/** The events name `blockCount` remote blocks, with the tokens of the prompts, and another server loads exactly these. */
async function expectStored(tier: JsonObject, place: string): Promise<Set<string>> {
  const { complete, stored } = await serve(tier);
  for (const prompt of prompts) await complete(prompt);
  await expect.poll(async () => (await stored()).size, patience).toBe(blockCount);
  const blocks = await stored();
  expect(new Set([...blocks.values()].map(({ locality }) => locality))).toEqual(new Set(['REMOTE']));
  const tokensUpTo = (hash: string | undefined): number[] => {
    if (hash === undefined) return [];
    const { content } = blocks.get(hash)!;
    return [...tokensUpTo(content!.parent), ...content!.tokens];
  };
  const parents = new Set([...blocks.values()].map(({ content }) => content!.parent));
  const chains = [...blocks.keys()].filter((hash) => !parents.has(hash)).map(tokensUpTo);
  const wholeBlocks = prompts.slice(0, 2).map((prompt) => prompt.slice(0, 96).join());
  expect(new Set(chains.map((chain) => chain.join()))).toEqual(new Set(wholeBlocks));
  const other = await serve(tier);
  for (const [i, chain] of chains.entries()) {
    const usage = await other.complete([...chain, 5]);
    expect(usage).toMatchObject({ cached_tokens: 96, loaded_tokens: { [place]: i === 0 ? 96 : 32 } });
  }
  return new Set(blocks.keys());
}

it('events of Redis name the keys that it has', needs(hasRedisServer, needsRedisServer), async () => {
  const server = await RedisServer.start();
  closers.push(() => server.stop());
  const hashes = await expectStored({ type: 'redis', url: server.url }, 'redis');
  const client = new Redis(server.url);
  const keys = await client.keys('kvasir:*');
  client.disconnect();
  // As in the events: the last 16 digits of the digest.
  const inRedis = keys.map((key) =>
    String(BigInt(`0x${/([0-9a-f]{64})/.exec(key.slice(key.lastIndexOf(':')))![1]!.slice(-16)}`)),
  );
  expect(new Set(inRedis)).toEqual(hashes);
});

it('events of S3 name the blocks that its objects have', needs(hasS3Server, noS3Server), async () => {
  const server = await S3Server.start('kvasir');
  closers.push(() => server.stop());
  const { accessKeyId, secretAccessKey } = s3Credentials;
  const credentials = { access_key: accessKeyId, secret_key: secretAccessKey, region: 'us-east-1' };
  const store_config = { bucket: 'kvasir', endpoint_override: server.endpoint, ...credentials };
  const hashes = await expectStored({ type: 'obj', store_config }, 's3');
  // The name of an object has 12 characters for each block.
  const files = readdirSync(server.pathOf('kvasir'), { recursive: true, encoding: 'utf8' });
  const names = files.flatMap((file) => /\/[0-9a-f]{12}-[\w-]{8}-([\w-]+)$/.exec(file)?.[1] ?? []);
  expect(names.reduce((sum, name) => sum + name.length / 12, 0)).toBe(hashes.size);
});
