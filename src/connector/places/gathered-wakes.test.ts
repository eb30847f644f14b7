import { describe, expect, it } from 'vitest';
import { ManualTime } from '../../../test/support/manual-time.ts';
import { GatheredWakes } from './gathered-wakes.ts';

function newWakes() {
  const time = new ManualTime();
  const counts = { wakes: 0, cancels: 0 };
  const wakes = new GatheredWakes(time, time, () => void counts.wakes++);
  /** A look-up that ends when the test calls `done`. */
  const begin = () => {
    let done = (): void => undefined;
    const running = wakes.start((whenDone) => {
      done = whenDone;
      return { deadlineMs: 500, cancel: () => void counts.cancels++ };
    });
    return { done: () => done(), running: running! };
  };
  return { time, counts, wakes, begin };
}

describe('GatheredWakes', () => {
  it('wakes the engine once when the last of several look-ups has ended', () => {
    const { time, counts, begin } = newWakes();
    const open = [begin(), begin(), begin()];
    time.advance(10);
    open[0]!.done();
    open[2]!.done();
    expect(counts.wakes).toBe(0);
    open[1]!.done();
    expect([counts.wakes, time.pending]).toEqual([1, 0]);
  });

  it('a look-up waits for the others at most as long as it took itself', () => {
    const { time, counts, begin } = newWakes();
    const [quick, slow] = [begin(), begin()];
    time.advance(40);
    quick.done();
    time.advance(39);
    expect(counts.wakes).toBe(0);
    time.advance(1);
    expect(counts.wakes).toBe(1);
    time.advance(100);
    slow.done();
    expect(counts.wakes).toBe(2);
  });

  it('a very quick look-up waits a little longer, because the others need not be slow', () => {
    const { time, counts, begin } = newWakes();
    const [quick, other] = [begin(), begin()];
    time.advance(1);
    quick.done();
    time.advance(19);
    expect(counts.wakes).toBe(0);
    other.done();
    expect(counts.wakes).toBe(1);
  });

  it('the first look-up that ends decides how long all wait, and the wait is bounded', () => {
    const { time, counts, begin } = newWakes();
    const [a, b] = [begin(), begin(), begin()];
    time.advance(300);
    a!.done();
    time.advance(99);
    b!.done();
    expect(counts.wakes).toBe(0);
    time.advance(1);
    expect(counts.wakes).toBe(1);
  });

  it('a cancelled look-up is not waited for', () => {
    const { time, counts, begin } = newWakes();
    const [a, b] = [begin(), begin()];
    time.advance(10);
    a.done();
    b.running.cancel();
    expect(counts).toEqual({ wakes: 1, cancels: 1 });
    begin().running.cancel();
    expect([counts.wakes, time.pending]).toEqual([1, 0]);
  });

  it('while a step is in flight, each look-up wakes the engine at once, so that the next plan has its answer', () => {
    const { time, counts, wakes, begin } = newWakes();
    const [a, b, c] = [begin(), begin(), begin()];
    time.advance(10);
    a.done();
    wakes.stepBegins();
    expect(counts.wakes).toBe(1);
    b.done();
    expect(counts.wakes).toBe(2);
    wakes.stepEnds();
    begin();
    c.done();
    expect(counts.wakes).toBe(2);
  });

  it('a look-up that cannot start is not waited for, and keeps its deadline otherwise', () => {
    const { time, counts, wakes, begin } = newWakes();
    expect(wakes.start(() => undefined)).toBeUndefined();
    const lookup = begin();
    expect(lookup.running.deadlineMs).toBe(500);
    time.advance(1);
    lookup.done();
    expect(counts.wakes).toBe(1);
  });

  it('no timer is left after close', () => {
    const { time, counts, wakes, begin } = newWakes();
    const [a] = [begin(), begin()];
    time.advance(10);
    a.done();
    wakes.close();
    time.advance(100);
    expect([counts.wakes, time.pending]).toEqual([0, 0]);
  });
});
