import { describe, expect, it } from 'vitest';
import { calibrate, linesOfCpuTimes, overBudget } from './cpu-budget.ts';

const secondsOfFile = { 'a.test.ts': 1, 'b.test.ts': 3000, 'c.test.ts': 300 };

describe('the budget of CPU time', () => {
  it('fails files above it, most first', () => {
    expect(overBudget({ calibration: 0.1, secondsOfFile }).map((text) => text.split(' ')[0])).toEqual([
      'b.test.ts',
      'c.test.ts',
    ]);
  });

  it('is larger on a slower machine', () => {
    expect(overBudget({ calibration: 3, secondsOfFile })).toEqual([expect.stringContaining('b.test.ts')]);
    expect(overBudget({ calibration: 300, secondsOfFile })).toEqual([]);
  });

  it('is printed with the files that use the most', () => {
    const lines = linesOfCpuTimes({ calibration: 0.1, secondsOfFile });
    expect(lines[0]).toContain('3 test files');
    expect(lines[0]).toContain('55.0 minutes');
    expect(lines[2]).toContain('3000.0 s b.test.ts');
  });

  it('measures the machine with work', () => expect(calibrate()).toBeGreaterThan(0));
});
