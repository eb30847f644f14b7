/**
 * A reporter of Vitest: prints the CPU seconds of the test files, which `cpu-seconds.ts` measures. With `KVASIR_CPU_TIMES=FILE`, it also
 * writes them for `scripts/test-summary.ts`.
 */
import { writeFileSync } from 'node:fs';
import { relative } from 'node:path';
import type { Reporter, TestModule } from 'vitest/node';
import { type CpuTimes, calibrate, linesOfCpuTimes } from '../../scripts/cpu-budget.ts';

export default class CpuReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const seconds = modules.map((file) => [relative('', file.moduleId), file.meta().cpuSeconds ?? 0] as const);
    const times: CpuTimes = { calibration: calibrate(), secondsOfFile: Object.fromEntries(seconds) };
    console.log(['', ...linesOfCpuTimes(times), ''].join('\n'));
    const path = process.env.KVASIR_CPU_TIMES;
    if (path !== undefined) writeFileSync(path, JSON.stringify(times));
  }
}
