/**
 * The memory that a process keeps for each unit of work, as a slope over many samples. A bound on the slope finds a leak of some
 * kilobytes per request, which a bound on the total would miss.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import koffi from 'koffi';
import { configureKoffi } from '../../src/base/koffi-config.ts';

/** Bytes per unit of work. */
export interface MemoryGrowth {
  /** Reachable JavaScript objects and their buffers, after a full garbage collection. */
  readonly heap: number;
  /**
   * Native memory that is allocated and not freed: glibc's own count. Without glibc 2.33 the resident memory, which also depends on
   * when V8 and the allocator give pages back.
   */
  readonly native: number;
}

const collectGarbage: () => void = (() => {
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc') as () => void;
})();

/** Bytes that `malloc` has given out, large ones by `mmap` included. */
const nativeBytes: () => number = (() => {
  const fields = [
    'arena',
    'ordblks',
    'smblks',
    'hblks',
    'hblkhd',
    'usmblks',
    'fsmblks',
    'uordblks',
    'fordblks',
    'keepcost',
  ];
  try {
    configureKoffi();
    const counts = koffi.struct(Object.fromEntries(fields.map((field) => [field, 'size_t'])));
    const mallinfo = koffi.load('libc.so.6').func('mallinfo2', counts, []);
    return () => {
      const { uordblks, hblkhd } = mallinfo() as { readonly uordblks: number; readonly hblkhd: number };
      return uordblks + hblkhd;
    };
  } catch {
    return () => process.memoryUsage().rss;
  }
})();

type Measured = keyof MemoryGrowth;

interface Sample extends MemoryGrowth {
  /** Units of work before the sample. */
  readonly at: number;
}

async function sampleAt(at: number): Promise<Sample> {
  // Finalizers run between collections, and free memory for the next collection.
  for (let i = 0; i < 3; i++) {
    collectGarbage();
    await new Promise(setImmediate);
  }
  const { heapUsed, external } = process.memoryUsage();
  return { at, heap: heapUsed + external, native: nativeBytes() };
}

/** Runs `work(unitsPerWindow)` once for each window, and samples memory between the windows. */
export async function measureGrowth(
  work: (units: number) => Promise<void>,
  { windows, unitsPerWindow }: { readonly windows: number; readonly unitsPerWindow: number },
): Promise<MemoryGrowth> {
  const samples = [await sampleAt(0)];
  for (let window = 1; window <= windows; window++) {
    await work(unitsPerWindow);
    samples.push(await sampleAt(window * unitsPerWindow));
  }
  return { heap: slope(samples, 'heap'), native: slope(samples, 'native') };
}

/** The median of the slopes of all pairs (Theil and Sen): single jumps, such as a table that doubles, do not change it. */
function slope(samples: readonly Sample[], what: Measured): number {
  const slopes = samples.flatMap((later, i) =>
    samples.slice(0, i).map((earlier) => (later[what] - earlier[what]) / (later.at - earlier.at)),
  );
  return slopes.sort((a, b) => a - b)[Math.floor(slopes.length / 2)] ?? 0;
}
