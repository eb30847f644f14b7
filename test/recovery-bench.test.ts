/** What `kvasir bench recovery` says of an engine that repairs more than was lost; in this process, so that the bug can be planted. */
import { mkdtempSync } from 'node:fs';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { isRowGood, measureRecovery, type RecoveryRow } from '../src/cli/bench/recovery.ts';
import { recoveryScenarios } from '../src/cli/bench/recovery-scenarios.ts';
import { createEngine } from '../src/compose.ts';
import { KvCache } from '../src/kv/kv-cache.ts';
import { ExternalKv } from '../src/scheduler/external-kv.ts';
import { type PlantedBug, plant, plantedBugs } from './support/planted-bugs.ts';
import { smallDemo } from './support/small-demo.ts';
import { temporaryFolder } from './support/tiny-model.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

let takeOut = (): void => undefined;
afterEach(() => takeOut());

/** Rows whose faults take blocks away: by a plan, and by a limit, where only the witness at the store knows which. */
async function rows(bug?: PlantedBug): Promise<RecoveryRow[]> {
  if (bug !== undefined) takeOut = plant(bug, { KvCache, ExternalKv });
  const names = ['no store', 'missing', 'hang'];
  return measureRecovery(
    {
      engine: { ...smallDemo, enablePrefixCaching: true },
      blockSize: 16,
      seed: 5,
      requests: 4,
      prefixes: 2,
      prefixLength: 96,
      promptLength: 20,
      generateLength: 4,
      scenarios: recoveryScenarios(0.3).filter(({ name }) => names.some((start) => name.startsWith(start))),
      repetitions: 1,
      folder: mkdtempSync(folder.file('bench-')),
      openEngine: createEngine,
      killWriter: () => Promise.reject(new Error('no scenario here kills a writer')),
      onProgress: () => undefined,
    },
    new AbortController().signal,
  );
}

describe('bench recovery', () => {
  it('finds an engine that computes what was lost and nothing else', async () => {
    const [noStore, missing, hang] = await rows();
    expect([noStore, missing, hang].map((row) => isRowGood(row!))).toEqual([true, true, true]);
    // Two beginnings once, four tails, and all generated tokens but the last.
    expect(noStore).toMatchObject({ computedTokens: 2 * 96 + 4 * 20 + 4 * 3, minimumTokens: 284 });
    expect(missing!.failedTokens).toBeGreaterThan(0);
    expect(hang!.failedTokens).toBeGreaterThan(0);
  });

  it.each(plantedBugs)('finds the bug %s, although all texts are equal', async (bug) => {
    const [noStore, ...faulty] = await rows(bug);
    expect(isRowGood(noStore!)).toBe(true);
    for (const row of faulty) {
      expect(row).toMatchObject({ textsEqual: 4, requestsLost: 0 });
      expect(row.overMinimum, row.name).toBeGreaterThan(0);
      expect(isRowGood(row)).toBe(false);
    }
  });
});
