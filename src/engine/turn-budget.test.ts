import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { TurnBudget } from './turn-budget.ts';

it('is used up in a turn, and full again in the next turn', async () => {
  const budget = new TurnBudget();
  for (let turn = 0; turn < 3; turn++) {
    expect(budget.take(16_385)).toBe(false);
    expect(budget.take(16_000)).toBe(true);
    expect(budget.take(385)).toBe(false);
    expect(budget.take(384)).toBe(true);
    expect(budget.take(1)).toBe(false);
    expect(budget.take(0)).toBe(true);
    await nextTurn();
  }
});
