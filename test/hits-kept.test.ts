/**
 * The engine loads KV that a store has and does not compute it again. The tests use whole engines and a real directory. Cases:
 * after a preemption, after a worker's death, beside an unreadable folder, and after another program has emptied the directory.
 */
import { existsSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type MeasuredEngine, openMeasuredEngine } from '../src/compose.ts';
import type { RequestStats } from '../src/core/request.ts';
import type { AsyncEngine } from '../src/engine/contract.ts';
import type { EngineOptions } from '../src/engine/options.ts';
import { buildCommand } from './support/cli-process.ts';
import { promptOf } from './support/drive.ts';
import { allGone, childrenOf } from './support/processes.ts';
import { temporaryFolder } from './support/tiny-model.ts';

const folder = temporaryFolder();
const opened: MeasuredEngine[] = [];
beforeAll(buildCommand);
afterEach(async () => {
  for (const { engine } of opened.splice(0)) await engine.close();
  await allGone(childrenOf(process.pid));
});
afterAll(() => folder.remove());

/** On a busy machine, the threads of a worker that starts read its blocks late. */
const patient = { lookup_timeout_seconds: 60, load_timeout_seconds: 60, save_timeout_seconds: 60 };

async function open(store: string, options: Partial<EngineOptions> = {}, extra: object = {}): Promise<MeasuredEngine> {
  const measured = await openMeasuredEngine(
    {
      model: 'models/kvasir-demo.gguf',
      threads: 1,
      kvCacheMemory: 16 << 20,
      maxModelLen: 1024,
      ...options,
      kvTransferConfig: {
        kv_connector: 'SharedStorageConnector',
        kv_role: 'kv_both',
        kv_connector_extra_config: { shared_storage_path: store, ...patient, ...extra },
      },
    },
    { startsMax: Infinity, withinMs: 60_000, backoffMs: 0 },
  );
  opened.push(measured);
  return measured;
}

async function answer(
  engine: AsyncEngine,
  seed: number,
  promptTokens: number,
  maxTokens: number,
  onToken?: () => void,
) {
  const tokens: number[] = [];
  let stats: RequestStats | undefined;
  const request = {
    prompt: [...promptOf(promptTokens, seed, 250)],
    params: { maxTokens, temperature: 0, ignoreEos: true },
  };
  for await (const delta of engine.generate(request)) {
    tokens.push(...delta.tokenIds);
    stats = delta.stats;
    onToken?.();
  }
  return { tokens, stats: stats! };
}

const filesOf = (store: string): string[] =>
  existsSync(store)
    ? readdirSync(store, { recursive: true, encoding: 'utf8' })
        .filter((name) => name.endsWith('.kv'))
        .map((name) => join(store, name))
    : [];
/** Waits until no transfer is open. */
const settled = (engine: AsyncEngine) => expect.poll(() => engine.stats().transfers.open, { interval: 5 }).toBe(0);
const loadedBlocks = (engine: AsyncEngine): number => engine.stats().transfers.counters.loadedBlocks ?? 0;
const stop = async (measured: MeasuredEngine): Promise<void> => {
  await settled(measured.engine);
  opened.splice(opened.indexOf(measured), 1);
  await measured.engine.close();
};

describe('an engine with a store', () => {
  it('loads all other blocks when a folder of the store is unreadable, and reports the folder once', async () => {
    const store = folder.file('unreadable');
    const writer = await open(store);
    const expected = await answer(writer.engine, 1, 960, 4);
    await stop(writer);
    const files = filesOf(store);
    const unreadable = dirname(files[0]!);
    const missing = files.filter((file) => dirname(file) === unreadable).length;
    rmSync(unreadable, { recursive: true });
    // A symbolic link to itself: no user can follow it, not even root.
    symlinkSync(basename(unreadable), unreadable);
    const events: string[] = [];
    const { engine } = await open(store, { onEvent: ({ message }) => void events.push(message) });
    const { tokens, stats } = await answer(engine, 1, 960, 4);
    expect(tokens).toEqual(expected.tokens);
    expect(loadedBlocks(engine)).toBeGreaterThanOrEqual(60 - 1 - missing);
    expect(stats.externalTokens).toBeGreaterThan(0);
    expect(events.filter((text) => text.includes(`${unreadable} cannot be read (ELOOP)`))).toHaveLength(1);
  });

  it('loads the stored blocks of running requests when a worker is killed', async () => {
    const store = folder.file('killed');
    const alone = await open(store, { pipelineParallelSize: 2 });
    const expected = await answer(alone.engine, 2, 800, 40);
    await stop(alone);
    const measured = await open(store, { pipelineParallelSize: 2 });
    const { engine } = measured;
    let tokens = 0;
    let loadedBefore = 0;
    const answered = await answer(engine, 2, 800, 40, () => {
      if (++tokens !== 20) return;
      loadedBefore = loadedBlocks(engine);
      process.kill(measured.processIds()[0]!, 'SIGKILL');
    });
    expect(answered.tokens).toEqual(expected.tokens);
    expect(engine.stats().transfers.recoveries).toBeGreaterThan(0);
    // 50 blocks of the prompt on two ranks; blocks of output tokens may be stored or not.
    expect(loadedBlocks(engine) - loadedBefore).toBeGreaterThanOrEqual(2 * 50);
    expect(answered.stats.recomputedTokens).toBeLessThan(40);
  });

  it('loads the blocks that a preempted request has saved, long after its first lookup', async () => {
    const store = folder.file('preempted');
    // The two requests need 76 blocks; the pool evicts some blocks of the preempted request.
    const kvCacheMemory = 64 * 48 * 1024;
    const { engine } = await open(store, { kvCacheMemory, maxModelLen: 640 }, { lookup_timeout_seconds: 0.05 });
    await Promise.all([answer(engine, 3, 100, 500), answer(engine, 4, 100, 500)]);
    const { preemptions } = engine.stats();
    expect(preemptions).toBeGreaterThan(0);
    expect(loadedBlocks(engine)).toBeGreaterThan(0);
  });

  it('stores recomputed blocks again after another program has emptied the directory', async () => {
    const store = folder.file('emptied');
    const { engine } = await open(store, { enablePrefixCaching: true });
    await answer(engine, 5, 320, 2);
    await settled(engine);
    const files = filesOf(store);
    expect(files.length).toBeGreaterThanOrEqual(20);
    for (const file of files) rmSync(file);
    // Other prompts fill the pool, which evicts the blocks of the first.
    const { total } = engine.stats().blocks;
    for (let seed = 100; (seed - 100) * 60 < total; seed++) await answer(engine, seed, 960, 1);
    await answer(engine, 5, 320, 2);
    await settled(engine);
    expect(files.filter((file) => !existsSync(file))).toEqual([]);
  });
});
