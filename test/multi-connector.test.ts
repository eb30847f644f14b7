/** Several connectors in one engine, on real weights: no fault of one of them changes a text, and the other one's blocks are loaded. */
import { readdirSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { JsonObject } from '../src/base/json.ts';
import { createEngine } from '../src/compose.ts';
import type { AsyncEngine } from '../src/engine/contract.ts';
import type { KvAdministration } from '../src/engine/kv-administration-contract.ts';
import type { EngineOptions } from '../src/engine/options.ts';
import { promptOf } from './support/drive.ts';
import { inLongForm } from './support/long-form.ts';
import { temporaryFolder } from './support/tiny-model.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());
const engines: AsyncEngine[] = [];
afterEach(async () => {
  for (const engine of engines.splice(0)) await engine.close();
});
let serial = 0;
const newFolder = (): string => folder.file(`${serial++}`);
const patience = { timeout: 60_000 };

const blockTokens = 16;
const prompts = [0, 1, 2].map((seed) => [...promptOf(200, 10 + seed, 250)]);
const seconds = { lookup_timeout_seconds: 60, load_timeout_seconds: 60, save_timeout_seconds: 60 };
const directory = (path: string, more: JsonObject = {}): JsonObject => ({
  kv_connector: 'SharedStorageConnector',
  kv_connector_extra_config: { shared_storage_path: path, ...seconds, ...more },
});
const hostAndDisk = (path: string, more: JsonObject = {}): JsonObject => ({
  kv_connector: 'OffloadingConnector',
  kv_connector_extra_config: {
    tiers: ['host:64MiB', `disk:${path}:1GiB`],
    kv_load_policy: 'always',
    busy_write_share: 1,
    ...seconds,
    ...more,
  },
});

async function open(
  connectors: readonly JsonObject[] | undefined,
  options: Partial<EngineOptions> = {},
): Promise<AsyncEngine> {
  const kvTransferConfig = {
    kv_connector: 'MultiConnector',
    kv_role: 'kv_both',
    kv_connector_extra_config: { connectors: connectors ?? [] },
  };
  const engine = await createEngine({
    model: 'models/kvasir-demo.gguf',
    threads: 1,
    kvCacheMemory: 4 << 20,
    maxModelLen: 512,
    maxNumBatchedTokens: 64,
    ...options,
    ...(connectors === undefined ? {} : { kvTransferConfig }),
  });
  engines.push(engine);
  return engine;
}

/** The tokens with log probabilities, greedy and seeded, all requests at once. `loaded`: tokens by place. */
async function ask(engine: AsyncEngine): Promise<{ readonly text: string; readonly loaded: Record<string, number> }> {
  const loaded: Record<string, number> = {};
  const one = async (prompt: number[], i: number): Promise<unknown> => {
    const sampling = i === 0 ? { temperature: 0 } : { temperature: 0.8, seed: BigInt(i) };
    const parts: unknown[] = [];
    const params = { maxTokens: 24, ignoreEos: true, logprobs: 1, ...sampling };
    for await (const { tokenIds, logprobs, stats, finish } of engine.generate({ prompt, params })) {
      parts.push(...tokenIds, logprobs);
      if (finish === undefined) continue;
      for (const [place, tokens] of Object.entries(stats.loadedTokens ?? {}))
        loaded[place] = (loaded[place] ?? 0) + tokens;
    }
    return parts.flat();
  };
  return { text: JSON.stringify(await Promise.all(prompts.map(one))), loaded };
}

const hybrid: Partial<EngineOptions> = { model: 'models/kvasir-hybrid.gguf', kvCacheMemory: 24 << 20 };
const kinds = inLongForm<readonly (readonly [string, Partial<EngineOptions>])[]>(
  [
    ['the demo model', {}],
    ['windows and states', hybrid],
    ['two ranks', { pipelineParallelSize: 2 }],
  ],
  [['windows and states on two ranks', { ...hybrid, pipelineParallelSize: 2 }]],
);

describe.each(kinds)('the texts stay the same with %s', (_, options) => {
  const [first, second] = [newFolder(), newFolder()];
  let expected: string;
  beforeAll(async () => {
    const alone = await open(undefined, options);
    expected = (await ask(alone)).text;
    await alone.close();
    const writer = await open([directory(first), directory(second)], options);
    expect((await ask(writer)).text).toBe(expected);
    await writer.close();
    engines.length = 0;
  });

  const faults = ['missing', 'bitFlip', 'truncated', 'error', 'partial', 'slow'].map((fault) => ({
    fault,
    probability: 0.15,
    delay_ms: 20,
  }));
  const rules = [
    ...faults,
    { fault: 'error', on: 'has', probability: 0.2 },
    { fault: 'error', on: 'store', probability: 0.2 },
  ];
  it.each([
    ['the first', [true, false]],
    ['the second', [false, true]],
    ['both', [true, true]],
  ] as const)('and faults of %s', async (_, hasFaults) => {
    for (const async_load of inLongForm([true, false], [true])) {
      // Without faults, the first connector has no blocks: else it would load all.
      const connectors = [hasFaults[0] ? first : newFolder(), second].map((path, i) =>
        directory(path, { async_load, ...(hasFaults[i] ? { fault_injection: { seed: i, rules } } : {}) }),
      );
      const engine = await open(connectors, options);
      const { text, loaded } = await ask(engine);
      expect(text).toBe(expected);
      const { counters, failedLoads } = engine.stats().transfers;
      const injected = Object.keys(counters).filter((name) => name.includes('injected.'));
      for (const [i, has] of hasFaults.entries())
        expect(injected.some((name) => name.startsWith(`tier.c${i}-`))).toBe(has);
      expect(failedLoads).toBeGreaterThan(0);
      expect(loaded['c1-shared-storage']).toBeGreaterThan(0);
      await engine.close();
    }
  });

  it('and a first connector that has lost every block: the second has them all', async () => {
    const [empty, more] = [newFolder(), { kvCacheMemory: options.kvCacheMemory ?? 4 << 20 }];
    const engine = await open([hostAndDisk(empty), directory(second)], { ...options, ...more });
    const { text, loaded } = await ask(engine);
    expect(text).toBe(expected);
    expect(Object.keys(loaded)).toEqual(['c1-shared-storage']);
    // It has them again.
    const lookUp = () => engine.kv!.lookup({ prompt: prompts[0]! });
    await expect.poll(async () => (await lookUp()).tokens['c0-disk'], patience).toBe((await lookUp()).tokens.pool);
    await engine.close();
    const alone = await open([hostAndDisk(empty)], options);
    expect((await ask(alone)).text).toBe(expected);
    expect(alone.stats().transfers.connector.loadedBlocks).toBeGreaterThan(0);
  });
});

describe('orders for the tiers of a list', () => {
  const prompt = prompts[0]!;
  const cached = Math.floor(prompt.length / blockTokens) * blockTokens;
  const kvOf = ({ kv }: AsyncEngine): KvAdministration => kv!;
  const request = (cacheSalt?: string) => ({
    prompt,
    params: { maxTokens: 1, ignoreEos: true },
    ...(cacheSalt === undefined ? {} : { cacheSalt }),
  });
  const run = async (engine: AsyncEngine, cacheSalt?: string): Promise<void> => {
    for await (const _ of engine.generate(request(cacheSalt)));
  };
  const files = (root: string): number =>
    readdirSync(root, { recursive: true }).filter((name) => `${name}`.endsWith('.kv')).length;

  it('look-ups, prefetches, pins, removals and clears reach each tier by its name in the list', async () => {
    const [a, b] = [newFolder(), newFolder()];
    const engine = await open([hostAndDisk(a), directory(newFolder()), hostAndDisk(b)]);
    const kv = kvOf(engine);
    const tiers = ['c0-host', 'c0-disk', 'c2-host', 'c2-disk'];
    expect(kv.tiers()).toEqual(tiers);
    await run(engine);
    const tokens = async () => (await kv.lookup({ prompt })).tokens;
    const everywhere = Object.fromEntries(['pool', ...tiers].map((tier) => [tier, cached]));
    await expect.poll(tokens, patience).toEqual(everywhere);

    expect(await kv.pin({ prompt }, { places: ['c0-host', 'c2-host'] })).toMatchObject({
      tiers: { 'c0-host': { blocks: cached / blockTokens }, 'c2-host': { blocks: cached / blockTokens } },
    });
    expect(Object.keys(await kv.tierPins())).toEqual(
      tiers.filter((tier) => tier.endsWith('host') || tier.endsWith('disk')),
    );
    expect(await kv.unpin({ prompt })).toBeDefined();

    const removed = await kv.remove({ prompt }, { places: ['pool', 'c0-host', 'c2-host', 'c2-disk'] });
    expect(Object.keys(removed)).toEqual(['pool', 'c0-host', 'c2-disk', 'c2-host']);
    expect(await tokens()).toEqual({ ...everywhere, pool: 0, 'c0-host': 0, 'c2-host': 0, 'c2-disk': 0 });
    const fetched = await kv.prefetch({ prompt }, { to: 'host' });
    expect(fetched).toMatchObject({ tokensBefore: 0, tokensAfter: cached, failedBlocks: 0 });
    expect(await tokens()).toMatchObject({ pool: 0, 'c0-host': cached, 'c2-host': 0 });
    expect(await kv.prefetch({ prompt })).toMatchObject({ tokensAfter: cached, loadedTokens: { 'c0-host': cached } });
    // What one connector loads, the others store.
    await expect.poll(tokens, patience).toEqual(everywhere);

    const before = files(b);
    expect(await kv.clearTier('c2-disk')).toMatchObject({ blocks: before, failed: 0 });
    expect([files(a), files(b)]).toEqual([before, 0]);
    for (const unknown of ['disk', 'c1-host', 'c7-disk'])
      await expect(kv.clearTier(unknown)).rejects.toMatchObject({ code: 'KVASIR_TIER_UNKNOWN' });
    for (const host of ['c0-host', 'c2-host'])
      await expect(kv.detachTier(host)).rejects.toMatchObject({ code: 'KVASIR_TIER_UNKNOWN' });
    await kv.attachTier('c2-more', `disk:${newFolder()}:1GiB`);
    expect(kv.tiers()).toEqual([...tiers, 'c2-more']);
    await expect(kv.attachTier('more', `disk:${newFolder()}:1GiB`)).rejects.toMatchObject({
      code: 'KVASIR_TIER_UNKNOWN',
    });
    await kv.detachTier('c2-more');
    expect(kv.tiers()).toEqual(tiers);
  });

  it('blocks of a salt that another connector has loaded are cleared with their salt', async () => {
    const path = newFolder();
    const writer = await open([directory(path)]);
    await run(writer, 'a');
    await writer.close();
    const engine = await open([hostAndDisk(newFolder()), directory(path)]);
    await run(engine, 'a');
    const kv = kvOf(engine);
    const inHost = async () => (await kv.lookup({ prompt, cacheSalt: 'a' })).tokens['c0-host'];
    await expect.poll(inHost, patience).toBe(cached);
    expect((await kv.clearTier('c0-host', { cacheSalt: 'b' })).blocks).toBe(0);
    expect((await kv.clearTier('c0-host', { cacheSalt: 'a' })).blocks).toBe(cached / blockTokens);
  });
});
