import { setTimeout as sleep } from 'node:timers/promises';
import type { EngineOptions } from '../../src/engine/options.ts';
import { withEngine } from '../bench-flags.ts';
import { interrupted } from '../errors.ts';
import { type Comparison, comparison, PAUSE_MS } from '../latency/latency.ts';
import { RandomTokens } from '../random-tokens.ts';
import { median, rounded } from '../statistics.ts';
import { EngineSubject, type MeasuredEngine } from '../subject/engine-subject.ts';
import { RunTimes } from '../subject/run-times.ts';
import { fillWorkload, type Turn, type Workload, workloadShape } from '../subject/workload.ts';
import { type OffloadingBenchOptions, withTiers } from './offloading-options.ts';

/** Throughput with tiers, beside that without. */
export interface TierThroughputRow {
  readonly kind: 'cost' | 'conversations' | 'deadTier';
  readonly what: string;
  /** Prompt and generated tokens per second. */
  readonly throughput: Comparison;
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

/** Without tiers, a run of all turns takes minutes. */
const warmUpTurns = 2;

/** Requests without a common prefix: no stored block is loaded. The budget of the ratio is 0.97. */
export function measureCost(options: OffloadingBenchOptions, lengths: Lengths): Promise<TierThroughputRow> {
  const { engine, signal } = options;
  const shape = workloadShape('independent', lengths.requests, lengths);
  const tokens = lengths.requests * (lengths.promptLength + lengths.generateLength);
  return compare(options, engine, {
    kind: 'cost',
    what: `${lengths.requests} requests, nothing reused`,
    tokens,
    run: (random) => {
      const workload = fillWorkload(shape, random);
      return (each) =>
        new EngineSubject(each, engine.blockSize, lengths.requests, signal).run(workload, new RunTimes());
    },
  });
}

export interface ConversationLengths {
  readonly conversations: number;
  readonly turns: number;
  readonly promptLength: number;
  readonly generateLength: number;
}

/**
 * Conversations in turn, whose KV together is three times the pool: when a conversation goes on, the pool has evicted its
 * KV. The budget of the ratio is 3.
 */
export function measureConversations(
  options: OffloadingBenchOptions,
  { conversations, turns, promptLength, generateLength }: ConversationLengths,
): Promise<TierThroughputRow> {
  const { engine, blockBytes, signal } = options;
  const shape = workloadShape('multi-turn', conversations, { promptLength, generateLength, turns });
  const warmUpShape = workloadShape('multi-turn', conversations, { promptLength, generateLength, turns: warmUpTurns });
  const total = conversations * turns * (promptLength + generateLength);
  const poolBlocks = Math.ceil(total / 3 / engine.blockSize) + 1;
  return compare(
    options,
    { ...engine, kvCacheMemory: poolBlocks * blockBytes },
    {
      kind: 'conversations',
      what: `${conversations} conversations of ${turns} turns, KV 3 times the pool`,
      tokens: total,
      run: (random, isWarmUp) => {
        const workload = fillWorkload(isWarmUp ? warmUpShape : shape, random);
        return (each) => converseInTurn(each, workload, signal);
      },
    },
  );
}

interface Measurement {
  readonly kind: TierThroughputRow['kind'];
  readonly what: string;
  readonly tokens: number;
  /** Makes a new workload, or a shorter one to warm up, and returns what runs it in an engine; the result is the seconds. */
  run(random: RandomTokens, isWarmUp: boolean): (each: MeasuredEngine) => Promise<number>;
}

/** Runs a workload with and without tiers in turn, after a warm-up. */
export function compare(
  { openEngine, tiers, signal, repetitions, onProgress }: OffloadingBenchOptions,
  engine: EngineOptions,
  { kind, what, tokens, run }: Measurement,
): Promise<TierThroughputRow> {
  const tiered = { ...engine, kvTransferConfig: withTiers(tiers) };
  return withEngine(openEngine, engine, signal, (plain) =>
    withEngine(openEngine, tiered, signal, async (offloading) => {
      const random = new RandomTokens(Date.now(), plain.engine.model.vocabSize);
      const subjects = [offloading, plain].map((measured) => ({ measured, rates: [] as number[] }));
      let before = countsOf(offloading);
      const runs: (typeof before)[] = [];
      for (let round = 0; round <= repetitions; round++) {
        onProgress(`${what}: ${round === 0 ? 'warming up' : `repetition ${round} of ${repetitions}`}`);
        const runWorkload = run(random, round === 0);
        for (const { measured, rates } of round % 2 === 1 ? subjects : subjects.toReversed()) {
          await sleep(PAUSE_MS);
          const seconds = await runWorkload(measured);
          if (round > 0) rates.push(tokens / seconds);
          await written(measured, signal);
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
      return {
        kind,
        what,
        throughput: comparison(
          ['tiers', 'none'],
          subjects.map(({ rates }) => median(rates)),
        ),
        storedBlocks: rounded(median(runs.map(({ stored }) => stored))),
        writtenBlocks: rounded(median(runs.map(({ written }) => written))),
        droppedBlocks: rounded(median(runs.map(({ dropped }) => dropped))),
      };
    }),
  );
}

/** Waits for blocks that are written in the background, so that they do not slow down the engine that runs next. */
async function written({ engine }: MeasuredEngine, signal: AbortSignal): Promise<void> {
  const isWriting = ([name, count]: [string, number]): boolean => name.endsWith('.openStores') && count > 0;
  while (Object.entries(engine.stats().transfers.counters).some(isWriting)) await sleep(5, undefined, { signal });
}

function countsOf({ engine }: MeasuredEngine) {
  const counts = { stored: 0, written: 0, dropped: 0 };
  for (const [name, count] of Object.entries(engine.stats().transfers.counters)) {
    if (name === 'tier.host.storedBlocks') counts.stored += count;
    else if (name.startsWith('tier.') && name.endsWith('.storedBlocks')) counts.written += count;
    else if (name.startsWith('tier.') && name.endsWith('.dropped')) counts.dropped += count;
  }
  return counts;
}

/** One turn after the other: the n-th turn of every conversation, then the next turns. Returns the seconds. */
async function converseInTurn(
  { engine }: MeasuredEngine,
  { conversations }: Workload,
  signal: AbortSignal,
): Promise<number> {
  const startedMs = performance.now();
  const histories = conversations.map((): number[] => []);
  const turns = conversations[0]!.length;
  for (let at = 0; at < turns; at++)
    for (const [i, conversation] of conversations.entries()) {
      const { prompt, generateLength } = conversation[at] as Turn;
      histories[i]!.push(...prompt);
      const params = { maxTokens: generateLength, temperature: 0, ignoreEos: true };
      for await (const { tokenIds } of engine.generate({ prompt: histories[i]!, params }, { signal }))
        histories[i]!.push(...tokenIds);
      if (signal.aborted) throw interrupted();
    }
  return (performance.now() - startedMs) / 1000;
}
