import { describe, it } from 'vitest';

/**
 * With `KVASIR_TEST_LONG=1`, tests run all combinations of their tables and longer workloads. The default form is a part of them that
 * takes a few minutes on two cores.
 */
export const isLongForm = process.env.KVASIR_TEST_LONG === '1';

/** A number of runs, tokens or requests, or another part of a test. */
export const inLongForm = <T>(long: T, short: T): T => (isLongForm ? long : short);

/** `it` for a test that only the long form has. */
export function itInLongForm(name: string, run: () => void | Promise<void>): void {
  if (isLongForm) it(name, run);
}

/** `describe` for tests that only the long form has: a suite must have tests. */
export function describeInLongForm(name: string, body: () => void): void {
  if (isLongForm) describe(name, body);
}

/** The runs of a test with random input: a quarter of `long` by default. `KVASIR_FUZZ_RUNS` sets the number for all such tests. */
export const fuzzRuns = (long: number): number =>
  Number(process.env.KVASIR_FUZZ_RUNS ?? inLongForm(long, Math.ceil(long / 4)));
