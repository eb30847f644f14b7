import { describe, expect, it } from 'vitest';
import { StepDeadlines, WorkerWatch } from './worker-watch.ts';

/** The test makes the ticks; the watch's own timer is stopped. */
function watched(timeoutMs = 1_000_000) {
  const reports: string[] = [];
  const deadlines = new StepDeadlines(timeoutMs);
  const watch = new WorkerWatch({
    timeoutMs,
    deadlines,
    ping: () => reports.push('ping'),
    onStuck: (reason) => reports.push(reason),
  });
  watch.stop();
  return { watch, reports, deadlines };
}

describe('a worker watch', () => {
  it('sends one ping at a time, and reports a worker that does not answer for the timeout', () => {
    const { watch, reports } = watched();
    watch.started();
    watch.tick(500_000);
    watch.tick(999_999);
    expect(reports).toEqual(['ping']);
    expect(watch.unansweredMs()).toBe(999_999);
    watch.tick(1);
    expect(reports).toEqual(['ping', 'did not answer for 1000 s and was killed']);
  });

  it('counts any message as an answer', () => {
    const { watch, reports } = watched();
    watch.started();
    watch.tick(1);
    for (let message = 0; message < 10; message++) {
      watch.tick(900_000);
      watch.messageReceived();
    }
    expect(reports).toEqual(['ping']);
    expect(watch.unansweredMs()).toBeUndefined();
    watch.answered(false);
    watch.tick(1);
    expect(reports).toEqual(['ping', 'ping']);
  });

  it('counts at most two ticks of a time in which its own process was stopped', () => {
    const { watch, reports } = watched(10_000);
    watch.started();
    let nowMs = performance.now();
    const tickAfter = (ms: number): void => {
      nowMs += ms;
      watch.tickAt(nowMs);
    };
    tickAfter(1_000);
    tickAfter(3_600_000);
    expect(reports).toEqual(['ping']);
    expect(watch.unansweredMs()).toBeUndefined();
    for (let second = 0; second < 7; second++) tickAfter(1_000);
    expect(reports).toEqual(['ping']);
    tickAfter(1_000);
    expect(reports).toEqual(['ping', 'did not answer for 10 s and was killed']);
  });

  it('gives a worker that loads six times the timeout', () => {
    const { watch, reports } = watched();
    watch.tick(1);
    watch.tick(5_999_999);
    expect(reports).toEqual(['ping']);
    watch.tick(1);
    expect(reports).toEqual(['ping', 'did not answer for 6000 s and was killed']);
  });

  it('reports a worker that computes one step far too long, but not one that waits', () => {
    const { watch, reports } = watched(1000);
    const answer = (isComputing: boolean): void => {
      watch.tick(10);
      watch.messageReceived();
      watch.answered(isComputing);
    };
    watch.started();
    watch.stepBegins(1);
    for (let i = 0; i < 10_000; i++) answer(false);
    for (let i = 0; i < 3_000; i++) answer(true);
    expect(reports.filter((what) => what !== 'ping')).toEqual([]);
    answer(true);
    expect(reports.filter((what) => what !== 'ping')).toEqual(['computed one step for 30 s and was killed']);
  });

  it('counts the computing time of each step separately', () => {
    const { watch, reports } = watched(1000);
    watch.started();
    for (let step = 0; step < 10; step++) {
      watch.stepBegins(1);
      for (let i = 0; i < 2_900; i++) {
        watch.tick(10);
        watch.answered(true);
      }
      watch.stepEnded();
    }
    expect(reports.filter((what) => what !== 'ping')).toEqual([]);
  });
});

describe('the deadline of a step', () => {
  it('is long until the speed is known, then follows the slowest recent rate', () => {
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
