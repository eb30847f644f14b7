import { mkdtempSync, readdirSync } from 'node:fs';
import { Redis } from 'ioredis';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { suiteIdentity } from '../../src/connector/tier/tier.suite.ts';
import { needs } from '../../test/support/needs.ts';
import { hasRedisServer, needsRedisServer, RedisServer } from '../../test/support/redis-server.ts';
import { runBench } from '../../test/support/run-bench.ts';
import { hasS3Server, noS3Server, S3Server, s3Credentials } from '../../test/support/s3-server.ts';
import { temporaryFolder } from '../../test/support/tiny-model.ts';
import { hostSubject } from './host-subject.ts';
import { measureTier, type TierRow } from './measure-tier.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

async function measured(...args: string[]) {
  const sizes = '--blocks 12 --block-bytes 10000 --repetitions 2 --json'.split(' ');
  const { code, out, err } = await runBench('tiers', ...args, ...sizes);
  const { rows } = (out === '' ? { rows: [] } : JSON.parse(out)) as { rows: TierRow[] };
  return { code, err, rows };
}

describe('kvasir bench tiers', () => {
  it('has rows for storing to and loading from host memory and the disk, each with its limit', async () => {
    const storage = mkdtempSync(folder.file('storage-'));
    const { code, err, rows } = await measured('--kv-tier', `disk:${storage}`);
    expect(code, err).toBe(0);
    expect(err).toMatch(/host load +[\d.e-]+ +memcpy [\d.e-]+ +[\d.e-]+ +>= 0.8/);
    expect(rows).toMatchObject([
      { tier: 'host', what: 'store', limit: 'memcpy', blocks: 12, blockBytes: 10_000, callsAtOnce: 1 },
      { tier: 'host', what: 'load', limit: 'memcpy' },
      { tier: 'disk', what: 'store', limit: 'fs.write', callsAtOnce: 2 },
      { tier: 'disk', what: 'load', limit: 'fs.read', callsAtOnce: 4 },
    ]);
    for (const { gigabytesPerSecond, limit, latencyMs, cpuSecondsPerGigabyte } of rows) {
      expect(gigabytesPerSecond.ratio).toBeCloseTo(gigabytesPerSecond.kvasir! / gigabytesPerSecond[limit]!, 1);
      expect(latencyMs.p50).toBeGreaterThan(0);
      expect(latencyMs.p99).toBeGreaterThanOrEqual(latencyMs.p50);
      expect(cpuSecondsPerGigabyte[limit]).toBeGreaterThan(0);
    }
    const encrypted = await measured('--kv-tier', `disk:${storage}`, '--encrypt');
    expect(encrypted.rows.map(({ tier, what }) => `${tier} ${what}`).slice(2)).toEqual(
      ['disk', 'disk encrypted'].flatMap((tier) => [`${tier} store`, `${tier} load`]),
    );
    // The folders of the bench are removed.
    expect(readdirSync(storage)).toEqual([]);
  });

  it('measures a Redis server, and leaves no keys in it', needs(hasRedisServer, needsRedisServer), async () => {
    const server = await RedisServer.start();
    try {
      const { code, err, rows } = await measured('--kv-tier', server.url);
      expect(code, err).toBe(0);
      expect(rows.slice(2)).toMatchObject([
        { tier: 'redis', what: 'store', limit: 'SET', callsAtOnce: 8 },
        { tier: 'redis', what: 'load', limit: 'GETEX', callsAtOnce: 8 },
      ]);
      const admin = new Redis(server.url);
      const left = await admin.keys('*');
      admin.disconnect();
      expect(left.filter((name) => !name.startsWith('kvasir:probe'))).toEqual([]);
    } finally {
      await server.stop();
    }
  });

  it('measures a bucket, and leaves no blocks in it', needs(hasS3Server, noS3Server), async () => {
    const server = await S3Server.start('blocks');
    vi.stubEnv('AWS_ACCESS_KEY_ID', s3Credentials.accessKeyId);
    vi.stubEnv('AWS_SECRET_ACCESS_KEY', s3Credentials.secretAccessKey);
    try {
      const warned = vi.fn();
      process.on('warning', warned);
      const { code, err, rows } = await measured('--kv-tier', `s3://blocks/kv?endpoint=${server.endpoint}`);
      process.off('warning', warned);
      expect(warned).not.toHaveBeenCalled();
      expect(code, err).toBe(0);
      expect(rows.slice(2)).toMatchObject([
        { tier: 's3', what: 'store', limit: 'PUT' },
        { tier: 's3', what: 'load', limit: 'GET' },
      ]);
      const files = readdirSync(server.pathOf('blocks'), { recursive: true, withFileTypes: true });
      expect(files.filter((entry) => entry.isFile() && !entry.name.endsWith('.json'))).toEqual([]);
    } finally {
      vi.unstubAllEnvs();
      await server.stop();
    }
  });

  it('refuses a tier that it does not know, and a second host tier', async () => {
    expect(await runBench('tiers', '--kv-tier', 'tape:/dev/st0')).toMatchObject({
      code: 2,
      err: expect.stringContaining('tape'),
    });
    const { code, err } = await runBench('tiers', '--kv-tier', 'host:1GiB');
    expect({ code, err }).toMatchObject({
      code: 1,
      err: expect.stringContaining('cannot measure --kv-tier host:1GiB'),
    });
  });

  it('fails if other bytes come back', async () => {
    const blocks = 3;
    const subject = hostSubject({ identity: suiteIdentity, crc32: undefined, blocks });
    const wrong = { ...subject, load: async (_: unknown, into: Uint8Array) => void into.fill(7) };
    const options = { blocks, blockBytes: suiteIdentity.blockBytes, repetitions: 1, onProgress: () => undefined };
    const signal = new AbortController().signal;
    await expect(measureTier(wrong, { ...options, signal })).rejects.toThrow('other bytes came back');
  });
});
