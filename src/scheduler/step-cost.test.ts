import { describe, expect, test } from 'vitest';
import { Prng } from '../base/prng.ts';
import { StepCost } from './step-cost.ts';

const cost = ([, tokens = 0, context = 0]: readonly number[]): number => 10 + 2 * tokens + context / 100;
const features = (tokens: number, context: number): number[] => [1, tokens, context];
const learned = (seed = 1, noise = 0): StepCost => {
  const prng = new Prng(seed);
  const model = new StepCost([8, 1, 1 / 400]);
  for (let i = 0; i < 200; i++) {
    const step = features(prng.between(1, 60), prng.between(0, 3000));
    model.observe(step, cost(step) * (1 + noise * (2 * prng.unit() - 1)));
    model.checkInvariants();
  }
  return model;
};

describe('the predicted duration of steps', () => {
  test('is 0 before the first step, and proportional to the first step after it', () => {
    const model = new StepCost([8, 1, 1 / 400]);
    expect(model.predict(features(10, 0))).toBe(0);
    model.observe(features(12, 0), 40);
    expect(model.predict(features(12, 0))).toBeCloseTo(40, 0);
    expect(model.predict(features(32, 0))).toBeCloseTo(80, 0);
  });

  test('is close to the exact duration after 200 steps, with and without noise', () => {
    for (const [noise, tolerance] of [
      [0, 0.02],
      [0.1, 0.15],
    ] as const)
      for (const step of [features(1, 0), features(30, 500), features(60, 3000)])
        expect(Math.abs(learned(3, noise).predict(step) / cost(step) - 1)).toBeLessThan(tolerance);
  });

  test('of other steps stays right after a thousand equal steps', () => {
    const model = learned();
    for (let i = 0; i < 1000; i++) model.observe(features(1, 100), cost(features(1, 100)));
    model.checkInvariants();
    expect(model.predict(features(50, 2000)) / cost(features(50, 2000))).toBeCloseTo(1, 1);
  });

  test('changes after two long steps, but not after one, and after one short step', () => {
    const step = features(20, 0);
    const model = learned();
    const before = model.predict(step);
    model.observe(step, 5000);
    expect(model.hasPendingOutlier).toBe(true);
    expect(model.predict(step)).toBe(before);
    model.observe(step, cost(step));
    expect(model.hasPendingOutlier).toBe(false);
    model.observe(step, 4 * cost(step));
    model.observe(step, 4 * cost(step));
    expect(model.predict(step) / cost(step)).toBeGreaterThan(3.5);
    model.observe(step, cost(step));
    expect(model.predict(step) / cost(step)).toBeLessThan(1.5);
  });

  test('is right after the second step if the first step had a pause', () => {
    const model = new StepCost([8, 1, 1 / 400]);
    model.observe(features(400, 500), 100 * cost(features(400, 500)));
    for (const tokens of [6, 14, 22]) {
      const step = features(tokens, 500);
      model.observe(step, cost(step));
      expect(model.predict(step) / cost(step)).toBeCloseTo(1, 1);
      model.checkInvariants();
    }
    expect(model.predict(features(60, 500)) / cost(features(60, 500))).toBeCloseTo(1, 1);
  });

  test('does not change by durations that are not positive', () => {
    const model = new StepCost([1, 1, 1]);
    for (const ms of [0, -1, Number.NaN]) model.observe(features(3, 3), ms);
    expect(model.observations).toBe(0);
  });

  test('has finite weights after durations of any magnitude', () => {
    const prng = new Prng(5);
    const model = new StepCost([8, 1, 1 / 400]);
    for (let i = 0; i < 5000; i++) {
      model.observe(features(prng.between(0, 60), prng.between(0, 3000)), 10 ** (12 * prng.unit() - 6));
      model.checkInvariants();
    }
  });
});
