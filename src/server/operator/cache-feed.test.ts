import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { toyEngine } from '../../../test/support/toy-model.ts';
import { systemClock } from '../../base/clock.ts';
import { cellStates, stateOfCell } from '../../kv/draw-blocks.ts';
import { CacheFeed } from './cache-feed.ts';
import { changedRuns } from './changed-runs.ts';

const params = { temperature: 0, maxTokens: 20, ignoreEos: true };

function feedOf(toy: ReturnType<typeof toyEngine>): CacheFeed {
  return new CacheFeed({
    monitor: toy.engine.cache!,
    clock: systemClock,
    canLoseBlocks: true,
    stats: () => toy.engine.stats(),
    tiers: () => [],
  });
}

interface Message {
  readonly type: string;
  readonly isWhole?: boolean;
  readonly runs: readonly number[];
  readonly lost?: readonly number[];
  readonly parts: Readonly<Record<string, unknown>>;
}

/** A viewer that keeps the messages, and the cells that they describe. */
function viewer() {
  const messages: Message[] = [];
  const cells: number[] = [];
  let isSlow = false;
  return {
    messages,
    cells,
    slow: (value: boolean) => {
      isSlow = value;
    },
    send: (data: string): Promise<void> => {
      const message = JSON.parse(data) as Message;
      messages.push(message);
      for (let i = 0; i < (message.runs ?? []).length; i += 3) {
        const [start, length, cell] = message.runs.slice(i, i + 3) as [number, number, number];
        cells.fill(0, start, start + length);
        for (let at = start; at < start + length; at++) cells[at] = cell;
      }
      return isSlow ? new Promise(() => {}) : Promise.resolve();
    },
  };
}

const turn = () => new Promise(setImmediate);

// The tests call `tick` themselves: on a busy machine, the timer would call it in between.
beforeEach(() => void vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] }));
afterEach(() => void vi.useRealTimers());

describe('the feed of the cache', () => {
  it('sends the whole state first and then only changes', async () => {
    const toy = toyEngine();
    const feed = feedOf(toy);
    const one = viewer();
    const leave = feed.add(one);
    await turn();
    feed.tick();
    expect(one.messages.map(({ type, isWhole }) => [type, isWhole])).toEqual([
      ['start', undefined],
      ['state', true],
    ]);
    expect(one.messages[1]!.runs).toEqual([1, 399, expect.any(Number)]);
    await turn();
    feed.tick();
    expect(one.messages.length).toBe(2);
    for await (const _ of toy.engine.generate({ prompt: 'a prompt of some length', params, requestId: 'a' }));
    feed.tick();
    const { cached } = toy.engine.stats().blocks;
    const last = one.messages[2]!;
    expect(last.isWhole).toBe(false);
    expect(new Set(Object.keys(last.parts))).toEqual(new Set(['request a-1.0', 'requests', 'totals']));
    expect(one.cells.filter((cell) => stateOfCell(cell) === 'cached').length).toBe(cached);
    leave();
    await toy.engine.close();
  });

  it('computes nothing and has no timer while it has no viewers', async () => {
    const toy = toyEngine();
    const feed = feedOf(toy);
    const draw = vi.spyOn(toy.scheduler.inspector, 'drawBlocks');
    const requests = vi.spyOn(toy.scheduler.inspector, 'requests');
    for await (const _ of toy.engine.generate({ prompt: 'x', params }));
    expect(draw).not.toHaveBeenCalled();
    expect(requests).not.toHaveBeenCalled();
    feed.add(viewer())();
    requests.mockClear();
    for await (const _ of toy.engine.generate({ prompt: 'x', params }));
    expect(draw).not.toHaveBeenCalled();
    expect(requests).not.toHaveBeenCalled();
    expect(feed.viewerCount).toBe(0);
    await toy.engine.close();
  });

  it('draws once for all viewers, and not at all while nothing happens', async () => {
    const toy = toyEngine();
    const feed = feedOf(toy);
    const leave = [feed.add(viewer()), feed.add(viewer()), feed.add(viewer())];
    await turn();
    feed.tick();
    await turn();
    const draw = vi.spyOn(toy.scheduler.inspector, 'drawBlocks');
    for (let i = 0; i < 5; i++) feed.tick();
    expect(draw).not.toHaveBeenCalled();
    for await (const _ of toy.engine.generate({ prompt: 'x', params }));
    feed.tick();
    expect(draw).toHaveBeenCalledOnce();
    for (const call of leave) call();
    await toy.engine.close();
  });

  it('sends a slow viewer nothing, and the whole state when it reads again', async () => {
    const toy = toyEngine();
    const feed = feedOf(toy);
    let read = () => {};
    const types: boolean[] = [];
    const leave = feed.add({
      send: (data) => {
        const { isWhole } = JSON.parse(data) as Message;
        if (isWhole !== undefined) types.push(isWhole);
        return new Promise((resolve) => {
          read = resolve;
        });
      },
    });
    read();
    await turn();
    feed.tick();
    for await (const _ of toy.engine.generate({ prompt: 'x', params }));
    feed.tick();
    feed.tick();
    expect(types).toEqual([true]);
    read();
    await turn();
    feed.tick();
    expect(types).toEqual([true, true]);
    leave();
    await toy.engine.close();
  });

  it('tells at once which blocks are lost', async () => {
    const toy = toyEngine();
    const feed = feedOf(toy);
    const one = viewer();
    const leave = feed.add(one);
    await turn();
    for await (const _ of toy.engine.generate({ prompt: 'a prompt of some length', params }));
    feed.lost(await toy.engine.cache!.loseBlocks({ blocks: [2, 3] }));
    expect(one.messages.at(-1)!.lost).toEqual([2, 3]);
    leave();
    await toy.engine.close();
  });
});

describe('changed runs', () => {
  it.each([
    [[0, 1, 1, 1], [0, 1, 1, 1], []],
    [
      [0, 1, 1, 1],
      [9, 1, 2, 1],
      [2, 1, 2],
    ],
    [
      [0, 0, 0, 0, 0],
      [0, 3, 3, 0, 3],
      [1, 2, 3, 4, 1, 3],
    ],
    [
      [0, 0, 3, 0],
      [0, 3, 3, 3],
      [1, 1, 3, 3, 1, 3],
    ],
  ])('from %j to %j: %j', (before, after, runs) => {
    expect(changedRuns(Uint8Array.from(before), Uint8Array.from(after))).toEqual(runs);
  });

  it('has all cells but the null block if there was no state before', () => {
    expect(changedRuns(undefined, Uint8Array.from([7, 1, 1, 2]))).toEqual([1, 2, 1, 3, 1, 2]);
    expect(cellStates.length).toBeLessThanOrEqual(8);
  });
});
