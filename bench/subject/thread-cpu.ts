import { readFileSync } from 'node:fs';

/** Milliseconds that this thread has run on a core; undefined where the kernel does not say, which is outside of Linux. */
export function threadCpuMs(): number | undefined {
  try {
    const nanoseconds = Number(readFileSync('/proc/thread-self/schedstat', 'latin1').split(' ')[0]);
    return nanoseconds > 0 ? nanoseconds / 1e6 : undefined;
  } catch {
    return undefined;
  }
}
