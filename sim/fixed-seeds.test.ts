import { expect, test } from 'vitest';
import { simulate } from './run.ts';

/** Half of KVASIR_SIM_STEPS; the other half is in `fresh-seeds.test.ts`, which runs at the same time. */
const steps = Number(process.env.KVASIR_SIM_STEPS ?? 1_000_000) / 2;

test(`no invariant fails in ${steps} steps of the worlds from seed 1 on`, { timeout: Infinity }, () => {
  const report = simulate(1, steps);
  expect(report.steps).toBeGreaterThanOrEqual(steps);
  expect(report.finished).toBeGreaterThan(report.worlds);
  expect(report.loaded).toBeGreaterThan(report.worlds);
});
