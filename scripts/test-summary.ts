/**
 * `node dist/scripts/test-summary.js [--run REPORT.json EXIT-CODE]... [--bare REPORT.json EXIT-CODE] [--cpu TIMES.json] [--failure TEXT]...`
 * prints the end of runs of tests from Vitest's JSON reports and exit codes: the files with the most CPU time; tests that this machine
 * cannot run, one line for each reason; failed tests with their first error; the other failures; and a line
 * "N passed, N failed, N skipped". A bare run (`.ci/test-bare`) skips on purpose, which is one line. Exits with 1 if anything failed.
 */
import { readFileSync } from 'node:fs';
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type CpuTimes, linesOfCpuTimes, overBudget } from './cpu-budget.ts';

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
  /** Without what tests need. */
  readonly isBare?: boolean;
}

/** `others`: failures of checks that are no tests. */
export function summaryOf(runs: readonly TestRun[], others: readonly string[] = []): Summary {
  const files = runs.flatMap(({ report, isBare = false }) =>
    report.testResults.map((file) => ({
      ...file,
      isBare,
      shown: `${isBare ? 'bare: ' : ''}${relative('', file.name)}`,
    })),
  );
  const tests = files.flatMap((file) => file.assertionResults.map((test) => ({ ...file, ...test })));
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
  for (const { shown, meta, isBare } of skipped) {
    const reason = isBare
      ? 'the bare run: what they need is missing there'
      : `${shown}: ${meta?.skipReason ?? 'a suite failed before the test'}`;
    reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
  }
  const lines = [
    ...[...reasons].map(([reason, count]) => `skipped: ${count} of ${reason}`),
    ...failedFiles.flatMap(({ shown, message }) => [`FAILED: ${shown}`, ...firstLines(message)]),
    ...failed.flatMap(({ shown, fullName, failureMessages: [message] }) => [
      `FAILED: ${shown}: ${fullName}`,
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
  const runs: TestRun[] = [];
  const others: string[] = [];
  const rest = process.argv.slice(2);
  for (let option = rest.shift(); option !== undefined; option = rest.shift()) {
    const value = rest.shift()!;
    if (option === '--failure') others.push(value);
    else if (option === '--cpu') others.push(...reportCpu(value));
    else runs.push({ report: readReport(value), exitCode: Number(rest.shift()), isBare: option === '--bare' });
  }
  const { lines, failed } = summaryOf(runs, others);
  for (const line of lines) console.log(line);
  if (failed > 0) process.exitCode = 1;
}

/** Prints the CPU times, and returns a failure for each file above its budget. A run that crashed has none. */
function reportCpu(path: string): string[] {
  const text = readFileSync(path, 'utf8');
  if (text === '') return [];
  const times = JSON.parse(text) as CpuTimes;
  for (const line of linesOfCpuTimes(times)) console.log(line);
  return overBudget(times);
}
