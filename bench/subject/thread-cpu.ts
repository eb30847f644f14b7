import { readFileSync } from 'node:fs';

/** The CPU time of this thread in milliseconds; undefined on systems other than Linux. */
export function threadCpuMs(): number | undefined {
  try {
    const nanoseconds = Number(readFileSync('/proc/thread-self/schedstat', 'latin1').split(' ')[0]);
    return nanoseconds > 0 ? nanoseconds / 1e6 : undefined;
  } catch {
    return undefined;
  }
}
