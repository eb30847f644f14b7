import { describe, expect, it } from 'vitest';
import { toyEngine } from '../../test/support/toy-model.ts';
import { stateOfCell } from '../kv/draw-blocks.ts';

const params = { temperature: 0, maxTokens: 20, ignoreEos: true };
const prompt = 'a prompt of some length';

function statesOf(engine: ReturnType<typeof toyEngine>['engine']): Record<string, number> {
  const { cache } = engine;
  const cells = new Uint8Array(cache!.shape.blockCount);
  const watch = cache!.watch();
  watch.drawBlocks(cells);
  watch.close();
  const counts: Record<string, number> = {};
  for (const cell of cells.subarray(1)) counts[stateOfCell(cell)] = (counts[stateOfCell(cell)] ?? 0) + 1;
  return counts;
}

describe('the cache monitor', () => {
  it('has the shape of the pool', async () => {
    const { engine } = toyEngine();
    expect(engine.cache!.shape).toEqual({
      blockCount: 400,
      blockBytes: 64,
      groups: [{ kind: 'full', blockSize: 4, layers: 1 }],
    });
    await engine.close();
  });

  it('draws the same counts of blocks as `stats`', async () => {
    const { engine } = toyEngine();
    expect(statesOf(engine)).toEqual({ free: 399 });
    for await (const { stats } of engine.generate({ prompt, params })) {
      if (stats.outputTokens !== 10) continue;
      const { referenced } = engine.stats().blocks;
      expect(referenced).toBeGreaterThan(6);
      expect(statesOf(engine)).toEqual({ referenced, free: 399 - referenced });
    }
    const { cached } = engine.stats().blocks;
    expect(cached).toBeGreaterThan(6);
    expect(statesOf(engine)).toEqual({ cached, free: 399 - cached });
    await engine.close();
  });

  it('notes the phases of requests while it is watched, and forgets them afterwards', async () => {
    const { engine } = toyEngine();
    const watch = engine.cache!.watch();
    for await (const _ of engine.generate({ prompt, params, requestId: 'a' }));
    const [timeline] = watch.timelines();
    expect(timeline!.id).toMatch(/^a#/);
    expect(timeline!.phases.map(({ phase }) => phase)).toEqual(['queued', 'decode', 'finished']);
    expect(timeline!.stats).toMatchObject({ outputTokens: 20, promptTokens: 24 });
    expect(watch.tablesOf(timeline!.id)).toBeUndefined();
    watch.close();
    const later = engine.cache!.watch();
    expect(later.timelines()).toEqual([]);
    later.close();
    await engine.close();
  });

  it('keeps the last 24 requests that have ended', async () => {
    const { engine } = toyEngine();
    const watch = engine.cache!.watch();
    for (let i = 0; i < 30; i++)
      for await (const _ of engine.generate({ prompt: 'x', params: { ...params, maxTokens: 1 }, requestId: `r${i}` }));
    const ids = watch.timelines().map(({ id }) => id.split('#')[0]);
    expect(ids).toEqual(Array.from({ length: 24 }, (_, i) => `r${i + 6}`));
    watch.close();
    await engine.close();
  });

  it('has a new version after each step and after a loss, and not while the engine is idle', async () => {
    const { engine } = toyEngine();
    const { cache } = engine;
    for await (const _ of engine.generate({ prompt, params }));
    const before = cache!.version;
    expect(before).toBeGreaterThanOrEqual(20);
    await new Promise(setImmediate);
    expect(cache!.version).toBe(before);
    await cache!.loseBlocks({ count: 1, seed: 1 });
    expect(cache!.version).toBeGreaterThan(before);
    await engine.close();
  });
});

describe('lost blocks', () => {
  it('are computed again, shown as invalid and then as recomputed, and the text is the same', async () => {
    const { engine } = toyEngine({ scheduler: { enablePrefixCaching: false } });
    let expected = '';
    for await (const { text } of engine.generate({ prompt, params })) expected += text;
    let text = '';
    const seen: unknown[] = [];
    const watch = engine.cache!.watch();
    for await (const delta of engine.generate({ prompt, params, requestId: 'b' })) {
      text += delta.text;
      const { outputTokens } = delta.stats;
      if (outputTokens === 5) {
        const { id } = watch.timelines().at(-1)!;
        const blocks = watch.tablesOf(id)![0]!.slice(1, 3);
        expect(await engine.cache!.loseBlocks({ blocks })).toEqual({ blocks, requests: 1, tokens: 8 });
        seen.push(statesOf(engine).invalid);
      }
      if (outputTokens === 12) seen.push(statesOf(engine).recomputed, statesOf(engine).invalid);
    }
    expect(text).toBe(expected);
    expect(seen).toEqual([2, 2, undefined]);
    const { phases, stats } = watch.timelines().at(-1)!;
    expect(phases.map(({ phase }) => phase)).toEqual(['queued', 'decode', 'recovering', 'decode', 'finished']);
    expect(stats.recomputedTokens).toBe(8);
    watch.close();
    await engine.close();
  });

  it('are random blocks that have KV: the same ones for the same seed', async () => {
    const { engine } = toyEngine();
    for await (const _ of engine.generate({ prompt, params }));
    const { cached } = engine.stats().blocks;
    const first = await engine.cache!.loseBlocks({ count: 3, seed: 5 });
    expect(new Set(first.blocks).size).toBe(3);
    expect(first).toMatchObject({ requests: 0, tokens: 0 });
    expect(engine.stats().blocks.cached).toBe(cached - 3);
    const rest = await engine.cache!.loseBlocks({ count: 1000, seed: 5 });
    expect(rest.blocks.length).toBe(cached - 3);
    expect(engine.stats().blocks.cached).toBe(0);
    await engine.close();
  });

  it('end the request by the policy `fail`', async () => {
    const { engine } = toyEngine({ scheduler: { kvLoadFailurePolicy: 'fail' } });
    let finish: unknown;
    for await (const delta of engine.generate({ prompt, params, requestId: 'c' })) {
      if (delta.stats.outputTokens === 5 && delta.finish === undefined)
        await engine.cache!.loseBlocks({ count: 1, request: 'c', seed: 1 });
      finish = delta.finish;
    }
    expect(finish).toMatchObject({ reason: 'error', error: { code: 'KVASIR_KV_LOAD_FAILED' } });
    await engine.close();
  });

  it('must be in the pool', async () => {
    const { engine } = toyEngine();
    for (const block of [0, -1, 1.5, 400, Number.NaN])
      await expect(engine.cache!.loseBlocks({ blocks: [block] })).rejects.toMatchObject({
        code: 'KVASIR_INVALID_PARAMETER',
        message: `\`blocks\` must be numbers of blocks, 1 to 399, got ${block}.`,
      });
    await engine.close();
  });

  it('of a request that has ended are an error, as in an engine that is closed', async () => {
    const { engine } = toyEngine();
    await expect(engine.cache!.loseBlocks({ count: 1, request: 'gone' })).rejects.toMatchObject({
      code: 'KVASIR_REQUEST_ENDED',
    });
    await engine.close();
    await expect(engine.cache!.loseBlocks({ count: 1 })).rejects.toMatchObject({ code: 'KVASIR_ENGINE_CLOSED' });
  });
});
