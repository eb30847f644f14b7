import { setTimeout as sleep } from 'node:timers/promises';
import { assertDefined } from '../../src/base/assert.ts';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import { interrupted } from '../errors.ts';
import { PAUSE_MS } from '../latency/latency.ts';
import type { RandomTokens } from '../random-tokens.ts';
import { median, rounded } from '../statistics.ts';
import { quantile } from '../step-times.ts';

export interface SmoothnessOptions {
  /** Tokens of the stream's prompt, and tokens that it generates before the first long prompt arrives. */
  readonly streamPromptLength: number;
  readonly aloneLength: number;
  /** Long prompts that arrive one after the other while the stream generates. */
  readonly prompts: number;
  readonly promptLength: number;
  readonly repetitions: number;
  readonly onProgress: (text: string) => void;
}

/** An engine under one target latency. */
export interface PacedEngine {
  readonly target: number | 'auto';
  readonly engine: AsyncEngine;
}

export interface SmoothnessRow {
  readonly target: number | 'auto';
  /** The median of the milliseconds between two tokens of the stream, without prompts. */
  readonly aloneMs: number;
  /** The milliseconds between two tokens while long prompts are computed. */
  readonly besideMs: { readonly p50: number; readonly p99: number; readonly max: number };
  /** `besideMs.p99` divided by `aloneMs`. */
  readonly ratio: number;
  readonly promptTokensPerSecond: number;
}

interface Samples {
  readonly alone: number[];
  readonly beside: number[];
  readonly rates: number[];
}

/** Runs one stream and then long prompts beside it, on each engine in turn. The first repetition is a warm-up. */
export async function measureSmoothness(
  engines: readonly PacedEngine[],
  random: RandomTokens,
  options: SmoothnessOptions,
  signal: AbortSignal,
): Promise<SmoothnessRow[]> {
  const samples = engines.map((): Samples => ({ alone: [], beside: [], rates: [] }));
  for (let repetition = 0; repetition <= options.repetitions; repetition++) {
    const name = repetition === 0 ? 'warming up' : `repetition ${repetition} of ${options.repetitions}`;
    const order = repetition % 2 === 1 ? [...engines.keys()] : [...engines.keys()].reverse();
    for (const index of order) {
      const { engine, target } = engines[index]!;
      options.onProgress(`${name}: target ${target}`);
      await sleep(PAUSE_MS);
      const into = repetition === 0 ? { alone: [], beside: [], rates: [] } : samples[index]!;
      await runOnce({ engine, random, signal }, options, into);
    }
  }
  return samples.map(({ alone, beside, rates }, index) => {
    const aloneMs = median(alone);
    const sorted = Float64Array.from(beside).sort();
    const p99 = quantile(sorted, 0.99);
    return {
      target: engines[index]!.target,
      aloneMs: rounded(aloneMs),
      besideMs: { p50: quantile(sorted, 0.5), p99, max: quantile(sorted, 1) },
      ratio: rounded(p99 / aloneMs),
      promptTokensPerSecond: rounded(median(rates)),
    };
  });
}

interface Running {
  readonly engine: AsyncEngine;
  readonly random: RandomTokens;
  readonly signal: AbortSignal;
}

async function runOnce(
  { engine, random, signal }: Running,
  { streamPromptLength, aloneLength, prompts, promptLength }: SmoothnessOptions,
  { alone, beside, rates }: Samples,
): Promise<void> {
  const end = new AbortController();
  const both = AbortSignal.any([end.signal, signal]);
  let prefill: Promise<number> | undefined;
  let isOver = false;
  let count = 0;
  let lastMs: number | undefined;
  const params = { maxTokens: engine.model.maxModelLen - streamPromptLength, temperature: 0, ignoreEos: true };
  const stream = engine.generate({ prompt: random.take(streamPromptLength), params }, { signal: both });
  try {
    for await (const { tokenIds } of stream) {
      if (tokenIds.length === 0) continue;
      const nowMs = performance.now();
      if (lastMs !== undefined) (prefill === undefined ? alone : beside).push(nowMs - lastMs);
      lastMs = nowMs;
      count += tokenIds.length;
      if (isOver) break;
      if (count >= aloneLength && prefill === undefined) {
        prefill = computePrompts({ engine, random, signal: both }, prompts, promptLength).finally(() => {
          isOver = true;
        });
        // The error is thrown after the stream's next token; until then it must not be unhandled.
        prefill.catch(() => undefined);
      }
    }
  } finally {
    if (!isOver) end.abort();
  }
  if (signal.aborted) throw interrupted();
  rates.push((prompts * promptLength) / (await assertDefined(prefill, 'the stream has begun')));
}

/** Seconds until the last of the prompts is computed. */
async function computePrompts({ engine, random, signal }: Running, prompts: number, length: number): Promise<number> {
  const startedMs = performance.now();
  for (let i = 0; i < prompts; i++) {
    const params = { maxTokens: 1, temperature: 0, ignoreEos: true };
    for await (const delta of engine.generate({ prompt: random.take(length), params }, { signal }))
      if (delta.finish?.error !== undefined) throw delta.finish.error;
  }
  return (performance.now() - startedMs) / 1000;
}
