import { mkdtempSync, readdirSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { HostTier } from '../../src/connector/tier/host/tier-host.ts';
import { suiteIdentity } from '../../src/connector/tier/tier.suite.ts';
import { runBench } from '../../test/support/run-bench.ts';
import { temporaryFolder, writeTinyModel } from '../../test/support/tiny-model.ts';
import type { TransferRow } from './command.ts';
import { blockKeys, TransferHarness } from './transfer-rig.ts';

const folder = temporaryFolder();
const model = folder.file('tiny.gguf');
beforeAll(() => writeTinyModel(model, { architecture: 'qwen3', type: 'Q8_0' }));
afterAll(() => folder.remove());

it('bench transfer has rows for the tiers, the first token from disk, and the cost of a connector', async () => {
  const storage = mkdtempSync(folder.file('storage-'));
  const engine = ['--model', model, '--threads', '1', '--kv-cache-memory', '16MiB', '--storage-path', storage];
  const lengths = '--blocks 6 --prefix-len 200 --requests 2 --prompt-len 40 --gen-len 4 --repetitions 1'.split(' ');
  const { code, out, err } = await runBench('transfer', ...engine, ...lengths, '--json');
  expect({ code, err }).toMatchObject({ code: 0 });
  expect(err).toMatch(/first token after 192 from disk, ms +[\d.]+ +recomputed [\d.]+/);
  // Only the warnings of a busy machine are allowed: tests run beside each other.
  expect(err).not.toMatch(/warning: (?!the machine is busy|other work used|A prompt and its output have at most)/);
  const { rows } = JSON.parse(out) as { rows: TransferRow[] };
  expect(rows).toMatchObject([
    { kind: 'tier', tier: 'host', what: 'save', blocks: 6, blockBytes: 16 * 2 * 2 * 128 * 2 },
    { kind: 'tier', tier: 'host', what: 'load', limit: 'memcpy' },
    { kind: 'tier', tier: 'disk', what: 'save', limit: 'fs.write' },
    { kind: 'tier', tier: 'disk', what: 'load', limit: 'fs.read' },
    { kind: 'firstToken', prefixLength: 192 },
    { kind: 'connectorCost', requests: 2, blocks: 2 * Math.floor((40 + 4 - 1) / 16) },
  ]);
  for (const row of rows) {
    if (row.kind === 'tier') expect(row.gigabytesPerSecond.ratio).toBeGreaterThan(0);
    if (row.kind === 'firstToken') expect(row.speedup).toBeCloseTo(row.recomputeMs / row.diskMs, 1);
    if (row.kind === 'connectorCost') {
      expect(row.throughput.ratio).toBeGreaterThan(0);
      expect(row.writeOnlyRatio).toBeLessThan(1);
    }
  }
  // The stored blocks are removed.
  expect(readdirSync(storage)).toEqual([]);
});

it('a failed transfer names its tier and the reason', async () => {
  const block = new Uint8Array(suiteIdentity.blockBytes);
  const harness = new TransferHarness(new HostTier({ identity: suiteIdentity, maxBytes: 1e6 }), suiteIdentity, [
    block,
    block,
  ]);
  const [known, unknown] = blockKeys(2, 1);
  await harness.save([known!], 0);
  await harness.load([known!], 1);
  await expect(harness.load([unknown!], 1)).rejects.toThrow('A transfer to or from host failed: missing.');
  await harness.close();
});
