/** A thousand requests of all kinds, many of them aborted: afterwards every block is free or cached, and memory is level. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { beforeAll, describe, expect, it } from 'vitest';
import { Prng } from '../src/base/prng.ts';
import { createEngine } from '../src/compose.ts';
import type { AsyncEngine, GenerateRequest } from '../src/engine/contract.ts';
import { promptOf } from './support/drive.ts';

const MIB = 1 << 20;
const blockBytes = 16 * 6 * 2 * 128 * 2;

describe('a thousand mixed requests with aborts', () => {
  let engine: AsyncEngine;
  const random = new Prng(20261120);

  beforeAll(async () => {
    // 96 blocks: too few for all, so that requests are preempted as well.
    engine = await createEngine({
      model: 'models/kvasir-demo.gguf',
      threads: 1,
      kvCacheMemory: 96 * blockBytes,
      maxModelLen: 1024,
      maxNumSeqs: 24,
      maxNumBatchedTokens: 128,
    });
    return () => engine.close();
  });

  it('leave no block behind and no memory', async () => {
    await runRequests(300);
    await settled();
    const before = process.memoryUsage().rss;
    await runRequests(700);
    await settled();
    const stats = engine.stats();
    expect(stats.aborts).toBeGreaterThan(100);
    expect(stats.preemptions).toBeGreaterThan(10);
    expect(stats.running + stats.waiting).toBe(0);
    expect(stats.blocks.referenced).toBe(0);
    expect(stats.blocks.free + stats.blocks.cached).toBe(stats.blocks.total);
    expect(process.memoryUsage().rss - before).toBeLessThan(48 * MIB);
  });

  async function runRequests(count: number): Promise<void> {
    const active = new Set<Promise<void>>();
    for (let i = 0; i < count; i++) {
      const run = runRequest().finally(() => active.delete(run));
      active.add(run);
      if (active.size >= 40) await Promise.race(active);
    }
    await Promise.all(active);
  }

  /** Some run to their end, some are aborted by signal, some by a consumer that stops listening. */
  async function runRequest(): Promise<void> {
    const abort = new AbortController();
    const fate = random.between(0, 3);
    const patience = random.between(0, 11);
    let seen = 0;
    for await (const delta of engine.generate(randomRequest(), { signal: abort.signal })) {
      seen += delta.tokenIds.length;
      if (fate === 0 && seen > patience) abort.abort();
      if (fate === 1 && seen > patience) break;
    }
  }

  function randomRequest(): GenerateRequest {
    const shared = promptOf(64, random.between(0, 2), 2000);
    const prompt = [
      ...shared.slice(0, random.between(0, 64)),
      ...promptOf(1 + random.between(0, 79), random.between(0, 999), 2000),
    ];
    const isGreedy = random.chance(1 / 2);
    return {
      prompt,
      params: {
        maxTokens: random.chance(1 / 4) ? random.between(100, 250) : random.between(1, 20),
        ignoreEos: true,
        temperature: isGreedy ? 0 : 0.9,
        ...(random.chance(1 / 5) ? { n: 3 } : {}),
        ...(random.chance(1 / 4) ? { logprobs: 3 } : {}),
        ...(random.chance(1 / 4) ? { stop: [' the', '.'] } : {}),
        ...(random.chance(1 / 4) ? { repetitionPenalty: 1.1, topK: 20, minP: 0.05 } : {}),
      },
      ...(random.chance(1 / 3) ? { cacheSalt: 'a' } : {}),
    };
  }

  /** Aborts take effect with the step that is under way. */
  async function settled(): Promise<void> {
    while (engine.stats().running + engine.stats().waiting > 0) await nextTurn();
    await nextTurn();
    globalThis.gc?.();
  }
});
