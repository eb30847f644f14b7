import { expect, test } from 'vitest';
import { simulate } from './run.ts';

/** Half of KVASIR_SIM_STEPS; the other half, from a fresh seed, is in `fresh-seeds.test.ts`, to run beside this one. */
const steps = Number(process.env.KVASIR_SIM_STEPS ?? 1_000_000) / 2;

test(`${steps} steps in the worlds from seed 1 on`, { timeout: Infinity }, () => {
  const report = simulate(1, steps);
  expect(report.steps).toBeGreaterThanOrEqual(steps);
  expect(report.finished).toBeGreaterThan(report.worlds);
  expect(report.loaded).toBeGreaterThan(report.worlds);
});
