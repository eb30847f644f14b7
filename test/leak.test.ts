/** After many requests of all kinds, many of them aborted, every block is free or cached, and memory does not grow. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { beforeAll, describe, expect, it } from 'vitest';
import { Prng } from '../src/base/prng.ts';
import { createEngine } from '../src/compose.ts';
import type { AsyncEngine, GenerateRequest } from '../src/engine/contract.ts';
import { type LlamaBatch, loadNative } from '../src/ggml/ffi.ts';
import { promptOf } from './support/drive.ts';
import { inLongForm, itInLongForm } from './support/long-form.ts';
import { measureGrowth } from './support/memory-growth.ts';
import { temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

const model = { architecture: 'llama', type: 'F16', layers: 1, feedForward: 256 } as const;
/** Bytes of a block: keys and values in F16 of 16 tokens, two heads of 64. */
const blockBytes = 16 * 2 * 128 * 2;
/**
 * The largest growth per request, in bytes. Measured: about 600 on the heap and 400 in native memory, both less with more requests.
 * Collections change the growth on the heap by up to 1,500 in the short measurements of planted leaks.
 */
const heapBound = 1024;
const nativeBound = 2 * 1024;

describe('mixed requests with aborts', () => {
  let engine: AsyncEngine;
  const folder = temporaryFolder();
  const random = new Prng(20261120);

  beforeAll(async () => {
    const path = folder.file('tiny.gguf');
    await writeTinyModel(path, model);
    // 48 blocks: too few for all requests, so that some are preempted.
    engine = await createEngine({
      model: path,
      threads: 1,
      kvCacheMemory: 48 * blockBytes,
      maxModelLen: 512,
      maxNumSeqs: 24,
      maxNumBatchedTokens: 128,
    });
    return async () => {
      await engine.close();
      folder.remove();
    };
  });

  it('leave no block referenced and no memory allocated', async () => {
    // A warm-up for tables, caches and compiled code.
    await runRequests(inLongForm(300, 200));
    await settled();
    // Allocators sometimes grow late. A leak grows in each measurement.
    const measured = { windows: inLongForm(12, 6), unitsPerWindow: 60 };
    let growth = await measureGrowth(runRequests, measured);
    const isOverBound = (): boolean => growth.heap >= heapBound || growth.native >= nativeBound;
    for (let again = 0; again < 3 && isOverBound(); again++) growth = await measureGrowth(runRequests, measured);
    await settled();
    const stats = engine.stats();
    expect(stats.aborts).toBeGreaterThan(100);
    expect(stats.preemptions).toBeGreaterThan(0);
    expect(stats.running + stats.waiting).toBe(0);
    expect(stats.blocks.referenced).toBe(0);
    expect(stats.blocks.free + stats.blocks.cached).toBe(stats.blocks.total);
    expect(growth.heap).toBeLessThan(heapBound);
    expect(growth.native).toBeLessThan(nativeBound);
  });

  describe('a planted leak', () => {
    const windows = { windows: 5, unitsPerWindow: 20 };

    it('of eight kilobytes per request on the heap is found', async () => {
      const kept: number[][] = [];
      const growth = await measureGrowth(async (count) => {
        await runRequests(count);
        for (let i = 0; i < count; i++) kept.push(Array.from({ length: 1024 }, (_, index) => index + 0.5));
      }, windows);
      expect(kept).toHaveLength(100);
      expect(growth.heap).toBeGreaterThan(heapBound);
    });

    itInLongForm('of 16 kilobytes per request in native memory is found', async () => {
      const native = loadNative();
      const rows = 300;
      const kept: LlamaBatch[] = [];
      const growth = await measureGrowth(async (count) => {
        await runRequests(count);
        for (let i = 0; i < count; i++) {
          const batch = native.llama_batch_init(rows, 0, 1);
          // Without glibc, memory counts after a write.
          for (const array of [batch.token, batch.pos]) new Int32Array(native.memoryAt(array, rows * 4)).fill(1);
          kept.push(batch);
        }
      }, windows);
      for (const batch of kept) native.llama_batch_free(batch);
      expect(growth.native).toBeGreaterThan(nativeBound);
    });
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

  /** Some requests run to their end, some are aborted by a signal, some by a consumer that stops reading. */
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
    const shared = promptOf(64, random.between(0, 2));
    const prompt = [
      ...shared.slice(0, random.between(0, 64)),
      ...promptOf(1 + random.between(0, 79), random.between(0, 999)),
    ];
    const isGreedy = random.chance(1 / 2);
    return {
      prompt,
      params: {
        maxTokens: random.chance(1 / 4) ? random.between(60, 150) : random.between(1, 20),
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

  /** Aborts take effect at the end of the step in flight. */
  async function settled(): Promise<void> {
    while (engine.stats().running + engine.stats().waiting > 0) await nextTurn();
    await nextTurn();
  }
});
