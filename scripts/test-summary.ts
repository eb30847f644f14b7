/**
 * `node dist/scripts/test-summary.js RUNS [REPORT.json EXIT-CODE]... [FAILURE...]` prints the end of so many runs of tests from Vitest's JSON
 * reports and exit codes: tests that this machine cannot run, one line for each reason; failed tests with their first error; the other
 * failures; and a line "N passed, N failed, N skipped". Exits with 1 if anything failed.
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

export interface TestRun {
  readonly report: TestReport;
  readonly exitCode: number;
}

/** `others`: failures of checks that are no tests. */
export function summaryOf(runs: readonly TestRun[], others: readonly string[] = []): Summary {
  const files = runs.flatMap(({ report }) => report.testResults);
  const tests = files.flatMap((file) => file.assertionResults.map((test) => ({ ...test, file: file.name })));
  const skipped = tests.filter(({ status }) => status === 'skipped' || status === 'pending');
  const failed = tests.filter(({ status }) => status === 'failed');
  const failedFiles = files.filter(
    (file) => file.status === 'failed' && !file.assertionResults.some(({ status }) => status === 'failed'),
  );
  const failures = [
    ...runs.filter(endedOtherwise).map(({ exitCode }) => {
      return `the tests ended with exit code ${exitCode}, though none failed: see "Unhandled Errors" above`;
    }),
    ...others,
  ];
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
    `${runs.reduce((sum, { report }) => sum + report.numPassedTests, 0)} passed, ${failedCount} failed, ${skipped.length} skipped`,
  ];
  return { lines, failed: failedCount };
}

/** The exit code reports a failure, and no test or file does. */
const endedOtherwise = ({ report, exitCode }: TestRun): boolean =>
  exitCode !== 0 && !report.testResults.some(({ status }) => status === 'failed');

/** A run that crashed has an empty file. */
function readReport(path: string): TestReport {
  const text = readFileSync(path, 'utf8');
  return text === '' ? { numPassedTests: 0, testResults: [] } : (JSON.parse(text) as TestReport);
}

function firstLines(message: string): string[] {
  return message
    .split('\n')
    .slice(0, errorLines)
    .map((line) => `    ${line}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [count, ...rest] = process.argv.slice(2);
  const runs = Array.from({ length: Number(count) }, () => {
    const [path, exitCode] = rest.splice(0, 2);
    return { report: readReport(path!), exitCode: Number(exitCode) };
  });
  const { lines, failed } = summaryOf(runs, rest);
  for (const line of lines) console.log(line);
  if (failed > 0) process.exitCode = 1;
}
