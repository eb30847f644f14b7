/**
 * `node dist/scripts/test-summary.js REPORT.json` prints the end of a run of the tests from Vitest's JSON report: tests that this machine
 * cannot run, one line for each reason; failed tests with their first error; and a line "N passed, N failed, N skipped".
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

export function summaryOf(report: TestReport): string[] {
  const tests = report.testResults.flatMap((file) =>
    file.assertionResults.map((test) => ({ ...test, file: file.name })),
  );
  const skipped = tests.filter(({ status }) => status === 'skipped' || status === 'pending');
  const failed = tests.filter(({ status }) => status === 'failed');
  const failedFiles = report.testResults.filter(
    (file) => file.status === 'failed' && !file.assertionResults.some(({ status }) => status === 'failed'),
  );
  const reasons = new Map<string, number>();
  for (const { file, meta } of skipped) {
    const reason = `${relative('', file)}: ${meta?.skipReason ?? 'a suite failed before the test'}`;
    reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
  }
  return [
    ...[...reasons].map(([reason, count]) => `skipped: ${count} of ${reason}`),
    ...failedFiles.flatMap(({ name, message }) => [`FAILED: ${relative('', name)}`, ...firstLines(message)]),
    ...failed.flatMap(({ file, fullName, failureMessages: [message] }) => [
      `FAILED: ${relative('', file)}: ${fullName}`,
      ...firstLines(message ?? ''),
    ]),
    `${report.numPassedTests} passed, ${failed.length + failedFiles.length} failed, ${skipped.length} skipped`,
  ];
}

function firstLines(message: string): string[] {
  return message
    .split('\n')
    .slice(0, errorLines)
    .map((line) => `    ${line}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  for (const line of summaryOf(JSON.parse(readFileSync(process.argv[2]!, 'utf8')))) console.log(line);
