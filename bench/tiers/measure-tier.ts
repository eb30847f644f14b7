import type { BlockKey } from '../../src/connector/block-key.ts';
import { transferFailed } from '../errors.ts';
import { inFlight } from '../in-flight.ts';
import { type Comparison, comparison } from '../latency/latency.ts';
import { median, rounded } from '../statistics.ts';
import { quantile } from '../step-times.ts';
import { blockKeys } from '../transfer/transfer-rig.ts';
import { type Direction, directions, type TierSubject } from './tier-subject.ts';

export interface MeasureTierOptions {
  readonly blocks: number;
  readonly blockBytes: number;
  readonly repetitions: number;
  readonly signal: AbortSignal;
  readonly onProgress: (text: string) => void;
}

/** One direction of one tier. Rates and CPU seconds have `kvasir` and the name of the limit; rates have their `ratio` too. */
export interface TierRow {
  readonly tier: string;
  readonly what: Direction;
  readonly blocks: number;
  readonly blockBytes: number;
  readonly callsAtOnce: number;
  readonly limit: string;
  /** Medians over repetitions. 10^9 bytes. */
  readonly gigabytesPerSecond: Comparison;
  /** Of one call of the tier, over all repetitions. */
  readonly latencyMs: { readonly p50: number; readonly p99: number };
  /** User and system time of all threads of this process; a server's time is not in it. Medians over repetitions. */
  readonly cpuSecondsPerGigabyte: Readonly<Record<string, number>>;
}

interface Run {
  readonly seconds: number;
  readonly cpuSeconds: number;
  readonly callsMs: readonly number[];
}

/**
 * In each repetition the tier and its limit store and load all blocks once, in turn, and their order alternates. The bytes that
 * the tier gives back are compared. The first repetition is a warm-up: its stores map memory and make folders.
 */
export async function measureTier(subject: TierSubject, options: MeasureTierOptions): Promise<TierRow[]> {
  const { blocks, blockBytes, repetitions, signal, onProgress } = options;
  const pool = new BenchPool(blocks, blockBytes);
  const runs = { tier: { store: [], load: [] }, limit: { store: [], load: [] } } as Record<
    'tier' | 'limit',
    Record<Direction, Run[]>
  >;
  for (let round = 0; round <= repetitions; round++) {
    signal.throwIfAborted();
    onProgress(`${subject.name}: ${round === 0 ? 'warming up' : `repetition ${round} of ${repetitions}`}`);
    const keys = blockKeys(blocks, 1 + round * blocks);
    for (const who of round % 2 === 0 ? (['tier', 'limit'] as const) : (['limit', 'tier'] as const)) {
      for (const direction of directions) {
        const run = await timed(subject, direction, pool, callOf(subject, who, direction, keys));
        if (round > 0) runs[who][direction].push(run);
      }
      if (who === 'limit') {
        await subject.clearLimit();
        continue;
      }
      if (!pool.isCopied()) throw transferFailed({ tier: subject.name, reason: 'other bytes came back' });
      await subject.delete(keys);
    }
  }
  return directions.map((what) =>
    rowOf(subject, what, { blocks, blockBytes }, { tier: runs.tier[what], limits: runs.limit[what] }),
  );
}

type Call = (index: number, bytes: Uint8Array) => Promise<void>;

function callOf(subject: TierSubject, who: 'tier' | 'limit', direction: Direction, keys: readonly BlockKey[]): Call {
  if (who === 'limit')
    return (index, bytes) =>
      direction === 'store' ? subject.storeLimit(index, bytes) : subject.loadLimit(index, bytes);
  return (index, bytes) =>
    direction === 'store' ? subject.store(keys[index]!, bytes) : subject.load(keys[index]!, bytes);
}

/** Moves all blocks once. */
async function timed(subject: TierSubject, direction: Direction, pool: BenchPool, call: Call): Promise<Run> {
  const blocks = direction === 'store' ? pool.sources : pool.clearedTargets();
  const callsMs: number[] = [];
  const cpu = process.cpuUsage();
  const started = performance.now();
  await inFlight(blocks, subject.callsAtOnce[direction], async (block, index) => {
    const before = performance.now();
    await call(index, block);
    callsMs.push(performance.now() - before);
  });
  const seconds = (performance.now() - started) / 1000;
  const { user, system } = process.cpuUsage(cpu);
  return { seconds, cpuSeconds: (user + system) / 1e6, callsMs };
}

function rowOf(
  subject: TierSubject,
  what: Direction,
  { blocks, blockBytes }: { readonly blocks: number; readonly blockBytes: number },
  { tier, limits }: { readonly tier: readonly Run[]; readonly limits: readonly Run[] },
): TierRow {
  const limit = subject.limit[what];
  const gigabytes = (blocks * blockBytes) / 1e9;
  const rateOf = (runs: readonly Run[]): number => gigabytes / median(runs.map(({ seconds }) => seconds));
  const cpuOf = (runs: readonly Run[]): number => rounded(median(runs.map(({ cpuSeconds }) => cpuSeconds)) / gigabytes);
  const calls = Float64Array.from(tier.flatMap(({ callsMs }) => callsMs)).sort();
  return {
    tier: subject.name,
    what,
    blocks,
    blockBytes,
    callsAtOnce: subject.callsAtOnce[what],
    limit,
    gigabytesPerSecond: comparison(['kvasir', limit], [rateOf(tier), rateOf(limits)]),
    latencyMs: { p50: rounded(quantile(calls, 0.5)), p99: rounded(quantile(calls, 0.99)) },
    cpuSecondsPerGigabyte: { kvasir: cpuOf(tier), [limit]: cpuOf(limits) },
  };
}

/** Blocks to store, and memory for as many loaded ones. Like the blocks of the KV pool, they are in one buffer. */
class BenchPool {
  readonly sources: readonly Uint8Array[];
  readonly #targets: readonly Uint8Array[];

  constructor(blocks: number, blockBytes: number) {
    const memory = new Uint8Array(2 * blocks * blockBytes);
    const all = Array.from({ length: 2 * blocks }, (_, i) => memory.subarray(i * blockBytes, (i + 1) * blockBytes));
    this.sources = all.slice(0, blocks);
    this.#targets = all.slice(blocks);
    for (const [i, source] of this.sources.entries())
      for (let at = 0; at < blockBytes; at++) source[at] = at * 31 + (at >> 8) + i;
  }

  clearedTargets(): readonly Uint8Array[] {
    for (const target of this.#targets) target.fill(0);
    return this.#targets;
  }

  isCopied(): boolean {
    return this.sources.every((source, i) => Buffer.compare(source, this.#targets[i]!) === 0);
  }
}
