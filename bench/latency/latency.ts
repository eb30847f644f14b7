import { setTimeout as sleep } from 'node:timers/promises';
import { PAUSE_BESIDE_GGML_MS } from '../pauses.ts';
import { median, rounded } from '../statistics.ts';
import { type Rate, type StepOverhead, type Subject, tokensPerSecond } from '../subject/subject.ts';

export interface LatencyOptions {
  readonly depths: readonly number[];
  /** Sequences that the subjects decode at once. */
  readonly batch: number;
  readonly promptLength: number;
  readonly generateLength: number;
  readonly repetitions: number;
  /** Measured before and after each decode, because the speed of a virtual machine's memory varies. */
  readonly memory?: MemoryLimit;
  readonly onProgress: (text: string) => void;
}

export interface MemoryLimit {
  /** Bytes per second that memory delivers now. */
  readonly bandwidth: () => Promise<number>;
  /** The bytes that a decode step reads after contexts of `tokens` tokens in all. */
  readonly bytesAt: (tokens: number) => number;
}

export interface LatencyRow {
  readonly depth: number;
  readonly batch: number;
  /** Medians in tokens per second by subject, and the ratio of the first two. Prompts are measured one at a time. */
  readonly prefill?: Comparison;
  readonly decode: Comparison;
  /** Tokens per second of a decode, if memory limits it: the median. */
  readonly decodeLimit?: number;
  /** Each decode of the first subject divided by the limit at that time: the median. */
  readonly decodeOfLimit?: number;
  /** Milliseconds of a decode step of the first subject in which ggml does not compute, and their share of the step. */
  readonly overheadMs?: number;
  readonly overheadShare?: number;
  /** Parts of `overheadMs`: preparing the batch, and sampling. The scheduler takes the rest. */
  readonly prepareMs?: number;
  readonly sampleMs?: number;
  /** CPU milliseconds of the engine's thread while ggml computes a step; absent if the system does not report them. */
  readonly besideMs?: number;
}
export type Comparison = Readonly<Record<string, number>>;

/** Enough output tokens that requests which arrive one after the other over sockets run together. */
const WARM_UP_TOKENS = 32;

/**
 * Measures every subject at every depth. Subjects take turns within each repetition, and their order alternates, so that
 * a machine that becomes slower affects all of them.
 */
export async function measureLatency(subjects: readonly Subject[], options: LatencyOptions): Promise<LatencyRow[]> {
  const rows: LatencyRow[] = [];
  for (const depth of options.depths) {
    options.onProgress(`${nameOf(depth, options)}: filling the cache`);
    for (const subject of subjects) {
      await subject.prepare(depth);
      if (options.batch === 1) await subject.prefill(depth, options.promptLength);
      await subject.decode(depth, Math.min(WARM_UP_TOKENS, options.generateLength));
    }
    rows.push(await measureDepth(subjects, depth, options));
  }
  return rows;
}

const nameOf = (depth: number, { batch }: LatencyOptions): string =>
  batch === 1 ? `depth ${depth}` : `depth ${depth}, ${batch} at once`;

async function measureDepth(subjects: readonly Subject[], depth: number, options: LatencyOptions): Promise<LatencyRow> {
  const { batch, repetitions } = options;
  const prefill = new Map<string, Rate[]>();
  const decode = new Map<string, Rate[]>();
  const limits: { readonly limit: number; readonly ofLimit: number }[] = [];
  const note = (rates: Map<string, Rate[]>, name: string, rate: Rate): unknown =>
    rates.set(name, [...(rates.get(name) ?? []), rate]);
  for (let repetition = 0; repetition < repetitions; repetition++) {
    options.onProgress(`${nameOf(depth, options)}: repetition ${repetition + 1} of ${repetitions}`);
    const order = repetition % 2 === 0 ? subjects : subjects.toReversed();
    for (const subject of batch === 1 ? order : []) {
      await sleep(PAUSE_BESIDE_GGML_MS);
      note(prefill, subject.name, await subject.prefill(depth, options.promptLength));
    }
    for (const subject of order) {
      const isLimited = subject === subjects[0] && options.memory !== undefined;
      const before = isLimited ? await limitNow(options.memory, depth, batch) : Number.NaN;
      await sleep(PAUSE_BESIDE_GGML_MS);
      const rate = await subject.decode(depth, options.generateLength);
      note(decode, subject.name, rate);
      if (!isLimited) continue;
      await sleep(PAUSE_BESIDE_GGML_MS);
      const limit = (before + (await limitNow(options.memory, depth, batch))) / 2;
      limits.push({ limit, ofLimit: tokensPerSecond(rate) / limit });
    }
  }
  const names = subjects.map(({ name }) => name);
  const overheads = (decode.get(names[0] ?? '') ?? []).flatMap(({ overhead }) => overhead ?? []);
  return {
    depth,
    batch,
    ...(batch === 1 ? { prefill: compare(names, prefill) } : {}),
    decode: compare(names, decode),
    ...(limits.length === 0 ? {} : { decodeLimit: rounded(median(limits.map(({ limit }) => limit))) }),
    ...(limits.length === 0 ? {} : { decodeOfLimit: rounded(median(limits.map(({ ofLimit }) => ofLimit))) }),
    ...(overheads.length === 0 ? {} : overheadFields(overheads)),
  };
}

/** Tokens per second. A step reads the weights once for the whole batch, and the context of each request. */
async function limitNow({ bandwidth, bytesAt }: MemoryLimit, depth: number, batch: number): Promise<number> {
  return (batch * (await bandwidth())) / bytesAt(batch * depth);
}

function overheadFields(
  overheads: readonly StepOverhead[],
): Pick<LatencyRow, 'overheadMs' | 'overheadShare' | 'prepareMs' | 'sampleMs' | 'besideMs'> {
  const medianOf = (value: (overhead: StepOverhead) => number): number => rounded(median(overheads.map(value)));
  const beside = overheads.flatMap(({ besideMs }) => besideMs ?? []);
  return {
    overheadMs: medianOf(({ outsideMs }) => outsideMs),
    overheadShare: medianOf(({ outsideMs, stepMs }) => outsideMs / stepMs),
    prepareMs: medianOf(({ prepareMs }) => prepareMs),
    sampleMs: medianOf(({ sampleMs }) => sampleMs),
    ...(beside.length === 0 ? {} : { besideMs: rounded(median(beside)) }),
  };
}

function compare(names: readonly string[], rates: ReadonlyMap<string, readonly Rate[]>): Comparison {
  return comparison(
    names,
    names.map((name) => median((rates.get(name) ?? []).map(tokensPerSecond))),
  );
}

/** Values by name, and the ratio of the first to the second. */
export function comparison(names: readonly string[], values: readonly number[]): Comparison {
  const entries = names.map((name, i) => [name, rounded(values[i] ?? Number.NaN)] as const);
  const [ours, peer] = values;
  const ratio = ours === undefined || peer === undefined ? [] : [['ratio', rounded(ours / peer)] as const];
  return Object.fromEntries([...entries, ...ratio]);
}
