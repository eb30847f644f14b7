import { describe, expect, it } from 'vitest';
import { StepDeadlines, WorkerWatch } from './worker-watch.ts';

/** Ticks come from the test; the watch's own timer is too slow to matter. */
function watched(timeoutMs = 1_000_000) {
  const said: string[] = [];
  const deadlines = new StepDeadlines(timeoutMs);
  const watch = new WorkerWatch({
    timeoutMs,
    deadlines,
    ping: () => said.push('ping'),
    onStuck: (reason) => said.push(reason),
  });
  watch.stop();
  return { watch, said, deadlines };
}

describe('a worker watch', () => {
  it('asks one question at a time, and calls a worker stuck that leaves it unanswered', () => {
    const { watch, said } = watched();
    watch.started();
    watch.tick(500_000);
    watch.tick(999_999);
    expect(said).toEqual(['ping']);
    expect(watch.unansweredMs()).toBe(999_999);
    watch.tick(1);
    expect(said).toEqual(['ping', 'did not answer for 1000 s and was killed']);
  });

  it('takes any message for a sign of life', () => {
    const { watch, said } = watched();
    watch.started();
    watch.tick(1);
    for (let message = 0; message < 10; message++) {
      watch.tick(900_000);
      watch.heard();
    }
    expect(said).toEqual(['ping']);
    expect(watch.unansweredMs()).toBeUndefined();
    watch.answered(false);
    watch.tick(1);
    expect(said).toEqual(['ping', 'ping']);
  });

  it('counts next to nothing of a time in which its own process was stopped', () => {
    const { watch, said } = watched(10_000);
    watch.started();
    let nowMs = performance.now();
    const tickAfter = (ms: number): void => {
      nowMs += ms;
      watch.tickAt(nowMs);
    };
    tickAfter(1_000);
    tickAfter(3_600_000);
    expect(said).toEqual(['ping']);
    expect(watch.unansweredMs()).toBeUndefined();
    for (let second = 0; second < 7; second++) tickAfter(1_000);
    expect(said).toEqual(['ping']);
    tickAfter(1_000);
    expect(said).toEqual(['ping', 'did not answer for 10 s and was killed']);
  });

  it('gives a worker that loads six times as long', () => {
    const { watch, said } = watched();
    watch.tick(1);
    watch.tick(5_999_999);
    expect(said).toEqual(['ping']);
    watch.tick(1);
    expect(said).toEqual(['ping', 'did not answer for 6000 s and was killed']);
  });

  it('calls a worker stuck that answers and computes one step far too long, and not one that waits', () => {
    const { watch, said } = watched(1000);
    const answer = (isComputing: boolean): void => {
      watch.tick(10);
      watch.heard();
      watch.answered(isComputing);
    };
    watch.started();
    watch.stepBegins(1);
    for (let i = 0; i < 10_000; i++) answer(false);
    for (let i = 0; i < 3_000; i++) answer(true);
    expect(said.filter((what) => what !== 'ping')).toEqual([]);
    answer(true);
    expect(said.filter((what) => what !== 'ping')).toEqual(['computed one step for 30 s and was killed']);
  });

  it('counts each step for itself', () => {
    const { watch, said } = watched(1000);
    watch.started();
    for (let step = 0; step < 10; step++) {
      watch.stepBegins(1);
      for (let i = 0; i < 2_900; i++) {
        watch.tick(10);
        watch.answered(true);
      }
      watch.stepEnded();
    }
    expect(said.filter((what) => what !== 'ping')).toEqual([]);
  });
});

describe('the deadline of a step', () => {
  it('is long until the speed is known, and then follows the slowest rate seen lately', () => {
    const deadlines = new StepDeadlines(10_000);
    expect(deadlines.limitMs(1)).toBe(300_000);
    for (let step = 0; step < 3; step++) deadlines.learn(1, 10);
    expect(deadlines.limitMs(1)).toBe(60_000);
    expect(deadlines.limitMs(8192)).toBeCloseTo(20 * 10 * 8192);
    deadlines.learn(10, 1000);
    for (let step = 0; step < 10; step++) deadlines.learn(1, 10);
    expect(deadlines.limitMs(8192)).toBeGreaterThan(0.9 * 20 * 100 * 8192);
  });
});
