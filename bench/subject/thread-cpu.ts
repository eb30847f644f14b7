import koffi from 'koffi';
import { configureKoffi } from '../../src/base/koffi-config.ts';

/** CLOCK_THREAD_CPUTIME_ID. */
const clocks: Partial<Record<NodeJS.Platform, number>> = { linux: 3, darwin: 16 };

let clock: (() => number) | undefined;

/** The CPU time of this thread in milliseconds; undefined on systems without such a clock. */
export function threadCpuMs(): number | undefined {
  clock ??= openClock() ?? (() => Number.NaN);
  const ms = clock();
  return Number.isNaN(ms) ? undefined : ms;
}

function openClock(): (() => number) | undefined {
  const id = clocks[process.platform];
  if (id === undefined) return undefined;
  try {
    configureKoffi();
    const getTime = koffi.load(null).func('clock_gettime', 'int', ['int', 'void *']);
    const time = new BigInt64Array(2);
    return () => (getTime(id, time) === 0 ? Number(time[0]) * 1e3 + Number(time[1]) / 1e6 : Number.NaN);
  } catch {
    // The symbol is missing, for example in a statically linked Node.
    return undefined;
  }
}
