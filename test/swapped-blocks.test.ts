/**
 * A store that answers with the value of another key: every block of a disk, of a Redis server and of an S3 bucket has the content of
 * another. The blocks are misses with the reason `wrongKey`, and their tokens are computed.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { JsonObject } from '../src/base/json.ts';
import { headerBytes } from '../src/connector/tier/block-header.ts';
import type { AsyncEngine } from '../src/engine/contract.ts';
import { buildCommand } from './support/cli-process.ts';
import { promptOf } from './support/drive.ts';
import { openEngineWithTier } from './support/engine-with-tier.ts';
import { needs } from './support/needs.ts';
import { hasRedisServer, needsRedisServer, RedisServer } from './support/redis-server.ts';
import { hasS3Server, noS3Server, S3Server, s3Credentials } from './support/s3-server.ts';

// Threads of the disk tier need the built files.
beforeAll(buildCommand);
const folder = mkdtempSync(join(tmpdir(), 'kvasir-swapped-'));
afterAll(() => rmSync(folder, { recursive: true }));

interface Store {
  readonly name: string;
  readonly tier: JsonObject;
  /** Gives each block the content of the next one. Returns how many blocks there are. */
  rotate(blockBytes: number): Promise<number>;
  stop(): unknown;
}

/** Files with one block or several: each block of all files gets the content of the next. */
function rotateFiles(path: string, blockBytes: number): number {
  const files = readdirSync(path, { recursive: true, encoding: 'utf8' })
    .map((name) => join(path, name))
    .filter((file) => {
      const stats = statSync(file);
      return stats.isFile() && stats.size > 0 && stats.size % blockBytes === 0;
    });
  const all = Buffer.concat(files.map((file) => readFileSync(file)));
  const rotated = Buffer.concat([all.subarray(blockBytes), all.subarray(0, blockBytes)]);
  let at = 0;
  for (const file of files) {
    const { size } = statSync(file);
    writeFileSync(file, rotated.subarray(at, at + size));
    at += size;
  }
  return all.length / blockBytes;
}

async function disk(): Promise<Store> {
  const path = join(folder, 'disk');
  return {
    name: 'disk',
    tier: { type: 'fs', root_dir: path },
    rotate: async (blockBytes) => rotateFiles(path, blockBytes),
    stop: () => undefined,
  };
}

async function redis(): Promise<Store> {
  const server = await RedisServer.start();
  return {
    name: 'redis',
    tier: { type: 'redis', url: server.url },
    rotate: async (blockBytes) => {
      const client = new Redis(server.port);
      const keys: string[] = [];
      const values: Buffer[] = [];
      for (const key of await client.keys('*')) {
        const value = (await client.getBuffer(key))!;
        if (value.length !== blockBytes) continue;
        keys.push(key);
        values.push(value);
      }
      for (const [i, key] of keys.entries()) await client.set(key, values[(i + 1) % values.length]!, 'KEEPTTL');
      client.disconnect();
      return keys.length;
    },
    stop: () => server.stop(),
  };
}

async function bucket(): Promise<Store> {
  const server = await S3Server.start('kvasir');
  const { accessKeyId, secretAccessKey } = s3Credentials;
  const store = { bucket: 'kvasir', endpoint_override: server.endpoint, region: 'us-east-1' };
  return {
    name: 's3',
    tier: { type: 'obj', store_config: { ...store, access_key: accessKeyId, secret_key: secretAccessKey } },
    rotate: async (blockBytes) => rotateFiles(server.pathOf('kvasir'), blockBytes),
    stop: () => server.stop(),
  };
}

const open = (tier?: JsonObject): Promise<AsyncEngine> => openEngineWithTier({ tier });

const promptCount = 4;
const promptLength = 150;
const outputLength = 6;
/** Of 16 tokens. The KV of the last output token is not computed. */
const blocks = promptCount * Math.floor((promptLength + outputLength - 1) / 16);

async function askAll(engine: AsyncEngine): Promise<readonly number[][]> {
  const answers: number[][] = [];
  for (let i = 0; i < promptCount; i++) {
    const tokens: number[] = [];
    const params = { maxTokens: outputLength, temperature: 0, ignoreEos: true };
    for await (const { tokenIds } of engine.generate({ prompt: [...promptOf(promptLength, i, 250)], params }))
      tokens.push(...tokenIds);
    answers.push(tokens);
  }
  return answers;
}

const countersOf = (engine: AsyncEngine) => engine.stats().transfers.counters;

for (const { name, start, isThere, needs: reason } of [
  { name: 'a disk', start: disk, isThere: true, needs: '' },
  { name: 'Redis', start: redis, isThere: hasRedisServer, needs: needsRedisServer },
  { name: 'an S3 bucket', start: bucket, isThere: hasS3Server, needs: noS3Server },
])
  describe(`${name} that answers with the value of another key`, needs(isThere, reason), () => {
    it('gives misses with the reason `wrongKey`, and the texts are right', async () => {
      const plain = await open();
      const expected = await askAll(plain);
      await plain.close();
      const store = await start();
      try {
        const first = await open(store.tier);
        expect(await askAll(first)).toEqual(expected);
        await expect.poll(() => countersOf(first)[`tier.${store.name}.storedBlocks`]).toBe(blocks);
        const { 'tier.host.storedBytes': bytes = 0 } = countersOf(first);
        await first.close();
        expect(await store.rotate(headerBytes + bytes / blocks)).toBe(blocks);
        const second = await open(store.tier);
        expect(await askAll(second)).toEqual(expected);
        const { [`tier.${store.name}.loadFailed.wrongKey`]: wrong, [`tier.${store.name}.loadedBlocks`]: loaded = 0 } =
          countersOf(second);
        expect(wrong).toBeGreaterThan(promptCount);
        expect(loaded).toBe(0);
        await second.close();
      } finally {
        await store.stop();
      }
    });
  });
