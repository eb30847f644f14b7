import { describe, expect, it } from 'vitest';

import { ManualTime } from '../../test/support/manual-time.ts';
import { toyEngine } from '../../test/support/toy-model.ts';
import type { EndedCompletion, StepReport, TokenArrival } from './observer.ts';

const stepMs = 10;

async function readAll(stream: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of stream);
}

/** An engine whose steps take 10 ms each, and what an observer of it saw. */
function observed() {
  const clock = new ManualTime();
  const toy = toyEngine({ settings: { clock }, beforeStep: async () => clock.advance(stepMs) });
  const steps: StepReport[] = [];
  const arrivals: TokenArrival[] = [];
  const ended: EndedCompletion[] = [];
  const stop = toy.engine.observe({
    stepEnded: (step) => void steps.push(step),
    tokensArrived: (_, arrival) => void arrivals.push(arrival),
    completionEnded: (completion) => void ended.push(completion),
  });
  return { ...toy, clock, steps, arrivals, ended, stop };
}

describe('an observer of an engine', () => {
  it('gets the parts of each step, and when a completion was queued, computed and read', async () => {
    const { engine, clock, steps, arrivals, ended } = observed();
    clock.advance(5);
    // 41 tokens with BOS: two steps for the prompt, then two more tokens. Text is delivered beside the next step.
    await readAll(engine.generate({ prompt: 'x'.repeat(40), params: { maxTokens: 3, ignoreEos: true } }));
    await engine.close();
    expect(steps.map(({ tokens, executeMs }) => [tokens, executeMs])).toEqual([
      [32, stepMs],
      [9, stepMs],
      [1, stepMs],
      [1, stepMs],
    ]);
    expect(ended).toHaveLength(1);
    const [{ finishReason, index, times, stats }] = ended as [EndedCompletion];
    expect({ finishReason, index, outputTokens: stats?.outputTokens }).toEqual({
      finishReason: 'length',
      index: 0,
      outputTokens: 3,
    });
    const { arrivedMs, scheduledMs, firstTokenMs, lastTokenMs, endedMs } = times;
    expect({ arrivedMs, scheduledMs }).toEqual({ arrivedMs: 5, scheduledMs: 5 });
    expect(firstTokenMs).toBeGreaterThanOrEqual(5 + 2 * stepMs);
    expect(lastTokenMs! - firstTokenMs!).toBeGreaterThan(0);
    expect(endedMs).toBe(lastTokenMs);
    expect(arrivals.map(({ tokens }) => tokens)).toEqual([1, 1, 1]);
    expect(arrivals.reduce((sum, { sinceMs = 0 }) => sum + sinceMs, 0)).toBe(lastTokenMs! - firstTokenMs!);
    expect(arrivals[0]!.sinceMs).toBeUndefined();
  });

  it('counts tokens of which the layers are computed in several steps once', async () => {
    const clock = new ManualTime();
    const { engine } = toyEngine({
      sliceableLayers: 5,
      sliceChoice: { sliceOf: (_, { tokensMax }) => ({ tokens: Math.min(tokensMax, 20), layers: 2 }) },
      scheduler: { targetInterTokenLatency: 'auto' },
      settings: { clock },
      beforeStep: async () => clock.advance(stepMs),
    });
    const tokens: number[] = [];
    engine.observe({ stepEnded: (step) => void tokens.push(step.tokens) });
    const stream = engine.generate({ prompt: 'a', params: { maxTokens: 40, ignoreEos: true } });
    await stream.next();
    await readAll(engine.generate({ prompt: 'x'.repeat(90), params: { maxTokens: 1, ignoreEos: true } }));
    await readAll(stream);
    await engine.close();
    // The decode and the two or three layers of a chunk; then the decode and the chunk.
    expect(tokens.join(' ')).toContain('1 1 21');
    expect(tokens.reduce((sum, count) => sum + count, 0)).toBe(engine.stats().computedTokens);
  });

  it('sees the end of every completion: of all n, aborted, abandoned, and of a broken engine', async () => {
    const { engine, ended } = observed();
    const params = { maxTokens: 20, ignoreEos: true };
    await readAll(engine.generate({ prompt: 'a', params: { ...params, n: 2 } }));
    const abort = new AbortController();
    for await (const _ of engine.generate({ prompt: 'b', params }, { signal: abort.signal })) abort.abort();
    for await (const _ of engine.generate({ prompt: 'c', params })) break;
    const aborted = new AbortController();
    aborted.abort();
    await readAll(engine.generate({ prompt: 'd', params }, { signal: aborted.signal }));
    await engine.close();
    expect(ended.map(({ index, finishReason }) => [index, finishReason])).toEqual([
      [0, 'length'],
      [1, 'length'],
      [0, 'abort'],
      [0, 'abort'],
      [0, 'abort'],
    ]);
    const broken = toyEngine({ failAtStep: 1, settings: { onBroken: () => undefined } });
    const reasons: string[] = [];
    broken.engine.observe({ completionEnded: ({ finishReason }) => void reasons.push(finishReason) });
    await readAll(broken.engine.generate({ prompt: 'e', params }));
    await broken.engine.close();
    expect(reasons).toEqual(['error']);
  });

  it('gets nothing after its end, and nothing of a completion that arrived before it', async () => {
    const { engine, ended, arrivals, stop } = observed();
    const params = { maxTokens: 2, ignoreEos: true };
    await readAll(engine.generate({ prompt: 'a', params }));
    stop();
    const stream = engine.generate({ prompt: 'b', params });
    let late = 0;
    let endings = 0;
    engine.observe({ tokensArrived: () => void late++, completionEnded: () => void endings++ });
    await readAll(stream);
    await engine.close();
    expect([ended.length, arrivals.length]).toEqual([1, 2]);
    // Its times are not known, but it counts among the completions that ended.
    expect([late, endings]).toEqual([0, 1]);
  });
});
