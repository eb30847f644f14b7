import { expect, test } from 'vitest';
import { ManualTime } from '../../../test/support/manual-time.ts';
import { CircuitBreaker } from './circuit-breaker.ts';

const make = () => {
  const time = new ManualTime();
  const breaker = new CircuitBreaker(time, { failuresMax: 3, coolDownMs: 1000, coolDownMaxMs: 4000 });
  const fail = (times: number): void => {
    for (let i = 0; i < times; i++) breaker.tryAcquire()!.fail();
  };
  return { time, breaker, fail };
};

test('a breaker opens after consecutive failures only', () => {
  const { breaker, fail } = make();
  fail(2);
  breaker.tryAcquire()!.succeed();
  fail(2);
  expect(breaker.state).toBe('closed');
  fail(1);
  expect(breaker.state).toBe('open');
  expect(breaker.tryAcquire()).toBeUndefined();
});

test('a half-open breaker allows one probe, and closes when the probe succeeds', () => {
  const { time, breaker, fail } = make();
  fail(3);
  time.advance(999);
  expect(breaker.tryAcquire()).toBeUndefined();
  time.advance(1);
  expect(breaker.state).toBe('halfOpen');
  const probe = breaker.tryAcquire()!;
  expect(breaker.tryAcquire()).toBeUndefined();
  probe.succeed();
  expect(breaker.state).toBe('closed');
  fail(2);
  expect(breaker.state).toBe('closed');
});

test('each failed probe doubles the cool-down up to a limit, and closing resets it', () => {
  const { time, breaker, fail } = make();
  fail(3);
  for (const coolDownMs of [1000, 2000, 4000, 4000]) {
    time.advance(coolDownMs - 1);
    expect(breaker.state, `${coolDownMs}`).toBe('open');
    time.advance(1);
    breaker.tryAcquire()!.fail();
  }
  time.advance(4000);
  breaker.tryAcquire()!.succeed();
  fail(3);
  time.advance(1000);
  expect(breaker.state).toBe('halfOpen');
  expect(breaker.openedCount).toBe(6);
});

test('another probe is allowed after a probe was withdrawn', () => {
  const { time, breaker, fail } = make();
  fail(3);
  time.advance(1000);
  breaker.tryAcquire()!.withdraw();
  expect(breaker.state).toBe('halfOpen');
  breaker.tryAcquire()!.succeed();
  expect(breaker.state).toBe('closed');
});

test('late, second and older outcomes are ignored', () => {
  const { time, breaker } = make();
  const old = [1, 2, 3, 4].map(() => breaker.tryAcquire()!);
  for (const permit of old.slice(0, 3)) permit.fail();
  expect(breaker.state).toBe('open');
  old[3]!.succeed();
  expect(breaker.state).toBe('open');
  time.advance(1000);
  const probe = breaker.tryAcquire()!;
  probe.succeed();
  probe.fail();
  expect(breaker.state).toBe('closed');
});
