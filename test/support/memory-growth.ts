/**
 * The memory that a process keeps for each unit of work, as a slope over many samples. A bound on the slope finds a leak of some
 * kilobytes per request, which a bound on the total would miss.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** Bytes per unit of work. */
export interface MemoryGrowth {
  /** Reachable JavaScript objects and their buffers, after a full garbage collection. */
  readonly heap: number;
  /** Resident memory of the process, native memory included. */
  readonly resident: number;
}

const collectGarbage: () => void = (() => {
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc') as () => void;
})();

interface Sample {
  readonly at: number;
  readonly heap: number;
  readonly resident: number;
}

async function sampleAt(at: number): Promise<Sample> {
  // Finalizers run between collections, and free memory for the next collection.
  for (let i = 0; i < 3; i++) {
    collectGarbage();
    await new Promise(setImmediate);
  }
  const { heapUsed, external, rss } = process.memoryUsage();
  return { at, heap: heapUsed + external, resident: rss };
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
  return { heap: slope(samples, 'heap'), resident: slope(samples, 'resident') };
}

/** The median of the slopes of all pairs (Theil and Sen): single jumps, such as a table that doubles, do not change it. */
function slope(samples: readonly Sample[], what: 'heap' | 'resident'): number {
  const slopes = samples.flatMap((later, i) =>
    samples.slice(0, i).map((earlier) => (later[what] - earlier[what]) / (later.at - earlier.at)),
  );
  return slopes.sort((a, b) => a - b)[Math.floor(slopes.length / 2)] ?? 0;
}
