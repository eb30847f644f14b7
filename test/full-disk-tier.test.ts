/** A disk tier at its bound below a busy engine: its folder never has more bytes, and decoding goes on while stores hang. */
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import type { JsonObject } from '../src/base/json.ts';
import type { AsyncEngine } from '../src/engine/contract.ts';
import { buildCommand } from './support/cli-process.ts';
import { promptOf } from './support/drive.ts';
import { openEngineWithTier } from './support/engine-with-tier.ts';
import { closeGate, openGate, waitingCalls } from './support/gated-disk.ts';
import { inLongForm } from './support/long-form.ts';
import { temporaryFolder } from './support/tiny-model.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());
// Threads of the disk tier need the built files.
beforeAll(buildCommand);

const promptCount = inLongForm(30, 16);
const engines: AsyncEngine[] = [];
afterEach(async () => {
  openGate();
  for (const engine of engines.splice(0)) await engine.close();
});

async function open(tier?: JsonObject): Promise<AsyncEngine> {
  // A store that hangs must not end at its deadline.
  const engine = await openEngineWithTier({ tier, hostBytes: 1_500_000, maxNumSeqs: 4, timeouts: { save: 600 } });
  engines.push(engine);
  return engine;
}

async function ask(engine: AsyncEngine, i: number): Promise<readonly number[]> {
  const tokens: number[] = [];
  const params = { maxTokens: 12, temperature: 0, ignoreEos: true };
  for await (const { tokenIds } of engine.generate({ prompt: [...promptOf(100 + (i % 7) * 16, i, 250)], params }))
    tokens.push(...tokenIds);
  return tokens;
}

/** Each prompt twice, four at a time. */
async function askAll(engine: AsyncEngine): Promise<(readonly number[])[]> {
  const answers: (readonly number[])[] = [];
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < 2 * promptCount) {
      const i = next++;
      answers[i] = await ask(engine, i % promptCount);
    }
  };
  await Promise.all([worker(), worker(), worker(), worker()]);
  return answers;
}

let expected: (readonly number[])[];
beforeAll(async () => {
  expected = await askAll(await open());
  for (const engine of engines.splice(0)) await engine.close();
});

/** The bytes of all blocks and temporary files. A file may be removed meanwhile. */
function bytesBelow(path: string): number {
  let bytes = 0;
  for (const name of readdirSync(path, { recursive: true, encoding: 'utf8' }))
    if (/\.(kv|tmp)$/.test(name)) bytes += statSync(join(path, name), { throwIfNoEntry: false })?.size ?? 0;
  return bytes;
}

const countOf = (engine: AsyncEngine, name: string): number => engine.stats().transfers.counters[name] ?? 0;

it('the folder never has more bytes than its bound while many requests store and load', async () => {
  const path = folder.file('bounded');
  const maxBytes = 2_000_000;
  const engine = await open({ type: 'fs', root_dir: path, max_bytes: maxBytes });
  const sizes: number[] = [];
  let isOver: boolean = false;
  const measuring = (async () => {
    while (!isOver) {
      sizes.push(bytesBelow(path));
      await sleep(5);
    }
  })();
  const answers = await askAll(engine);
  // Writes may wait while the machine is busy and the engine computes, so the engine rests after each request.
  for (let i = 0; countOf(engine, 'tier.disk.evicted') === 0; i++) {
    await ask(engine, i);
    await sleep(100);
  }
  isOver = true;
  await measuring;
  expect(answers).toEqual(expected);
  expect(Math.max(...sizes)).toBeLessThanOrEqual(maxBytes);
  expect(sizes.length).toBeGreaterThan(10);
  // The folder was full: blocks were evicted.
  expect(Math.max(...sizes)).toBeGreaterThan(0.9 * maxBytes);
});

it('all requests end while every store hangs: blocks wait in a bounded queue, and the others are dropped', async () => {
  const path = folder.file('hung');
  const tier = {
    type: 'GatedDisk',
    module_path: 'dist/test/support/gated-disk.js',
    folder: path,
    max_bytes: 2_000_000,
  };
  const engine = await open(tier);
  closeGate();
  expect(await askAll(engine)).toEqual(expected);
  // All requests have ended, and no store has written.
  expect(waitingCalls()).toBeGreaterThan(0);
  expect(bytesBelow(path)).toBe(0);
  expect(countOf(engine, 'tier.GatedDisk.storedBlocks')).toBe(0);
  expect(countOf(engine, 'tier.GatedDisk.dropped')).toBeGreaterThan(0);
  // Host memory still stores and evicts, because only blocks that are being written are pinned.
  expect(countOf(engine, 'tier.host.evicted')).toBeGreaterThan(0);
  openGate();
  // Stores go on. Steps report them, so a request is sent until they are reported.
  for (let i = 0; countOf(engine, 'tier.GatedDisk.storedBlocks') === 0; i++) await ask(engine, i % promptCount);
  expect(bytesBelow(path)).toBeGreaterThan(0);
});
