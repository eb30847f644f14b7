import { setTimeout as sleep } from 'node:timers/promises';
import { assertDefined } from '../../src/base/assert.ts';
import { interrupted } from '../errors.ts';
import { PAUSE_BESIDE_GGML_MS } from '../pauses.ts';
import type { RandomTokens } from '../random-tokens.ts';
import { median, rounded } from '../statistics.ts';
import { quantile } from '../step-times.ts';
import type { Streamer } from './streamer.ts';

export interface InteractiveOptions {
  /** Tokens of the stream's prompt, and tokens that it generates before the first long prompt arrives and after the last one. */
  readonly streamPromptLength: number;
  readonly aloneLength: number;
  /** Long prompts that arrive one after the other while the stream generates. */
  readonly prompts: number;
  readonly promptLength: number;
  /** Tokens of the prompt that arrives behind a long prompt. */
  readonly shortLength: number;
  /** The largest number of tokens of the stream. */
  readonly streamTokensMax: number;
  readonly repetitions: number;
  readonly onProgress: (text: string) => void;
}

export interface InteractiveRow {
  readonly name: string;
  /** The median of the milliseconds between two tokens of the stream, before and after the prompts. */
  readonly aloneMs: number;
  /** Their 99th percentile: what the machine itself adds. */
  readonly aloneP99Ms: number;
  /** The milliseconds between two tokens while long prompts are computed. */
  readonly besideMs: { readonly p50: number; readonly p99: number; readonly max: number };
  /** `besideMs.p99` divided by `aloneMs`. */
  readonly ratio: number;
  readonly promptTokensPerSecond: number;
  /** Milliseconds from a short prompt to its first token: without other requests, and behind a long prompt. */
  readonly shortMs: { readonly alone: number; readonly behind: number };
}

interface Samples {
  readonly alone: number[];
  readonly beside: number[];
  readonly rates: number[];
  readonly shortAlone: number[];
  readonly shortBehind: number[];
}

const noSamples = (): Samples => ({ alone: [], beside: [], rates: [], shortAlone: [], shortBehind: [] });

/** Measures each engine in turn. The first repetition is a warm-up. */
export async function measureInteractive(
  streamers: readonly Streamer[],
  random: RandomTokens,
  options: InteractiveOptions,
  signal: AbortSignal,
): Promise<InteractiveRow[]> {
  const samples = streamers.map(noSamples);
  for (let repetition = 0; repetition <= options.repetitions; repetition++) {
    const name = repetition === 0 ? 'warming up' : `repetition ${repetition} of ${options.repetitions}`;
    const order = repetition % 2 === 1 ? [...streamers.keys()] : [...streamers.keys()].reverse();
    for (const index of order) {
      const streamer = streamers[index]!;
      options.onProgress(`${name}: ${streamer.name}`);
      await sleep(PAUSE_BESIDE_GGML_MS);
      const into = repetition === 0 ? noSamples() : samples[index]!;
      await streamBesidePrompts({ streamer, random, signal }, options, into);
      await shortBehindLong({ streamer, random, signal }, options, into);
    }
  }
  return samples.map((sample, index) => rowOf(streamers[index]!.name, sample));
}

function rowOf(name: string, { alone, beside, rates, shortAlone, shortBehind }: Samples): InteractiveRow {
  const aloneMs = median(alone);
  const sorted = Float64Array.from(beside).sort();
  const p99 = quantile(sorted, 0.99);
  return {
    name,
    aloneMs: rounded(aloneMs),
    aloneP99Ms: rounded(quantile(Float64Array.from(alone).sort(), 0.99)),
    besideMs: { p50: quantile(sorted, 0.5), p99, max: quantile(sorted, 1) },
    ratio: rounded(p99 / aloneMs),
    promptTokensPerSecond: rounded(median(rates)),
    shortMs: { alone: rounded(median(shortAlone)), behind: rounded(median(shortBehind)) },
  };
}

interface Running {
  readonly streamer: Streamer;
  readonly random: RandomTokens;
  readonly signal: AbortSignal;
}

/**
 * One stream, and after some tokens long prompts beside it. The stream's context grows, and with it the time that a token takes. So the
 * stream alone is measured before the prompts and after them.
 */
async function streamBesidePrompts(
  { streamer, random, signal }: Running,
  { streamPromptLength, streamTokensMax, aloneLength, prompts, promptLength }: InteractiveOptions,
  { alone, beside, rates }: Samples,
): Promise<void> {
  let prefill: Promise<number> | undefined;
  let isOver = false;
  let count = 0;
  let countAfter = 0;
  let last: { readonly ms: number; readonly isAlone: boolean } | undefined;
  for await (const tokens of streamer.stream(random.take(streamPromptLength), streamTokensMax)) {
    const ms = performance.now();
    if (last !== undefined) (last.isAlone ? alone : beside).push(ms - last.ms);
    count += tokens;
    if (isOver) countAfter += tokens;
    if (countAfter > aloneLength || signal.aborted) break;
    if (count >= aloneLength && prefill === undefined) {
      prefill = computePrompts({ streamer, random, signal }, prompts, promptLength).finally(() => {
        isOver = true;
      });
      // The error is thrown after the stream; until then it must not be unhandled.
      prefill.catch(() => undefined);
    }
    last = { ms, isAlone: prefill === undefined || isOver };
  }
  if (signal.aborted) throw interrupted();
  rates.push((prompts * promptLength) / (await assertDefined(prefill, 'the stream has begun')));
}

/** Seconds until the last of the prompts is computed. */
async function computePrompts({ streamer, random, signal }: Running, prompts: number, length: number): Promise<number> {
  const startedMs = performance.now();
  for (let i = 0; i < prompts && !signal.aborted; i++) await firstTokenMs(streamer, random.take(length));
  return (performance.now() - startedMs) / 1000;
}

/** A short prompt alone, and a short prompt that arrives when a long prompt is in progress. */
async function shortBehindLong(
  { streamer, random, signal }: Running,
  { promptLength, shortLength }: InteractiveOptions,
  { shortAlone, shortBehind }: Samples,
): Promise<void> {
  shortAlone.push(await firstTokenMs(streamer, random.take(shortLength)));
  const long = firstTokenMs(streamer, random.take(promptLength));
  long.catch(() => undefined);
  await sleep(UNTIL_LONG_BEGINS_MS);
  shortBehind.push(await firstTokenMs(streamer, random.take(shortLength)));
  await long;
  if (signal.aborted) throw interrupted();
}

async function firstTokenMs(streamer: Streamer, prompt: Int32Array): Promise<number> {
  const startedMs = performance.now();
  for await (const _ of streamer.stream(prompt, 1)) break;
  return performance.now() - startedMs;
}

const UNTIL_LONG_BEGINS_MS = 50;
