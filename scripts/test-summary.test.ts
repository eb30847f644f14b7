import { resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { summaryOf, type TestReport, type TestRun } from './test-summary.ts';

const test = (fullName: string, status: string, failureMessages: string[] = [], skipReason?: string) => ({
  fullName,
  status,
  failureMessages,
  meta: { ...(skipReason !== undefined && { skipReason }) },
});
const file = (name: string, assertionResults: ReturnType<typeof test>[], message = '') => ({
  name: resolve(name),
  message,
  status: message || assertionResults.some(({ status }) => status === 'failed') ? 'failed' : 'passed',
  assertionResults,
});
const report = (...testResults: TestReport['testResults']): TestReport => ({
  numPassedTests: testResults.flatMap((one) => one.assertionResults).filter(({ status }) => status === 'passed').length,
  testResults,
});
const runOf = (...testResults: TestReport['testResults']): TestRun => ({
  report: report(...testResults),
  exitCode: testResults.some(({ status }) => status === 'failed') ? 1 : 0,
});
const summary = (...testResults: TestReport['testResults']): readonly string[] =>
  summaryOf([runOf(...testResults)]).lines;

describe('summary of a run of the tests', () => {
  it('counts passed tests', () => {
    expect(summary(file('a.test.ts', [test('x', 'passed'), test('y', 'passed')]))).toEqual([
      '2 passed, 0 failed, 0 skipped',
    ]);
  });

  it('prints skipped tests once for each file and reason', () => {
    const skipped = [test('x', 'skipped', [], 'no AMX'), test('y', 'pending', [], 'no AMX'), test('z', 'skipped')];
    expect(summary(file('a.test.ts', skipped))).toEqual([
      'skipped: 2 of a.test.ts: no AMX',
      'skipped: 1 of a.test.ts: a suite failed before the test',
      '0 passed, 0 failed, 3 skipped',
    ]);
  });

  it('prints failed tests with the start of their error directly before the counts', () => {
    const long = Array.from({ length: 40 }, (_, line) => `line ${line}`).join('\n');
    const lines = summary(file('a.test.ts', [test('x', 'failed', [long]), test('y', 'skipped', [], 'no AMX')]));
    expect(lines.slice(0, 3)).toEqual(['skipped: 1 of a.test.ts: no AMX', 'FAILED: a.test.ts: x', '    line 0']);
    expect(lines.slice(-2)).toEqual(['    line 11', '0 passed, 1 failed, 1 skipped']);
  });

  it('counts a file that could not run as failed', () => {
    const broken = file('a.test.ts', [test('x', 'skipped')], 'Cannot find module');
    expect(summary(broken, file('b.test.ts', [test('y', 'passed')]))).toEqual([
      'skipped: 1 of a.test.ts: a suite failed before the test',
      'FAILED: a.test.ts',
      '    Cannot find module',
      '1 passed, 1 failed, 1 skipped',
    ]);
  });

  it('counts failures that are not failed tests', () => {
    const passed = report(file('a.test.ts', [test('x', 'passed')]));
    expect(summaryOf([{ report: passed, exitCode: 0 }], ['the coverage']).lines).toEqual([
      'FAILED: the coverage',
      '1 passed, 1 failed, 0 skipped',
    ]);
    const { lines, failed } = summaryOf([{ report: passed, exitCode: 1 }]);
    expect(lines).toEqual([expect.stringMatching(/^FAILED: .* exit code 1/), '1 passed, 1 failed, 0 skipped']);
    expect(failed).toBe(1);
  });

  it('counts several runs together, each with its own exit code', () => {
    const first = runOf(file('a.test.ts', [test('x', 'passed'), test('y', 'failed', ['wrong'])]));
    const second = runOf(file('b.gpu.ts', [test('x', 'passed'), test('y', 'skipped', [], 'no GPU')]));
    expect(summaryOf([first, second]).lines.at(-1)).toBe('2 passed, 1 failed, 1 skipped');
    const crashed = { report: report(), exitCode: 134 };
    expect(summaryOf([first, second, crashed]).lines.slice(-2)).toEqual([
      expect.stringMatching(/^FAILED: .* exit code 134/),
      '2 passed, 2 failed, 1 skipped',
    ]);
  });

  it('counts what a bare run skips in one line, and names it before its failures', () => {
    const skipped = [
      test('x', 'skipped', [], 'no zig'),
      test('y', 'skipped', [], 'no AMX'),
      test('z', 'failed', ['no zig']),
    ];
    expect(summaryOf([{ ...runOf(file('a.test.ts', skipped)), isBare: true }]).lines).toEqual([
      'skipped: 2 of the bare run: what they need is missing there',
      'FAILED: bare: a.test.ts: z',
      '    no zig',
      '0 passed, 1 failed, 2 skipped',
    ]);
  });
});
