import { describe, expect, it } from 'vitest';
import { ManualTime } from '../../../test/support/manual-time.ts';
import { WritePace } from './write-pace.ts';

function newPace({ busyShare = 0.1, isBusy = true } = {}) {
  const time = new ManualTime();
  const machine = { isBusy };
  const pace = new WritePace({ clock: time, timers: time, isBusy: () => machine.isBusy, busyShare });
  return { pace, time, machine };
}

/** A step after the first five seconds of forward passes, so that writes have their share. */
function computeForLong(pace: WritePace, time: ManualTime): void {
  pace.computing(true);
  time.advance(5_000);
}

/** A tier with any number of blocks to write; each write takes `writeMs`. Returns the times from now on at which writes began. */
function writer(pace: WritePace, time: ManualTime, writeMs: number): number[] {
  const startedMs = time.nowMs();
  const begun: number[] = [];
  const write = (): void => {
    const end = pace.begin(write);
    if (end === undefined) return;
    begun.push(time.nowMs() - startedMs);
    time.after(writeMs, () => {
      end();
      write();
    });
  };
  write();
  return begun;
}

describe('WritePace', () => {
  it('while the engine computes and no CPU is idle, writes take the share of the time', () => {
    const { pace, time } = newPace({ busyShare: 0.1 });
    computeForLong(pace, time);
    const begun = writer(pace, time, 2);
    time.advance(100);
    expect(begun).toEqual([0, 20, 40, 60, 80, 100]);
  });

  it('while the engine computes for less than five seconds, no write starts; all start when it stops', () => {
    const { pace, time } = newPace({ busyShare: 0.1 });
    pace.computing(true);
    const begun = writer(pace, time, 2);
    for (let step = 0; step < 49; step++) {
      time.advance(90);
      pace.computing(false);
      time.advance(10);
      pace.computing(true);
    }
    expect(begun).toEqual([]);
    pace.computing(false);
    time.advance(200);
    expect(begun.length).toBeGreaterThan(40);
    // A gap begins a new burst.
    pace.computing(true);
    time.advance(10);
    const before = begun.length;
    time.advance(4_900);
    expect(begun.length).toBe(before);
    time.advance(200);
    expect(begun.length).toBeGreaterThan(before);
  });

  it('after five seconds of forward passes, writes begin', () => {
    const { pace, time } = newPace({ busyShare: 0.1 });
    pace.computing(true);
    const begun = writer(pace, time, 2);
    time.advance(5_050);
    expect(begun[0]).toBeGreaterThanOrEqual(5_000);
    expect(begun.length).toBeLessThanOrEqual(3);
  });

  it('several tiers take turns within one share', () => {
    const { pace, time } = newPace({ busyShare: 0.1 });
    computeForLong(pace, time);
    const [a, b] = [writer(pace, time, 2), writer(pace, time, 3)];
    time.advance(250);
    expect([a.length, b.length]).toEqual([6, 5]);
    const all = [...a.map((ms) => [ms, 2] as const), ...b.map((ms) => [ms, 3] as const)].sort((x, y) => x[0] - y[0]);
    for (const [i, [ms]] of all.entries())
      if (i > 0) expect(ms - all[i - 1]![0]).toBeGreaterThanOrEqual(10 * all[i - 1]![1]);
  });

  it.each([
    ['no forward pass runs', (pace: WritePace) => pace.computing(false), 50],
    ['a CPU is idle', (_: WritePace, machine: { isBusy: boolean }) => (machine.isBusy = false), 0],
  ])('when %s, writes start at once again', (_, change, afterMs) => {
    const { pace, time, machine } = newPace({ busyShare: 0.001 });
    computeForLong(pace, time);
    const begun = writer(pace, time, 1);
    time.advance(500);
    expect(begun).toEqual([0]);
    change(pace, machine);
    time.advance(afterMs + 50);
    const before = begun.length;
    time.advance(10);
    expect(begun.length - before).toBe(10);
  });

  it('while blocks load, no write starts, also if the engine does not compute and CPUs are idle', () => {
    const { pace, time } = newPace({ isBusy: false });
    pace.beginLoad();
    pace.beginLoad();
    const begun = writer(pace, time, 1);
    time.advance(60);
    pace.endLoad();
    time.advance(1_900);
    expect(begun).toEqual([]);
    expect(time.pending).toBe(1);
    pace.endLoad();
    time.advance(60);
    expect(begun.length).toBeGreaterThan(9);
  });

  it('if blocks load for longer than two seconds without a gap, writes take their share', () => {
    const { pace, time } = newPace({ busyShare: 0.01, isBusy: false });
    pace.beginLoad();
    const begun = writer(pace, time, 1);
    for (let load = 0; load < 30; load++) {
      time.advance(100);
      pace.beginLoad();
      pace.endLoad();
    }
    expect(begun[0]).toBeGreaterThanOrEqual(2_000);
    expect(begun[0]).toBeLessThanOrEqual(2_050);
    expect(begun.length).toBeGreaterThan(7);
    expect(begun.length).toBeLessThanOrEqual(11);
  });

  it('the share holds for slow writes, too', () => {
    const { pace, time } = newPace({ busyShare: 0.01 });
    computeForLong(pace, time);
    const begun = writer(pace, time, 40);
    time.advance(12_000);
    expect(begun).toEqual([0, 4000, 8000, 12_000]);
  });

  it('between the forward passes of consecutive steps, the share still holds', () => {
    const { pace, time } = newPace({ busyShare: 0.01 });
    computeForLong(pace, time);
    const begun = writer(pace, time, 1);
    for (let step = 0; step < 10; step++) {
      time.advance(8);
      pace.computing(false);
      time.advance(1);
      pace.computing(true);
    }
    expect(begun).toEqual([0]);
    time.advance(10);
    expect(begun).toEqual([0, 100]);
  });

  it('a share of 1 is no limit', () => {
    const { pace } = newPace({ busyShare: 1 });
    pace.computing(true);
    for (let i = 0; i < 10; i++) expect(pace.begin(() => undefined)).toBeTypeOf('function');
  });

  it('a write that hangs delays the other tiers by a second at most, and its end counts once', () => {
    const { pace, time } = newPace({ busyShare: 0.1 });
    computeForLong(pace, time);
    const endHung = pace.begin(() => undefined)!;
    const begun = writer(pace, time, 1);
    time.advance(2_000);
    expect(begun.slice(0, 3)).toEqual([1_000, 1_010, 1_020]);
    endHung();
    endHung();
    const last = begun.at(-1)!;
    time.advance(3_000);
    // The pause after the long write is a second, too.
    expect(begun.find((ms) => ms > last)! - last).toBeLessThanOrEqual(1_010);
    expect(begun.length).toBeGreaterThan(200);
  });

  it('closed, it calls no tier again', () => {
    const { pace, time } = newPace();
    computeForLong(pace, time);
    pace.begin(() => undefined)!();
    const begun = writer(pace, time, 10);
    const waiting = writer(pace, time, 10);
    pace.close();
    time.advance(5_000);
    expect([begun.length, waiting.length]).toEqual([1, 0]);
    expect(time.pending).toBe(0);
  });

  describe('copies to host memory', () => {
    /** The time from now on at which copies may be made. */
    function opened(pace: WritePace, time: ManualTime): { ms?: number } {
      const startedMs = time.nowMs();
      const at: { ms?: number } = {};
      const wait = (): void => {
        if (pace.copies.isOpen) at.ms = time.nowMs() - startedMs;
        else pace.copies.whenOpen(wait);
      };
      wait();
      return at;
    }

    it('wait while the engine computes and no CPU is idle, until it stops', () => {
      const { pace, time } = newPace();
      pace.computing(true);
      const at = opened(pace, time);
      time.advance(1_000);
      pace.computing(false);
      expect(at.ms).toBeUndefined();
      time.advance(200);
      expect(at.ms).toBeGreaterThanOrEqual(1_050);
      expect(time.pending).toBe(0);
    });

    it('wait for five seconds at most', () => {
      const { pace, time } = newPace();
      pace.computing(true);
      const at = opened(pace, time);
      time.advance(5_050);
      expect(at.ms).toBeGreaterThanOrEqual(5_000);
    });

    it('do not wait if a CPU is idle, if the engine does not compute, or if writes have no limit', () => {
      const idleCpu = newPace({ isBusy: false });
      idleCpu.pace.computing(true);
      const unlimited = newPace({ busyShare: 1 });
      unlimited.pace.computing(true);
      for (const { pace, time } of [idleCpu, unlimited, newPace()]) expect(opened(pace, time).ms).toBe(0);
    });

    it('do not wait while another server waits for blocks', () => {
      const { pace, time } = newPace();
      pace.computing(true);
      const at = opened(pace, time);
      time.advance(100);
      pace.lease(1_000);
      expect(at.ms).toBe(100);
      time.advance(900);
      expect(pace.copies.isOpen).toBe(true);
      time.advance(200);
      expect(pace.copies.isOpen).toBe(false);
    });
  });
});
