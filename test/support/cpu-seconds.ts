/**
 * A setup file of Vitest: measures the CPU seconds of each test file, with the processes that it started. Files of one process share its
 * imports: the first one pays for them.
 */
import { readFileSync } from 'node:fs';
import { afterAll } from 'vitest';

declare module 'vitest' {
  interface TaskMeta {
    /** Of a file, for `cpu-reporter.ts`. */
    cpuSeconds?: number;
  }
}

const counted = globalThis as { cpuSeconds?: number };

/** Of this process and of its processes that have ended. */
function cpuSeconds(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6 + secondsOfEndedProcesses();
}

/** Linux reports them in hundredths. Elsewhere they are not counted. */
function secondsOfEndedProcesses(): number {
  if (process.platform !== 'linux') return 0;
  const stat = readFileSync('/proc/self/stat', 'utf8');
  // The name of the program, in brackets, may have spaces.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[13]) + Number(fields[14])) / 100;
}

// Hooks after tests run in the reverse order, so this one is the last.
// biome-ignore lint/correctness/noEmptyPattern: Vitest wants a pattern here.
afterAll(({}, file) => {
  const now = cpuSeconds();
  file.meta.cpuSeconds = now - (counted.cpuSeconds ?? 0);
  counted.cpuSeconds = now;
});
