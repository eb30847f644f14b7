import { expect, test } from 'vitest';
import { simulate } from '../../sim/run.ts';

/** More: KVASIR_SIM_STEPS; another start: KVASIR_FUZZ_SEED. A failure names its seed. */
const steps = Number(process.env.KVASIR_SIM_STEPS ?? 250_000);
const seed = Number(process.env.KVASIR_FUZZ_SEED ?? 1);

test(`${steps} steps in random worlds say what the reference says, and end`, () => {
  const report = simulate(seed, steps);
  expect(report.steps).toBeGreaterThanOrEqual(steps);
  expect(report.finished).toBeGreaterThan(0);
});
