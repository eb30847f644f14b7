import { describe, expect, it } from 'vitest';
import { ManualTime } from '../../test/support/manual-time.ts';
import { IdleCpus, parseProcStat, readCpuTimes } from './idle-cpus.ts';

function newCpus(count: number) {
  const time = new ManualTime();
  let [idle, total, reads] = [1_000, 5_000, 0];
  const cpus = new IdleCpus(time, count, () => {
    reads++;
    return { idle, total };
  });
  /** Time passes; on average so many CPUs are idle. */
  const pass = (ms: number, idleCpus: number): void => {
    idle += ms * idleCpus;
    total += ms * count;
    time.advance(ms);
  };
  return { cpus, pass, reads: () => reads };
}

describe('IdleCpus', () => {
  it.each([
    [2, 0.4, true],
    [2, 0.6, false],
    [64, 6, true],
    [64, 7, false],
  ])('of %i CPUs, %d are idle: busy is %s', (count, idle, isBusy) => {
    const { cpus, pass } = newCpus(count);
    expect(cpus.isBusy).toBe(false);
    pass(100, idle);
    expect(cpus.isBusy).toBe(isBusy);
  });

  it('reads the times ten times a second at most, and only the time since the last reading counts', () => {
    const { cpus, pass, reads } = newCpus(2);
    pass(500, 2);
    expect(cpus.isBusy).toBe(false);
    pass(99, 0);
    expect(cpus.isBusy).toBe(false);
    expect(reads()).toBe(2);
    pass(1, 0);
    expect(cpus.isBusy).toBe(true);
    expect(reads()).toBe(3);
  });

  it('says busy if it was not asked for long, until the next tenth of a second is measured', () => {
    const { cpus, pass } = newCpus(2);
    pass(60_000, 2);
    expect(cpus.isBusy).toBe(true);
    pass(100, 2);
    expect(cpus.isBusy).toBe(false);
  });

  it('keeps the last answer if the system counts no time', () => {
    const { cpus, pass } = newCpus(2);
    pass(100, 0);
    expect(cpus.isBusy).toBe(true);
    pass(0, 2);
    expect(cpus.isBusy).toBe(true);
  });

  it('reads the sum of all CPUs from /proc/stat, waiting for disks as idle and guests once', () => {
    const text = 'cpu  10 20 30 400 50 6 7 8 9 9\ncpu0 1 2 3 4 5 6 7 8 9 9\nintr 1 2 3\n';
    expect(parseProcStat(text)).toEqual({ idle: 450, total: 531 });
    expect(parseProcStat('')).toBeUndefined();
    expect(parseProcStat('cpu  1 2\n')).toBeUndefined();
  });

  it('has times of this machine', () => {
    const { idle, total } = readCpuTimes();
    expect(idle).toBeGreaterThan(0);
    expect(total).toBeGreaterThan(idle);
  });
});
