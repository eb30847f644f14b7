/**
 * Tests that this machine cannot run: no C compiler, an instruction that the CPU lacks, another operating system. Reports list them as
 * skipped, each with the reason. No other code may skip a test.
 */
import type { TestOptions } from 'vitest';

declare module 'vitest' {
  interface TaskMeta {
    /** The reason for reports in JSON; .ci/run prints it. */
    skipReason?: string;
  }
}

/**
 * Options of a test, or of a suite with all its tests. If the need is not met, neither they nor the suite's hooks run. `reason` names the
 * missing thing, for example "no C compiler". The body of a suite runs in any case, because it lists the tests: it may not open what is
 * missing.
 */
export const needs = (isMet: boolean, reason: string): Pick<TestOptions, 'skip' | 'meta'> =>
  isMet ? {} : { skip: true, meta: { skipReason: reason } };
