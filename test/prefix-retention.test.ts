/**
 * `prefix_cache_retention_interval`: the same conversation and the same prompts with a shared prefix, with a pool that loses everything
 * between two requests. Texts are equal, fewer blocks are stored, and only the second request of the prefix computes more.
 */
import { afterEach, expect, test } from 'vitest';
import { createEngine } from '../src/compose.ts';
import { tierReports } from '../src/connector/offloading/tier-report.ts';
import type { AsyncEngine } from '../src/engine/contract.ts';

const engines: AsyncEngine[] = [];
afterEach(async () => {
  for (const engine of engines.splice(0)) await engine.close();
});

async function open(retention: { readonly prefix_cache_retention_interval?: number }): Promise<AsyncEngine> {
  const engine = await createEngine({
    model: 'models/kvasir-hybrid.gguf',
    kvCacheMemory: 3 << 20,
    maxModelLen: 1600,
    kvTransferConfig: {
      kv_connector: 'OffloadingConnector',
      kv_role: 'kv_both',
      kv_connector_extra_config: { tiers: ['host:64MiB'], kv_load_policy: 'always', ...retention },
    },
  });
  engines.push(engine);
  return engine;
}

const tokens = (count: number, from: number): number[] =>
  Array.from({ length: count }, (_, i) => 5 + ((from + i * 7) % 200));

let fillers = 0;
/** Other requests take all blocks of the pool. They are not stored. In their first step, the last blocks of ended requests are. */
async function fill(engine: AsyncEngine): Promise<void> {
  for (const length of [10, 1500]) {
    const request = {
      prompt: tokens(length, 13 * ++fillers),
      params: { maxTokens: 1 },
      cacheSalt: `filler ${fillers}`,
      kvTransferParams: { max_offload_tokens: 0 },
    };
    for await (const _ of engine.generate(request));
  }
}

/** The output, and how many tokens of the prompt were computed. Then the pool forgets the request. */
async function answer(engine: AsyncEngine, prompt: readonly number[], maxTokens: number) {
  const output: number[] = [];
  let computed = 0;
  const params = { maxTokens, temperature: 0, ignoreEos: true };
  for await (const { tokenIds, stats } of engine.generate({ prompt: [...prompt], params })) {
    output.push(...tokenIds);
    computed = stats.computedTokens - (stats.outputTokens - 1);
  }
  await fill(engine);
  return { output, computed };
}

async function run(engine: AsyncEngine) {
  const texts: number[][] = [];
  const turns: number[] = [];
  const sharers: number[] = [];
  let history = tokens(200, 1);
  for (let turn = 0; turn < 3; turn++) {
    const { output, computed } = await answer(engine, history, 40);
    turns.push(computed);
    history = [...history, ...output, ...tokens(60, 1000 + 100 * turn)];
  }
  for (let request = 0; request < 3; request++) {
    const { output, computed } = await answer(engine, [...tokens(400, 3), ...tokens(100, 5000 + 77 * request)], 4);
    sharers.push(computed);
    texts.push(output);
  }
  const [host] = tierReports(engine.stats().transfers.connector);
  return { texts: [...texts, history], turns, sharers, blocks: host!.stores.blocks };
}

test('conversations lose no hit, a shared prefix is computed twice, texts are equal, and a quarter of the blocks is not stored', async () => {
  const dense = await run(await open({}));
  const sparse = await run(await open({ prefix_cache_retention_interval: 0 }));
  expect(sparse.texts).toEqual(dense.texts);
  expect(sparse.turns).toEqual(dense.turns);
  expect(dense.sharers).toEqual([500, 116, 116]);
  expect(sparse.sharers).toEqual([500, 500, 116]);
  expect(sparse.blocks).toBeLessThan(0.75 * dense.blocks);
});
