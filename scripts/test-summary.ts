/**
 * `node dist/scripts/test-summary.js REPORT.json EXIT-CODE [FAILURE...]` prints the end of a run of the tests from Vitest's JSON report and
 * exit code: tests that this machine cannot run, one line for each reason; failed tests with their first error; the other failures; and a
 * line "N passed, N failed, N skipped". Exits with 1 if anything failed.
 */
import { readFileSync } from 'node:fs';
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';

export interface TestReport {
  numPassedTests: number;
  testResults: FileReport[];
}

interface FileReport {
  name: string;
  /** Of an error outside the tests: a file that cannot be imported, a failed hook. */
  message: string;
  status: string;
  assertionResults: { fullName: string; status: string; failureMessages: string[]; meta?: { skipReason?: string } }[];
}

const errorLines = 12;

interface Summary {
  readonly lines: readonly string[];
  readonly failed: number;
}

/** `others`: failures of checks that are no tests. */
export function summaryOf(report: TestReport, exitCode: number, others: readonly string[] = []): Summary {
  const tests = report.testResults.flatMap((file) =>
    file.assertionResults.map((test) => ({ ...test, file: file.name })),
  );
  const skipped = tests.filter(({ status }) => status === 'skipped' || status === 'pending');
  const failed = tests.filter(({ status }) => status === 'failed');
  const failedFiles = report.testResults.filter(
    (file) => file.status === 'failed' && !file.assertionResults.some(({ status }) => status === 'failed'),
  );
  const failures = [...others];
  if (exitCode !== 0 && failed.length + failedFiles.length === 0)
    failures.unshift(`the tests ended with exit code ${exitCode}, though none failed: see "Unhandled Errors" above`);
  const failedCount = failed.length + failedFiles.length + failures.length;
  const reasons = new Map<string, number>();
  for (const { file, meta } of skipped) {
    const reason = `${relative('', file)}: ${meta?.skipReason ?? 'a suite failed before the test'}`;
    reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
  }
  const lines = [
    ...[...reasons].map(([reason, count]) => `skipped: ${count} of ${reason}`),
    ...failedFiles.flatMap(({ name, message }) => [`FAILED: ${relative('', name)}`, ...firstLines(message)]),
    ...failed.flatMap(({ file, fullName, failureMessages: [message] }) => [
      `FAILED: ${relative('', file)}: ${fullName}`,
      ...firstLines(message ?? ''),
    ]),
    ...failures.map((failure) => `FAILED: ${failure}`),
    `${report.numPassedTests} passed, ${failedCount} failed, ${skipped.length} skipped`,
  ];
  return { lines, failed: failedCount };
}

function firstLines(message: string): string[] {
  return message
    .split('\n')
    .slice(0, errorLines)
    .map((line) => `    ${line}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [path, exitCode, ...others] = process.argv.slice(2);
  const { lines, failed } = summaryOf(JSON.parse(readFileSync(path!, 'utf8')), Number(exitCode), others);
  for (const line of lines) console.log(line);
  if (failed > 0) process.exitCode = 1;
}
