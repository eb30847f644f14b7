import { Registry } from 'prom-client';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import type { EngineObserver } from '../../src/engine/observer.ts';
import { completionMetrics } from '../../src/server/metrics/completion-metrics.ts';
import { addEngineMetrics } from '../../src/server/metrics/engine-metrics.ts';
import { addTierMetrics } from '../../src/server/metrics/tier-metrics.ts';
import { inFlight } from '../in-flight.ts';
import type { RandomTokens } from '../random-tokens.ts';
import { median, rounded } from '../statistics.ts';

export interface MetricsCostOptions {
  readonly requests: number;
  readonly promptLength: number;
  readonly genLength: number;
  readonly repetitions: number;
}

export interface MetricsRow {
  readonly requests: number;
  readonly steps: number;
  /** CPU time of the process in a step: of all threads, with the tokens' way to the client. */
  readonly stepCpuMs: number;
  /** CPU time of the metrics of a step. */
  readonly metricsCpuMs: number;
  /** The second divided by the first. */
  readonly sharePercent: number;
  /** CPU time of one answer of `/metrics`, without the metrics of HTTP. */
  readonly scrapeCpuMs: number;
}

type Call = (observer: EngineObserver) => void;

/**
 * The metrics' share of a step, in CPU time, so that other work on the machine matters little. A run of the engine records what
 * it reports to its observers. Then the metrics get these reports again and again, and only that is measured, because a share of a
 * thousandth is less than the difference between two runs.
 */
export async function measureMetricsCost(
  engine: AsyncEngine,
  random: RandomTokens,
  { requests, promptLength, genLength, repetitions }: MetricsCostOptions,
  signal: AbortSignal,
): Promise<MetricsRow> {
  const runs: { steps: number; stepMs: number; metricsMs: number; scrapeMs: number }[] = [];
  for (let repetition = 0; repetition < repetitions; repetition++) {
    const calls: Call[] = [];
    let steps = 0;
    const stop = engine.observe({
      stepEnded: (step) => {
        steps++;
        calls.push((observer) => observer.stepEnded?.(step));
      },
      tokensArrived: (completion, arrival) => {
        calls.push((observer) => observer.tokensArrived?.(completion, arrival));
      },
      completionEnded: (completion) => {
        calls.push((observer) => observer.completionEnded?.(completion));
      },
    });
    const prompts = Array.from({ length: requests }, () => random.take(promptLength));
    const runMs = await cpuMsOf(async () => {
      await inFlight(prompts, requests, async (prompt) => {
        const params = { maxTokens: genLength, ignoreEos: true };
        for await (const _ of engine.generate({ prompt, params }, { signal }));
      });
    });
    stop();
    const registry = new Registry();
    registry.setDefaultLabels({ model_name: engine.model.name, engine: '0' });
    addEngineMetrics(registry, engine);
    addTierMetrics(registry, () => engine.stats().transfers.counters);
    const observer = completionMetrics(registry, engine.model.maxModelLen);
    const replays = Math.ceil(callsMin / calls.length);
    const metricsMs = await cpuMsOf(async () => {
      for (let replay = 0; replay < replays; replay++) for (const call of calls) call(observer);
    });
    const scrapeMs = await cpuMsOf(async () => {
      for (let scrape = 0; scrape < scrapes; scrape++) await registry.metrics();
    });
    runs.push({ steps, stepMs: runMs / steps, metricsMs: metricsMs / replays / steps, scrapeMs: scrapeMs / scrapes });
  }
  const [stepMs, metricsMs] = [median(runs.map((run) => run.stepMs)), median(runs.map((run) => run.metricsMs))];
  return {
    requests,
    steps: median(runs.map((run) => run.steps)),
    stepCpuMs: rounded(stepMs),
    metricsCpuMs: rounded(metricsMs),
    sharePercent: rounded((100 * metricsMs) / stepMs),
    scrapeCpuMs: rounded(median(runs.map((run) => run.scrapeMs))),
  };
}

/** The clock of CPU time has steps of some microseconds, and the first calls are not compiled. */
const callsMin = 200_000;
const scrapes = 50;

async function cpuMsOf(work: () => Promise<void>): Promise<number> {
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1e3;
}
