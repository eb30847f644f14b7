/** The budget of CPU time for each test file of the default form. What needs more belongs to the long form. */

/** What `test/support/cpu-reporter.ts` measures in one run. */
export interface CpuTimes {
  /** Of `workOfCalibration` in this run. */
  readonly calibration: number;
  readonly secondsOfFile: Readonly<Record<string, number>>;
}

/**
 * On the machine of `calibrationSeconds`. Twice the largest file of a fresh clone, whose first run compiles kernels: neighbours on the same
 * cores can double the time of a file.
 */
const budgetSeconds = 100;
/** Of `workOfCalibration` on an idle core of an AMD EPYC of the third generation, at which the budget was set. */
const calibrationSeconds = 0.3;

/** A slower machine has more: CPU time depends on the CPU and on what else its caches hold. */
const budgetOf = ({ calibration }: CpuTimes): number => budgetSeconds * Math.max(1, calibration / calibrationSeconds);

export function overBudget(times: CpuTimes): string[] {
  const budget = budgetOf(times);
  return mostFirst(times)
    .filter(([, seconds]) => seconds > budget)
    .map(
      ([file, seconds]) =>
        `${file} used ${shown(seconds)} of CPU time, and its budget is ${shown(budget)}: what another test claims belongs to the long form`,
    );
}

export function linesOfCpuTimes(times: CpuTimes): string[] {
  const files = mostFirst(times);
  const sum = files.reduce((total, [, seconds]) => total + seconds, 0);
  return [
    `CPU time of ${files.length} test files with the processes that they started: ${(sum / 60).toFixed(1)} minutes.`,
    `Most of it, with a budget of ${shown(budgetOf(times))} for each file:`,
    ...files.slice(0, 10).map(([file, seconds]) => `  ${shown(seconds).padStart(8)} ${file}`),
  ];
}

const mostFirst = ({ secondsOfFile }: CpuTimes) => Object.entries(secondsOfFile).sort(([, a], [, b]) => b - a);
const shown = (seconds: number): string => `${seconds.toFixed(1)} s`;

/** CPU seconds of work as tests do it: objects, maps, texts and numbers. */
export function calibrate(): number {
  const before = process.cpuUsage();
  workOfCalibration();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1e6;
}

function workOfCalibration(): number {
  let sum = 0;
  for (let round = 0; round < 40; round++) {
    const counts = new Map<string, number>();
    for (let i = 0; i < 20_000; i++) {
      const key = `key ${(i * 7919) % 4093}`;
      counts.set(key, (counts.get(key) ?? 0) + Math.sqrt(i));
    }
    const sorted = [...counts].sort(([a], [b]) => (a < b ? -1 : 1));
    sum += JSON.stringify(sorted).length;
  }
  return sum;
}
