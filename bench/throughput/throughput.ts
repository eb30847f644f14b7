import { setTimeout as sleep } from 'node:timers/promises';
import { type Comparison, comparison } from '../latency/latency.ts';
import { PAUSE_BESIDE_GGML_MS } from '../pauses.ts';
import type { RandomTokens } from '../random-tokens.ts';
import { median, rounded } from '../statistics.ts';
import { type Percentiles, RunTimes } from '../subject/run-times.ts';
import type { Subject } from '../subject/subject.ts';
import {
  fillWorkload,
  type WorkloadName,
  type WorkloadShape,
  withShortAnswers,
  workloadTotals,
} from '../subject/workload.ts';

export interface ThroughputOptions {
  readonly workload: WorkloadName;
  readonly repetitions: number;
  readonly onProgress: (text: string) => void;
}

export interface ThroughputRow {
  readonly workload: WorkloadName;
  /** Conversations that start at once. */
  readonly requests: number;
  readonly prefixLength: number;
  /** Of one run: the tokens of all sent prompts, with history and prefix, and the generated tokens. */
  readonly promptTokens: number;
  readonly generatedTokens: number;
  /** Generated tokens per second, from the first request to the last token. */
  readonly throughput: Comparison;
  /** Prompt tokens and generated tokens per second. */
  readonly total: Comparison;
  /** Seconds to the last token. The ratio is above 1 if the first subject is faster. */
  readonly lastTokenSeconds: Comparison;
  /** By subject, over all turns of all repetitions: from the request to the first token, and between tokens. */
  readonly firstTokenMs: Readonly<Record<string, Percentiles>>;
  readonly betweenTokensMs: Readonly<Record<string, Percentiles>>;
}

const WARM_UP_TOKENS = 8;

/** Runs the same prompts on all subjects in turn; medians over repetitions. The ratio compares the first two subjects. */
export async function measureThroughput(
  subjects: readonly Subject[],
  shape: WorkloadShape,
  random: RandomTokens,
  options: ThroughputOptions,
): Promise<ThroughputRow> {
  const measured = subjects.map((subject) => ({ subject, seconds: [] as number[], times: new RunTimes() }));
  const { conversations } = shape;
  const name = `${options.workload}, ${conversations.length} requests`;
  // The first round is a warm-up with all prompts and a few output tokens.
  const warmUp = withShortAnswers(shape, WARM_UP_TOKENS);
  for (let round = 0; round <= options.repetitions; round++) {
    options.onProgress(`${name}: ${round === 0 ? 'warming up' : `repetition ${round} of ${options.repetitions}`}`);
    const workload = fillWorkload(round === 0 ? warmUp : shape, random);
    for (const { subject, seconds, times } of round % 2 === 1 ? measured : measured.toReversed()) {
      await sleep(PAUSE_BESIDE_GGML_MS);
      const taken = await subject.run(workload, round === 0 ? new RunTimes() : times);
      if (round > 0) seconds.push(taken);
    }
  }
  const { promptTokens, generatedTokens } = workloadTotals(shape);
  const names = subjects.map(({ name }) => name);
  const seconds = measured.map((one) => median(one.seconds));
  const rate = (tokens: number): Comparison =>
    comparison(
      names,
      seconds.map((value) => tokens / value),
    );
  const throughput = rate(generatedTokens);
  const byName = (of: (times: RunTimes) => Percentiles): Record<string, Percentiles> =>
    Object.fromEntries(measured.map(({ subject, times }) => [subject.name, of(times)]));
  return {
    workload: options.workload,
    requests: conversations.length,
    prefixLength: shape.prefixLength,
    promptTokens,
    generatedTokens,
    throughput,
    total: rate(promptTokens + generatedTokens),
    lastTokenSeconds: {
      ...Object.fromEntries(names.map((each, i) => [each, rounded(seconds[i] ?? Number.NaN)])),
      ...('ratio' in throughput ? { ratio: throughput.ratio } : {}),
    },
    firstTokenMs: byName((times) => times.first()),
    betweenTokensMs: byName((times) => times.between()),
  };
}
