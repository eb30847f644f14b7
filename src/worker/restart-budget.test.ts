import { describe, expect, it } from 'vitest';
import { RestartBudget } from './restart-budget.ts';

const policy = { startsMax: 3, withinMs: 1000, backoffMs: 100 };

describe('a worker that dies', () => {
  it('is restarted at once, then after a wait, then not again', () => {
    const budget = new RestartBudget(policy);
    expect(budget.ended(300)).toEqual({ delayMs: 0 });
    expect(budget.ended(0)).toEqual({ delayMs: 100 });
    expect(budget.ended(600)).toEqual({ starts: 3, seconds: 1 });
  });

  it('has its whole budget again after a process that served long enough', () => {
    const budget = new RestartBudget(policy);
    for (let day = 0; day < 5; day++) {
      expect(budget.ended(5000)).toEqual({ delayMs: 0 });
      expect(budget.ended(1)).toEqual({ delayMs: 0 });
      expect(budget.ended(1)).toEqual({ delayMs: 100 });
    }
  });

  it('is not given up if its processes together served long enough', () => {
    const budget = new RestartBudget(policy);
    for (let n = 0; n < 20; n++) expect(budget.ended(400)).toHaveProperty('delayMs');
  });
});
