import { afterAll, expect, test } from 'vitest';
import { CompiledCopies } from './compiled-copies.ts';

/** Half of KVASIR_SIM_STEPS; the other half is in `fresh-seeds.test.ts`, which runs at the same time. */
const steps = Number(process.env.KVASIR_SIM_STEPS ?? 12_000) / 2;
const offloadSteps = Math.round(steps / 5);
const spanSteps = Math.round(steps / 10);
const mixedSteps = steps - offloadSteps - spanSteps;

// Compiled code is faster than the code of Vitest, which reads each import through an object.
const copies = new CompiledCopies([]);
const { simulate } = await copies.simulator();
afterAll(() => copies.remove());

test(`no invariant fails in ${mixedSteps} steps of the worlds from seed 1 on`, { timeout: Infinity }, async () => {
  const report = await simulate(1, mixedSteps);
  expect(report.steps).toBeGreaterThanOrEqual(mixedSteps);
  expect(report.finished).toBeGreaterThan(report.worlds);
  expect(report.loaded).toBeGreaterThan(report.worlds);
});

test(`no invariant fails in ${offloadSteps} steps with preemptions and a tier below the pool`, {
  timeout: Infinity,
}, async () => {
  const report = await simulate(1, offloadSteps, { scenario: 'offload' });
  expect(report.steps).toBeGreaterThanOrEqual(offloadSteps);
  expect(report.finished).toBeGreaterThan(report.worlds);
  expect(report.loaded).toBeGreaterThan(report.worlds);
  expect(report.flushedSaves).toBeGreaterThan(report.worlds);
});

test(`no invariant fails in ${spanSteps} steps of requests with several spans`, { timeout: Infinity }, async () => {
  const report = await simulate(1, spanSteps, { scenario: 'spans' });
  expect(report.steps).toBeGreaterThanOrEqual(spanSteps);
  expect(report.finished).toBeGreaterThan(report.worlds);
});
