import { type MedianInterval, median, medianInterval, rounded } from '../statistics.ts';
import { threadCpuMs } from '../subject/thread-cpu.ts';

/** One run of a workload in one engine. */
export interface Slice {
  readonly seconds: number;
  /** CPU time of all threads of this process. Compute threads spin while they wait for each other. */
  readonly cpuMs: number;
  /** CPU time of the thread that runs the engine's event loop; absent if the system does not report it. */
  readonly engineThreadMs?: number;
  /** CPU time of this process after the run, until all blocks were written to the tiers below host memory. */
  readonly afterwardsMs: number;
}

/** Runs `workload`, which returns its seconds, and then waits for `writes`. */
export async function measureSlice(workload: () => Promise<number>, writes: () => Promise<void>): Promise<Slice> {
  const before = cpuTimes();
  const seconds = await workload();
  const after = cpuTimes();
  await writes();
  return {
    seconds,
    cpuMs: after.processMs - before.processMs,
    ...(before.threadMs === undefined || after.threadMs === undefined
      ? {}
      : { engineThreadMs: after.threadMs - before.threadMs }),
    afterwardsMs: cpuTimes().processMs - after.processMs,
  };
}

function cpuTimes(): { readonly processMs: number; readonly threadMs: number | undefined } {
  const { user, system } = process.cpuUsage();
  return { processMs: (user + system) / 1000, threadMs: threadCpuMs() };
}

/**
 * Two engines that run the same workloads in turn, in short slices. The machine is as fast in a slice as in the slice before or
 * after it, also if its speed changes by the minute. So each pair of slices gives a ratio, and ratios are compared.
 */
export interface PairedCost {
  readonly pairs: number;
  /** Throughput of the first engine divided by that of the second. */
  readonly throughputRatio: MedianInterval;
  /** The same for CPU time. Above 1: the first engine needs more. */
  readonly cpuRatio: MedianInterval;
  readonly cpuMsPerToken: readonly [number, number];
  readonly engineThreadMsPerToken: readonly [number, number] | undefined;
  /** Of the first engine. */
  readonly afterwardsMsPerToken: number;
}

/** `slices[0][i]` and `slices[1][i]` are the two runs of workload `i`, which has `tokens` tokens. */
export function pairedCost(slices: readonly [readonly Slice[], readonly Slice[]], tokens: number): PairedCost {
  const [first, second] = slices;
  const ratios = (of: (slice: Slice) => number): number[] => first.map((slice, i) => of(slice) / of(second[i]!));
  const perToken = (of: (slice: Slice) => number): [number, number] => [
    rounded(median(first.map(of)) / tokens),
    rounded(median(second.map(of)) / tokens),
  ];
  const hasThread = slices.every((each) => each.every(({ engineThreadMs }) => engineThreadMs !== undefined));
  return {
    pairs: first.length,
    throughputRatio: roundedInterval(ratios(({ seconds }) => 1 / seconds)),
    cpuRatio: roundedInterval(ratios(({ cpuMs }) => cpuMs)),
    cpuMsPerToken: perToken(({ cpuMs }) => cpuMs),
    engineThreadMsPerToken: hasThread ? perToken(({ engineThreadMs }) => engineThreadMs!) : undefined,
    afterwardsMsPerToken: perToken(({ afterwardsMs }) => afterwardsMs)[0],
  };
}

function roundedInterval(values: readonly number[]): MedianInterval {
  const { median: middle, low, high } = medianInterval(values);
  return { median: rounded(middle), low: rounded(low), high: rounded(high) };
}
