import { mkdtempSync, readdirSync } from 'node:fs';
import { afterAll, describe, expect, it } from 'vitest';
import type { CliContext } from '../../src/cli/context.ts';
import { runCli } from '../../src/cli/run-cli.ts';
import { openMeasuredEngine } from '../../src/compose.ts';
import { suiteIdentity } from '../../src/connector/tier/tier.suite.ts';
import { temporaryFolder } from '../../test/support/tiny-model.ts';
import { benchCommand } from '../command.ts';
import { hostSubject } from './host-subject.ts';
import { measureTier, type TierRow } from './measure-tier.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

async function kvasir(...args: string[]) {
  let out = '';
  let err = '';
  const context: CliContext = {
    version: '0',
    createEngine: async (options) => (await openMeasuredEngine(options)).engine,
    stdout: { write: (text) => (out += text) },
    stderr: { write: (text) => (err += text) },
    readStdin: () => Promise.reject(new Error('nothing to read')),
    signals: process,
    exitNow: () => undefined,
  };
  const code = await runCli(['bench', 'tiers', ...args], context, [benchCommand(openMeasuredEngine)]);
  return { code, out, err };
}

describe('kvasir bench tiers', () => {
  it('has rows for storing to and loading from host memory and the disk, each with its limit', async () => {
    const storage = mkdtempSync(folder.file('storage-'));
    const sizes = '--blocks 5 --block-bytes 10000 --repetitions 2 --json'.split(' ');
    const { code, out, err } = await kvasir('--kv-tier', `disk:${storage}`, ...sizes);
    expect({ code, err }).toMatchObject({ code: 0 });
    expect(err).toMatch(/host load +[\d.e-]+ +memcpy [\d.e-]+ +[\d.e-]+ +>= 0.8/);
    const { rows } = JSON.parse(out) as { rows: TierRow[] };
    expect(rows).toMatchObject([
      { tier: 'host', what: 'store', limit: 'memcpy', blocks: 5, blockBytes: 10_000, callsAtOnce: 1 },
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
    // The folders of the bench are removed.
    expect(readdirSync(storage)).toEqual([]);
  });

  it('refuses a tier that it does not know, and a second host tier', async () => {
    expect(await kvasir('--kv-tier', 'tape:/dev/st0')).toMatchObject({ code: 2, err: expect.stringContaining('tape') });
    const { code, err } = await kvasir('--kv-tier', 'host:1GiB');
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
