/** `engine.kv` on real weights: what orders about cached KV do, and that no text changes. */
import { readdirSync } from 'node:fs';
import { afterAll, describe, expect, it } from 'vitest';
import { writeAdapter } from '../bench/make-model/adapter-maker.ts';
import { createEngine, openMeasuredEngine } from '../src/compose.ts';
import { headerBytes } from '../src/connector/tier/block-header.ts';
import type { AsyncEngine } from '../src/engine/contract.ts';
import type { KvAdministration, PrefixRequest } from '../src/engine/kv-administration-contract.ts';
import type { EngineOptions } from '../src/engine/options.ts';
import { promptOf } from './support/drive.ts';
import { openEngineWithTier } from './support/engine-with-tier.ts';
import { temporaryFolder } from './support/tiny-model.ts';
import { until } from './support/until.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());
let serial = 0;
const newFolder = (): string => folder.file(`${serial++}`);
const prompt = [...promptOf(200, 1, 250)];
const other = [...promptOf(200, 2, 250)];
const blockTokens = 16;
const longPoll = { timeout: 60_000 };
const fullBlocks = Math.floor(prompt.length / blockTokens);

const openDisk = (root: string): Promise<AsyncEngine> => openEngineWithTier({ tier: { type: 'fs', root_dir: root } });

async function ask(engine: AsyncEngine, tokens: readonly number[] = prompt, more: Partial<PrefixRequest> = {}) {
  const output: number[] = [];
  let computed = 0;
  const request = { prompt: tokens, params: { maxTokens: 8, temperature: 0, ignoreEos: true }, ...more };
  for await (const delta of engine.generate(request)) {
    output.push(...delta.tokenIds);
    computed = delta.stats.computedTokens;
  }
  return { output, computed };
}

/** Of the demo model, with a header. */
const blockBytes = 48 * 1024 + headerBytes;

const files = (root: string): number =>
  readdirSync(root, { recursive: true }).filter((name) => `${name}`.endsWith('.kv')).length;
const kvOf = ({ kv }: AsyncEngine): KvAdministration => kv!;
const lookUp = (engine: AsyncEngine, tokens = prompt) => kvOf(engine).lookup({ prompt: tokens });

interface Kind {
  readonly title: string;
  readonly options: () => Promise<Partial<EngineOptions>>;
  readonly request: Partial<PrefixRequest>;
}
const kinds: readonly Kind[] = [
  {
    title: 'with a LoRA adapter',
    options: async () => {
      const path = folder.file('sql.gguf');
      await writeAdapter(path, 'models/kvasir-demo.gguf');
      return { loraModules: [{ name: 'sql', path }] };
    },
    request: { lora: 'sql' },
  },
  {
    title: 'with windows and states',
    options: async () => ({ model: 'models/kvasir-hybrid.gguf', kvCacheMemory: 16 << 20 }),
    request: {},
  },
];

describe('engine.kv', () => {
  it('says where the KV of a prompt is, loads it before its request, removes it, and the text stays the same', async () => {
    const root = newFolder();
    const first = await openDisk(root);
    expect(await lookUp(first)).toEqual({
      promptTokens: 200,
      tokens: { pool: 0, host: 0, disk: 0 },
      cachedTokens: 0,
      unanswered: [],
    });
    const { output } = await ask(first);
    await until(() => files(root) >= fullBlocks);
    const cached = fullBlocks * blockTokens;
    await expect.poll(async () => (await lookUp(first)).tokens.host, longPoll).toBe(cached);
    expect((await lookUp(first)).tokens).toEqual({ pool: cached, host: cached, disk: cached });
    expect((await lookUp(first, other)).cachedTokens).toBe(0);
    expect((await kvOf(first).lookup({ prompt, cacheSalt: 'another' })).cachedTokens).toBe(0);
    await first.close();

    const second = await openDisk(root);
    expect((await lookUp(second)).tokens).toEqual({ pool: 0, host: 0, disk: cached });
    const fetched = await kvOf(second).prefetch({ prompt }, { to: 'host' });
    expect(fetched).toMatchObject({ tokensBefore: 0, tokensAfter: cached, failedBlocks: 0 });
    expect((await lookUp(second)).tokens).toEqual({ pool: 0, host: cached, disk: cached });
    const prefetched = await kvOf(second).prefetch({ prompt });
    expect(prefetched).toMatchObject({ tokensBefore: 0, tokensAfter: cached, loadedTokens: { host: cached } });
    expect(await kvOf(second).prefetch({ prompt })).toMatchObject({ tokensBefore: cached, loadedTokens: {} });
    // A prefetch is no request of a client.
    expect(second.stats()).toMatchObject({ promptTokens: 0, computedTokens: 0, generatedTokens: 0 });
    const warm = await ask(second);
    expect(warm.output).toEqual(output);
    expect(warm.computed).toBe(prompt.length - cached + 7);

    await expect.poll(async () => (await lookUp(second)).tokens.disk, longPoll).toBe(cached);
    const removed = await kvOf(second).remove({ prompt });
    expect(removed).toMatchObject({
      pool: { blocks: fullBlocks, inUse: 0 },
      host: { blocks: fullBlocks, failed: 0 },
      disk: { blocks: fullBlocks, failed: 0 },
    });
    expect(removed.disk!.bytes).toBeGreaterThan(0);
    expect(await lookUp(second)).toMatchObject({ tokens: { pool: 0, host: 0, disk: 0 }, cachedTokens: 0 });
    const again = await ask(second);
    expect(again.output).toEqual(output);
    expect(again.computed).toBe(prompt.length + 7);
    expect(kvOf(second).counters()).toMatchObject({
      orders: { prefetch: 3, remove: 1 },
      removedBlocks: { disk: fullBlocks },
    });
    await second.close();
  });

  it('clears one tier, of all blocks or of old ones', async () => {
    const root = newFolder();
    const engine = await openDisk(root);
    const { output } = await ask(engine);
    await until(() => files(root) >= fullBlocks);
    expect(await kvOf(engine).clearTier('disk', { olderThanSeconds: 3600 })).toMatchObject({ blocks: 0, failed: 0 });
    const stored = files(root);
    const cleared = await kvOf(engine).clearTier('disk');
    expect(cleared).toMatchObject({ blocks: stored, failed: 0 });
    expect(cleared.bytes).toBeGreaterThan(0);
    expect(files(root)).toBe(0);
    expect((await lookUp(engine)).tokens).toMatchObject({ host: fullBlocks * blockTokens, disk: 0 });
    expect((await kvOf(engine).clearTier('host')).blocks).toBe(stored);
    expect((await lookUp(engine)).tokens).toMatchObject({ pool: fullBlocks * blockTokens });
    engine.cache?.reset();
    expect(await ask(engine)).toEqual({ output, computed: prompt.length + 7 });
    // Cleared blocks are stored again.
    await until(() => files(root) >= fullBlocks);
    // Blocks that stayed in host memory are not: only those of a new prompt come.
    await kvOf(engine).clearTier('disk');
    engine.cache?.reset();
    expect((await ask(engine)).computed).toBeLessThan(blockTokens + 8);
    await ask(engine, other);
    await expect.poll(async () => (await lookUp(engine, other)).tokens.disk, longPoll).toBe(fullBlocks * blockTokens);
    expect((await lookUp(engine)).tokens).toMatchObject({ host: fullBlocks * blockTokens, disk: 0 });
    await expect(kvOf(engine).clearTier('s3')).rejects.toMatchObject({ code: 'KVASIR_TIER_UNKNOWN' });
    await expect(kvOf(engine).remove({ prompt }, { places: ['tape'] })).rejects.toMatchObject({
      code: 'KVASIR_TIER_UNKNOWN',
    });
    await engine.close();
  });

  for (const { title, options, request } of kinds)
    it(`finds, removes, prefetches and clears the KV of a prompt ${title}`, async () => {
      const engine = await openEngineWithTier({
        tier: { type: 'fs', root_dir: newFolder() },
        options: await options(),
      });
      const kv = kvOf(engine);
      const place = () => kv.lookup({ prompt, ...request });
      const { output } = await ask(engine, prompt, request);
      const everywhere = (await place()).tokens.pool!;
      expect(everywhere).toBeGreaterThan(8 * blockTokens);
      await expect
        .poll(async () => (await place()).tokens, longPoll)
        .toEqual({ pool: everywhere, host: everywhere, disk: everywhere });
      if (request.lora !== undefined) expect((await lookUp(engine)).cachedTokens).toBe(0);
      await kv.remove({ prompt, ...request }, { places: ['pool', 'host'] });
      expect((await place()).tokens).toEqual({ pool: 0, host: 0, disk: everywhere });
      expect(await kv.prefetch({ prompt, ...request })).toMatchObject({ tokensBefore: 0, tokensAfter: everywhere });
      expect(await ask(engine, prompt, request)).toEqual({ output, computed: prompt.length - everywhere + 7 });
      await kv.clearTier('disk');
      await kv.remove({ prompt, ...request });
      expect(await place()).toMatchObject({ tokens: { pool: 0, host: 0, disk: 0 }, cachedTokens: 0 });
      expect(await ask(engine, prompt, request)).toEqual({ output, computed: prompt.length + 7 });
      await engine.close();
    });

  it('clears the blocks of one cache salt, in host memory and on a disk', async () => {
    const root = newFolder();
    const engine = await openDisk(root);
    const { output } = await ask(engine, prompt, { cacheSalt: 'a' });
    await ask(engine, prompt, { cacheSalt: 'b' });
    await until(() => files(root) >= 2 * fullBlocks);
    const stored = files(root);
    for (const tier of ['disk', 'host']) {
      const cleared = await kvOf(engine).clearTier(tier, { cacheSalt: 'a' });
      expect(cleared).toMatchObject({ blocks: stored / 2, failed: 0 });
    }
    expect(files(root)).toBe(stored / 2);
    engine.cache?.reset();
    expect(await ask(engine, prompt, { cacheSalt: 'a' })).toEqual({ output, computed: prompt.length + 7 });
    expect((await ask(engine, prompt, { cacheSalt: 'b' })).computed).toBeLessThan(blockTokens + 8);
    // Also blocks that an order has loaded.
    await kvOf(engine).clearTier('host');
    await kvOf(engine).prefetch({ prompt, cacheSalt: 'b' }, { to: 'host' });
    expect((await kvOf(engine).clearTier('host', { cacheSalt: 'b' })).blocks).toBe(fullBlocks);
    await engine.close();
  });

  it('a quota keeps the blocks of other salts, in host memory and on a disk, and no text changes', async () => {
    const root = newFolder();
    const quota = 10;
    const tier = { type: 'fs', root_dir: root, quota_bytes: quota * blockBytes };
    const engine = await openEngineWithTier({ tier });
    expect(engine.cache?.shape.blockBytes).toBe(blockBytes - headerBytes);
    const { output } = await ask(engine, prompt, { cacheSalt: 'a' });
    const { output: othersOutput } = await ask(engine, other, { cacheSalt: 'b' });
    for (let i = 0; i < 3; i++) await ask(engine, [...promptOf(200, 20 + i, 250)], { cacheSalt: 'b' });
    await ask(engine);
    const onDisk = async (salt: string | undefined, tokens = prompt) => {
      const { tokens: found } = await kvOf(engine).lookup({
        prompt: tokens,
        ...(salt === undefined ? {} : { cacheSalt: salt }),
      });
      return found.disk;
    };
    await until(() => files(root) >= 2 * quota + fullBlocks);
    await expect.poll(() => onDisk(undefined), longPoll).toBe(fullBlocks * blockTokens);
    expect(files(root)).toBe(2 * quota + fullBlocks);
    await kvOf(engine).clearTier('host');
    engine.cache?.reset();
    expect((await ask(engine, prompt, { cacheSalt: 'a' })).output).toEqual(output);
    expect((await ask(engine, other, { cacheSalt: 'b' })).output).toEqual(othersOutput);
    expect(await ask(engine)).toMatchObject({ output, computed: prompt.length - fullBlocks * blockTokens + 7 });
    await engine.close();
  });

  it('attaches and detaches a tier while requests run', async () => {
    const root = newFolder();
    const engine = await openEngineWithTier({ tier: { type: 'fs', root_dir: newFolder() } });
    const kv = kvOf(engine);
    const alone = await ask(engine);
    expect(kv.tiers()).toEqual(['host', 'disk']);
    await kv.attachTier('second', `disk:${root}:1GiB`);
    expect(kv.tiers()).toEqual(['host', 'disk', 'second']);
    for (const name of ['second', 'host'])
      await expect(kv.attachTier(name, `disk:${root}`)).rejects.toMatchObject({ code: 'KVASIR_TIER_NAME_TAKEN' });
    await expect(kv.attachTier('third', 'tape:/dev/st0')).rejects.toMatchObject({ code: 'KVASIR_TIER_SPEC_INVALID' });
    await expect(kv.attachTier('third', 'disk:/proc/nothing/here')).rejects.toMatchObject({
      code: 'KVASIR_STORAGE_UNUSABLE',
    });
    expect(kv.tiers()).toEqual(['host', 'disk', 'second']);
    const more = await ask(engine, other);
    await until(() => files(root) >= fullBlocks);
    engine.cache?.reset();
    await kv.clearTier('host');
    await kv.clearTier('disk');
    const running = [ask(engine, other), ask(engine)];
    const { failed } = await kv.detachTier('second');
    expect(failed).toBe(0);
    expect((await Promise.all(running)).map(({ output }) => output)).toEqual([more.output, alone.output]);
    expect(kv.tiers()).toEqual(['host', 'disk']);
    const stored = files(root);
    await ask(engine, [...promptOf(200, 3, 250)]);
    expect(files(root)).toBe(stored);
    // Two orders at once: one of them attaches the tier, and the other one does not end it.
    const both = await Promise.allSettled([1, 2].map(() => kv.attachTier('second', `disk:${root}:1GiB`)));
    expect(both.map(({ status }) => status)).toEqual(['fulfilled', 'rejected']);
    expect((await lookUp(engine, other)).tokens.second).toBe(fullBlocks * blockTokens);
    await kv.clearTier('host');
    engine.cache?.reset();
    expect((await ask(engine, other)).computed).toBeLessThan(blockTokens + 8);
    await engine.close();
  });

  it('orders reach ranks in their own processes, and a replaced process knows the tiers that were attached and detached', async () => {
    const root = newFolder();
    const { engine, processIds } = await openMeasuredEngine({
      model: 'models/kvasir-demo.gguf',
      threads: 1,
      kvCacheMemory: 6 << 20,
      maxModelLen: 512,
      pipelineParallelSize: 2,
      distributedExecutorBackend: 'mp',
      kvTransferConfig: {
        kvConnector: 'OffloadingConnector',
        kvRole: 'kv_both',
        kvConnectorExtraConfig: { tiers: ['host:64MiB'], kv_load_policy: 'always', busy_write_share: 1 },
      },
    });
    const kv = kvOf(engine);
    const killRank = async (): Promise<void> => {
      const before = processIds()[1]!;
      process.kill(before, 'SIGKILL');
      // A request finds out that the process is dead, and waits for the next one.
      await ask(engine, [...promptOf(20, 9, 250)]);
      expect(processIds()[1]).not.toBe(before);
    };
    await kv.attachTier('disk', `disk:${root}:1GiB`);
    const { output } = await ask(engine);
    await until(() => files(root) >= 2 * fullBlocks);
    const { name, tiers } = await kv.pin({ prompt }, { places: ['host', 'disk'] });
    expect([tiers.host, tiers.disk]).toMatchObject([{ blocks: fullBlocks }, { blocks: fullBlocks }]);
    const pinned = async () => Object.values(await kv.tierPins()).flatMap(({ pins }) => pins.map((pin) => pin.name));
    expect(await pinned()).toEqual([name, name]);
    await killRank();
    // The new process has no pins, so its part of the blocks may be evicted.
    expect(await pinned()).toEqual([]);
    await ask(engine, other);
    // The prompt of the replacement has a block, too.
    await expect.poll(async () => (await lookUp(engine, other)).tokens.disk, longPoll).toBe(fullBlocks * blockTokens);
    expect(await ask(engine)).toMatchObject({ output });
    const stored = files(root);
    expect(await kv.clearTier('disk')).toMatchObject({ blocks: stored / 2, failed: 0 });
    expect(files(root)).toBe(0);
    await kv.detachTier('disk');
    await killRank();
    await ask(engine, [...promptOf(200, 3, 250)]);
    expect((await lookUp(engine, other)).tokens).not.toHaveProperty('disk');
    await engine.close();
    expect(files(root)).toBe(0);
  });

  it('tiers do not evict a pinned prefix, until it is unpinned, and no text changes', async () => {
    const root = newFolder();
    const room = 4 * fullBlocks * blockBytes;
    const engine = await openEngineWithTier({ tier: { type: 'fs', root_dir: root, max_bytes: room }, hostBytes: room });
    const kv = kvOf(engine);
    const asked = await ask(engine);
    const places = ['host', 'disk'];
    const stored = async () => (({ host, disk }) => [host, disk])((await lookUp(engine)).tokens);
    const all = fullBlocks * blockTokens;
    await expect.poll(stored, longPoll).toEqual([all, all]);
    const pinned = await kv.pin({ prompt }, { places });
    const inTier = { blocks: pinned.neededBlocks, storedBlocks: fullBlocks };
    expect(pinned).toEqual({
      ...{ promptTokens: 200, neededBlocks: fullBlocks, name: pinned.name },
      tiers: { host: inTier, disk: inTier },
    });
    expect(kv.pins()).toMatchObject({ pins: [], blocks: 0 });
    const ofTier = { pins: [{ name: pinned.name, blocks: fullBlocks, ttlSeconds: 3600 }], blocks: fullBlocks };
    expect(await kv.tierPins()).toMatchObject({ host: ofTier, disk: ofTier });
    const evict = async (seed: number) => {
      for (let i = 0; i < 5; i++) {
        const tokens = [...promptOf(200, seed + i, 250)];
        await ask(engine, tokens);
        await expect.poll(async () => (await lookUp(engine, tokens)).tokens.disk, longPoll).toBe(all);
      }
    };
    await evict(300);
    expect(await stored()).toEqual([all, all]);
    expect((await lookUp(engine, [...promptOf(200, 300, 250)])).tokens).toMatchObject({ host: 0, disk: 0 });
    engine.cache?.reset();
    expect(await ask(engine)).toMatchObject({ output: asked.output, computed: prompt.length - all + 7 });
    // At most half of a tier: the rest of the second prompt and the third are not pinned.
    const [second, third] = [
      await kv.pin({ prompt: other }, { places }),
      await kv.pin({ prompt: [...promptOf(200, 5, 250)] }, { places }),
    ];
    expect([second, third].map(({ tiers }) => tiers.host!.blocks)).toEqual([fullBlocks, 0]);
    expect(third.tiers.disk).toEqual({ blocks: 0, storedBlocks: 0 });
    // Removed blocks are kept again when they are stored again.
    await kv.remove({ prompt });
    expect(await stored()).toEqual([0, 0]);
    await ask(engine);
    await expect.poll(stored, longPoll).toEqual([all, all]);
    await evict(400);
    expect(await stored()).toEqual([all, all]);
    expect(await kv.unpin(pinned.name!)).toBe(pinned.name);
    expect(await kv.unpin({ prompt })).toBeUndefined();
    await evict(500);
    expect(await stored()).toEqual([0, 0]);
    await expect(kv.pin({ prompt }, { places: ['pool', 's3'] })).rejects.toMatchObject({ code: 'KVASIR_TIER_UNKNOWN' });
    await engine.close();
  });

  it('the pool evicts a pinned prefix last, and a pin keeps no request from its blocks', async () => {
    // Room for two prompts.
    const engine = await createEngine({
      model: 'models/kvasir-demo.gguf',
      threads: 1,
      kvCacheMemory: 3 << 20,
      maxModelLen: 512,
    });
    const kv = kvOf(engine);
    await ask(engine);
    const pinned = await kv.pin({ prompt }, { ttlSeconds: 3600 });
    expect(pinned).toMatchObject({ promptTokens: 200, pin: { blocks: pinned.neededBlocks, cachedBlocks: fullBlocks } });
    const { total } = engine.stats().blocks;
    const prompts = Math.ceil((3 * total) / fullBlocks);
    for (let i = 0; i < prompts; i++) await ask(engine, [...promptOf(200, 100 + i, 250)]);
    expect((await lookUp(engine)).tokens.pool).toBe(fullBlocks * blockTokens);
    expect((await lookUp(engine, [...promptOf(200, 100, 250)])).tokens.pool).toBe(0);
    expect(kv.pins()).toMatchObject({ blocks: pinned.neededBlocks, evicted: 0, expired: 0 });
    await expect(kv.pin({ prompt }, { ttlSeconds: 0 })).rejects.toMatchObject({ code: 'KVASIR_INVALID_PARAMETER' });
    await expect(kv.prefetch({ prompt })).rejects.toMatchObject({ code: 'KVASIR_TIERS_NOT_ADMINISTERED' });
    expect(await kv.unpin(pinned.pin!.name)).toBe(pinned.pin!.name);
    expect(await kv.unpin({ prompt })).toBeUndefined();
    for (let i = 0; i < prompts; i++) await ask(engine, [...promptOf(200, 500 + i, 250)]);
    expect((await lookUp(engine)).tokens.pool).toBe(0);
    await engine.close();
  });
});
