/**
 * Tests that this machine cannot run: no C compiler, an instruction that the CPU lacks, another operating system. Reports list them as
 * skipped, each with the reason. No other code may skip a test.
 */
import { beforeEach, it, type TestContext } from 'vitest';

declare module 'vitest' {
  interface TaskMeta {
    /** The reason for reports in JSON; .ci/run prints it. */
    skipReason?: string;
  }
}

function skip(context: TestContext, reason: string): never {
  context.task.meta.skipReason = reason;
  return context.skip(reason);
}

/** In a suite: all of its tests need this. `reason` names the missing thing, for example "no C compiler". */
export function testsNeed(isMet: boolean, reason: string): void {
  if (!isMet) beforeEach((context) => skip(context, reason));
}

/** A single test that needs this. `timeoutMs`: for a test that takes minutes also on an idle machine. */
export function itNeeds(
  isMet: boolean,
  reason: string,
  title: string,
  test: () => void | Promise<void>,
  timeoutMs?: number,
): void {
  it(title, { ...(timeoutMs === undefined ? {} : { timeout: timeoutMs }) }, (context) =>
    isMet ? test() : skip(context, reason),
  );
}
