/**
 * Prompts that arrive together are computed together, also if a tier answers their look-ups one after the other. A prompt
 * that is admitted a step later is computed in small chunks beside the decodes of the others (ADR 12).
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { SchedulerConnector, SchedulerConnectorContext } from '../src/connector/connector.ts';
import { OffloadingConnector } from '../src/connector/offloading/offloading-connector.ts';
import { registerConnector } from '../src/connector/registry.ts';
import type { Tier, TierWrapping } from '../src/connector/tier/tier.ts';
import type { AsyncEngine } from '../src/engine/contract.ts';
import { promptOf } from './support/drive.ts';
import { openEngineWithTier } from './support/engine-with-tier.ts';
import { replacing } from './support/replacing.ts';

const requests = 6;
/** The look-ups that the test has not answered. */
const open: (() => void)[] = [];

/** The tier is empty, and answers when the test says so. */
const answersLater = (tier: Tier): Tier =>
  replacing(tier, {
    has: async (keys) => {
      await new Promise<void>((resolve) => void open.push(resolve));
      return keys.map(() => false);
    },
  });

class OffloadingOneByOne extends OffloadingConnector {
  override openScheduler(context: SchedulerConnectorContext & TierWrapping): Promise<SchedulerConnector> {
    return super.openScheduler({ ...context, wrapTier: answersLater });
  }
}
registerConnector('OffloadingOneByOne', async () => OffloadingOneByOne);

const folder = mkdtempSync(join(tmpdir(), 'kvasir-prompts-together-'));
let engine: AsyncEngine;
beforeAll(async () => {
  const tier = { type: 'FolderTier', module_path: 'dist/examples/folder-tier.js', folder };
  engine = await openEngineWithTier({ tier, connector: 'OffloadingOneByOne', maxNumSeqs: requests });
});
afterAll(async () => {
  await engine.close();
  rmSync(folder, { recursive: true, force: true });
});

/** The number of the engine's step that computed the last tokens of the prompt. */
async function stepOf(request: number): Promise<number> {
  const params = { maxTokens: 4, temperature: 0, ignoreEos: true };
  const steps: number[] = [];
  for await (const _ of engine.generate({ prompt: [...promptOf(40, request, 250)], params }))
    steps.push(engine.stats().steps);
  return steps[0]!;
}

/** Microtasks only, so that no timer fires. The engine would plan a step if it was woken. */
async function otherMicrotasks(): Promise<void> {
  for (let i = 0; i < 100; i++) await Promise.resolve();
}

it('prompts that arrive together are admitted together when the tiers have nothing', async () => {
  const ends = Array.from({ length: requests }, (_, i) => stepOf(i));
  while (open.length < requests) await nextTurn();
  for (const answer of open.splice(0)) {
    answer();
    await otherMicrotasks();
  }
  expect(new Set(await Promise.all(ends)).size).toBe(1);
});
