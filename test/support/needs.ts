/**
 * Tests that this machine cannot run: no C compiler, an instruction that the CPU lacks, another operating system. They are listed as
 * skipped, each with the reason, so that a report shows what was not tested. Nothing else may skip a test.
 */
import { beforeEach, it, type TestContext } from 'vitest';

declare module 'vitest' {
  interface TaskMeta {
    /** For reports in JSON: .ci/run prints it. */
    skipReason?: string;
  }
}

function leaveOut(context: TestContext, reason: string): never {
  context.task.meta.skipReason = reason;
  return context.skip(reason);
}

/** In a suite: all of its tests need this. `reason` says what is missing, for example "no C compiler". */
export function testsNeed(isThere: boolean, reason: string): void {
  if (!isThere) beforeEach((context) => leaveOut(context, reason));
}

/** One test that needs this. */
export function itNeeds(isThere: boolean, reason: string, title: string, test: () => void | Promise<void>): void {
  it(title, (context) => (isThere ? test() : leaveOut(context, reason)));
}
