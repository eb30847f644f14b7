/**
 * Models with recurrent states: their layers are in a state group over the same pool as K and V. A request holds few states at a time,
 * continues from any checkpoint with the same bits, and after lost blocks computes only what the remaining checkpoints do not cover.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { groupOfKey } from '../src/connector/block-key.ts';
import { faultRule } from '../src/connector/fault/fault-rules.ts';
import { Drive, promptOf } from './support/drive.ts';
import type { StoredBlocks } from './support/memory-connector.ts';
import { RecoveryHarness, type RunResult } from './support/recovery-harness.ts';
import { temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());
const path = folder.file('lfm2.gguf');
beforeAll(() => writeTinyModel(path, { architecture: 'lfm2', type: 'Q8_0' }));

describe('a prefix hit', () => {
  it('has the same bits if another request computes the prefix in the same step', async () => {
    const drive = await Drive.open(path, { stateCheckpointTokens: 16 });
    const shared = promptOf(96, 2);
    const requests = [1, 2, 3].map((i) => ({
      id: `${i}`,
      prompt: [...shared, ...promptOf(20 * i, 10 + i)],
      params: { maxTokens: 6 },
    }));
    const together = await drive.run(requests);
    expect(together.get('3')!.stats?.cachedTokens).toBe(96);
    for (const request of requests) {
      const alone = (await drive.run([request])).get(request.id)!;
      const { tokens, logits } = together.get(request.id)!;
      expect({ tokens, logits }).toEqual({ tokens: alone.tokens, logits: alone.logits });
    }
    await drive.close();
  });
});

describe('a long request', () => {
  it('holds at most three states per state group beside the blocks of one step', async () => {
    const drive = await Drive.open(path, { stateCheckpointTokens: 64 });
    const subject = { id: 'subject', prompt: promptOf(2000, 3), params: { maxTokens: 4 } };
    const trace = (await drive.run([subject], { maxNumBatchedTokens: 64 })).get('subject')!;
    expect(trace.tokens).toHaveLength(4);
    expect(drive.mostReferenced).toBeLessThanOrEqual(Math.ceil(2004 / 16) + 3);
    await drive.close();
  });
});

/** A prompt with checkpoints after 32, 64 and 96 tokens. */
const request = { prompt: [...promptOf(120, 4)], params: { maxTokens: 5, temperature: 0, ignoreEos: true } };
const keysOf = (stored: StoredBlocks, group: number) =>
  [...new Set(stored.flatMap((blocks) => [...blocks.keys()]))].filter((key) => groupOfKey(key) === group);

describe.each([1, 2])('stored states on %i ranks', (ranks) => {
  let harness: RecoveryHarness;
  let saved: RunResult;

  beforeAll(async () => {
    harness = await RecoveryHarness.open(path, ranks);
    saved = await harness.run({ requests: [request], store: { mode: 'async' } });
    return () => harness.close();
  });
  let again: RunResult;
  const run = async (stored: StoredBlocks, mode: 'sync' | 'async'): Promise<number> => {
    again = await harness.run({ requests: [request], store: { mode, stored } });
    return again.stats.computedTokens - 4;
  };
  const without = (isLost: (group: number, n: number) => boolean): StoredBlocks => {
    const lost = new Set([0, 1].flatMap((group) => keysOf(saved.stored, group).filter((_, n) => isLost(group, n))));
    return saved.stored.map((blocks) => new Map([...blocks].filter(([key]) => !lost.has(key))));
  };
  afterEach(() => {
    expect(again.completions[0]!.text).toBe(saved.completions[0]!.text);
    for (const [rank, blocks] of again.stored.entries())
      for (const [key, bytes] of blocks) expect(bytes).toEqual(saved.stored[rank]!.get(key));
  });

  it('are checkpoints and blocks of K and V, on the ranks that have their layers', () => {
    expect([0, 1].map((group) => keysOf(saved.stored, group).length)).toEqual([7, 3]);
    // Of two ranks, the first has no layer with attention.
    const groups = saved.stored.map((blocks) =>
      [...new Set([...blocks.keys()].map(groupOfKey))].toSorted((a, b) => a - b),
    );
    expect(groups).toEqual(ranks === 1 ? [[0, 1]] : [[1], [0, 1]]);
    again = saved;
  });

  it.each(['sync', 'async'] as const)('are loaded from the last checkpoint on: %s', async (mode) => {
    expect(await run(saved.stored, mode)).toBe(120 - 96);
  });

  it.each(['sync', 'async'] as const)('cost a lost checkpoint the tokens since the one before: %s', async (mode) => {
    expect(
      await run(
        without((group, n) => group === 1 && n === 2),
        mode,
      ),
    ).toBe(120 - 64);
    expect(
      await run(
        without((group, n) => group === 1 && n > 0),
        mode,
      ),
    ).toBe(120 - 32);
    expect(
      await run(
        without((group) => group === 1),
        mode,
      ),
    ).toBe(120);
  });

  it.each(['sync', 'async'] as const)('that are corrupt are replaced by the checkpoint before: %s', async (mode) => {
    const withCorrupt = async (isBad: (group: number, n: number) => boolean): Promise<number> => {
      const keys = [0, 1].flatMap((group) => keysOf(saved.stored, group).filter((_, n) => isBad(group, n)));
      const rules = [faultRule({ fault: 'bitFlip', on: 'load', keys })];
      const faults = Array.from({ length: ranks }, () => ({ seed: 1, rules }));
      again = await harness.run({ requests: [request], store: { mode, stored: saved.stored, faults } });
      expect(again.failedBlocks).toBeGreaterThan(0);
      return again.stats.computedTokens - 4;
    };
    expect(await withCorrupt((group, n) => group === 1 && n === 2)).toBe(120 - 64);
    expect(await withCorrupt((group, n) => group === 1 && n > 0)).toBe(120 - 32);
    expect(await withCorrupt((group) => group === 1)).toBe(120);
    expect(await withCorrupt((group, n) => group === 0 && n === 3)).toBe(32 + (120 - 96));
  });

  it('cost a lost block of K and V the tokens since the checkpoint before, and then the tokens since the last', async () => {
    expect(
      await run(
        without((group, n) => group === 0 && n === 3),
        'sync',
      ),
    ).toBe(16 + 16 + (120 - 96));
  });
});
