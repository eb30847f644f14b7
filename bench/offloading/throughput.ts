import { setTimeout as sleep } from 'node:timers/promises';
import type { EngineOptions } from '../../src/engine/options.ts';
import { withEngine } from '../bench-flags.ts';
import { type Comparison, comparison } from '../latency/latency.ts';
import { PAUSE_MS } from '../pauses.ts';
import { RandomTokens } from '../random-tokens.ts';
import { median, rounded } from '../statistics.ts';
import { EngineSubject, type MeasuredEngine, type OpenMeasuredEngine } from '../subject/engine-subject.ts';
import { RunTimes } from '../subject/run-times.ts';
import { fillWorkload, workloadShape } from '../subject/workload.ts';
import { type OffloadingBenchOptions, withTiers } from './offloading-options.ts';
import { measureSlice, type PairedCost, pairedCost, type Slice } from './paired-slices.ts';
import { whenWritten } from './when-written.ts';

/** Throughput with tiers, beside that without. */
export interface TierThroughputRow {
  readonly kind: 'cost' | 'conversations' | 'deadTier';
  readonly what: string;
  /** Prompt and generated tokens per second: medians, and the median of the ratios of neighbouring runs. */
  readonly throughput: Comparison;
  readonly cost: PairedCost;
  /** The same between two engines without tiers: what differs without a cause, such as where their weights lie in memory. */
  readonly control?: PairedCost;
  /** Blocks that were stored in host memory, and in all tiers below it together, in one run. */
  readonly storedBlocks: number;
  readonly writtenBlocks: number;
  readonly droppedBlocks: number;
}

export interface Lengths {
  readonly requests: number;
  readonly promptLength: number;
  readonly generateLength: number;
}

/** Runs are short, because the machine's speed changes by the minute. */
export const pairsPerRepetition = 4;

/** Requests without a common prefix: no stored block is loaded. The budget of the ratio is 0.97. */
export function measureCost(
  options: OffloadingBenchOptions,
  lengths: Lengths,
  { hasControl = false } = {},
): Promise<TierThroughputRow> {
  const { engine, signal } = options;
  const shape = workloadShape('independent', lengths.requests, lengths);
  const tokens = lengths.requests * (lengths.promptLength + lengths.generateLength);
  return compare(options, engine, {
    kind: 'cost',
    what: `${lengths.requests} requests, nothing reused`,
    tokens,
    pairs: pairsPerRepetition,
    ...(hasControl ? { others: { control: engine } } : {}),
    run: (random) => {
      const workload = fillWorkload(shape, random);
      return (each) => new EngineSubject(each, lengths.requests, signal).run(workload, new RunTimes());
    },
  });
}

interface Measurement {
  readonly kind: TierThroughputRow['kind'];
  readonly what: string;
  readonly tokens: number;
  /** How many pairs of runs a repetition has; default 1. */
  readonly pairs?: number;
  /** Engines besides those with tiers and without. */
  readonly others?: Readonly<Record<string, EngineOptions>>;
  /** Makes a new workload, or a shorter one to warm up, and returns what runs it in an engine; the result is the seconds. */
  run(random: RandomTokens, isWarmUp: boolean): (each: MeasuredEngine, name: string) => Promise<number>;
}

/**
 * Runs a workload with and without tiers in turn, after a warm-up: with, without, without, with, and so on. Both run the same
 * prompts, which are new in each round.
 */
export function compare(
  { openEngine, tiers, signal, repetitions, onProgress }: OffloadingBenchOptions,
  engine: EngineOptions,
  { kind, what, tokens, pairs = 1, others = {}, run }: Measurement,
): Promise<TierThroughputRow> {
  const engines = { tiers: { ...engine, kvTransferConfig: withTiers(tiers) }, none: engine, ...others };
  return withEngines(openEngine, Object.values(engines), signal, async (opened) => {
    const random = new RandomTokens(Date.now(), opened[0]!.engine.model.vocabSize);
    const names = Object.keys(engines);
    const subjects = opened.map((measured, i) => ({ measured, name: names[i]!, slices: [] as Slice[] }));
    const offloading = opened[0]!;
    let before = countsOf(offloading);
    const runs: (typeof before)[] = [];
    const rounds = repetitions * pairs;
    for (let round = 0; round <= rounds; round++) {
      onProgress(`${what}: ${round === 0 ? 'warming up' : `run ${round} of ${rounds}`}`);
      const runWorkload = run(random, round === 0);
      for (const { measured, name, slices } of round % 2 === 1 ? subjects : subjects.toReversed()) {
        await sleep(PAUSE_MS);
        const run = () => runWorkload(measured, name);
        const slice = await measureSlice(run, () => whenWritten(measured, signal));
        if (round > 0) slices.push(slice);
      }
      const after = countsOf(offloading);
      if (round > 0)
        runs.push({
          stored: after.stored - before.stored,
          written: after.written - before.written,
          dropped: after.dropped - before.dropped,
        });
      before = after;
    }
    const rates = subjects.map(({ slices }) => median(slices.map(({ seconds }) => tokens / seconds)));
    const [withTiers, none] = subjects;
    const control = subjects.find(({ name }) => name === 'control');
    const cost = pairedCost([withTiers!.slices, none!.slices], tokens);
    return {
      kind,
      what,
      throughput: { ...comparison(names, rates), ratio: cost.throughputRatio.median },
      cost,
      ...(control === undefined ? {} : { control: pairedCost([control.slices, none!.slices], tokens) }),
      storedBlocks: rounded(median(runs.map(({ stored }) => stored))),
      writtenBlocks: rounded(median(runs.map(({ written }) => written))),
      droppedBlocks: rounded(median(runs.map(({ dropped }) => dropped))),
    };
  });
}

/** Opens several engines, and closes them after `measure`. */
function withEngines<T>(
  openEngine: OpenMeasuredEngine,
  [first, ...rest]: readonly EngineOptions[],
  signal: AbortSignal,
  measure: (opened: readonly MeasuredEngine[]) => Promise<T>,
): Promise<T> {
  if (first === undefined) return measure([]);
  return withEngine(openEngine, first, signal, (measured) =>
    withEngines(openEngine, rest, signal, (others) => measure([measured, ...others])),
  );
}

function countsOf({ engine }: MeasuredEngine) {
  const { host, ...below } = engine.stats().transfers.connector.tiers ?? {};
  const counts = { stored: host?.storedBlocks ?? 0, written: 0, dropped: 0 };
  for (const { storedBlocks = 0, dropped = 0 } of Object.values(below)) {
    counts.written += storedBlocks;
    counts.dropped += dropped;
  }
  return counts;
}
