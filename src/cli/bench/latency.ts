import { setTimeout as sleep } from 'node:timers/promises';
import { median, type Rate, rounded, type Subject, tokensPerSecond } from './subject.ts';

export interface LatencyOptions {
  readonly depths: readonly number[];
  readonly promptLength: number;
  readonly generateLength: number;
  readonly repetitions: number;
  readonly onProgress: (text: string) => void;
}

export interface LatencyRow {
  readonly depth: number;
  /** Medians in tokens per second by subject, and the first subject's relative to the second's. */
  readonly prefill: Comparison;
  readonly decode: Comparison;
  /** Milliseconds of a decode step in which the first subject did something else than compute the graph. */
  readonly overheadMs?: number;
}
export type Comparison = Readonly<Record<string, number>>;

/** Worker threads of one subject spin for a moment after a graph; the other must not pay for it. */
export const PAUSE_MS = 30;

/**
 * Measures every subject at every depth. Subjects take turns within each repetition, and who begins changes, so that a
 * machine that slows down slows all of them.
 */
export async function measureLatency(subjects: readonly Subject[], options: LatencyOptions): Promise<LatencyRow[]> {
  const rows: LatencyRow[] = [];
  for (const depth of options.depths) {
    options.onProgress(`depth ${depth}: filling the cache`);
    for (const subject of subjects) {
      await subject.prepare(depth);
      await subject.prefill(depth, options.promptLength);
      await subject.decode(depth, Math.min(4, options.generateLength));
    }
    rows.push(await measureDepth(subjects, depth, options));
  }
  return rows;
}

async function measureDepth(subjects: readonly Subject[], depth: number, options: LatencyOptions): Promise<LatencyRow> {
  const prefill = new Map<string, Rate[]>();
  const decode = new Map<string, Rate[]>();
  const note = (rates: Map<string, Rate[]>, name: string, rate: Rate): unknown =>
    rates.set(name, [...(rates.get(name) ?? []), rate]);
  for (let repetition = 0; repetition < options.repetitions; repetition++) {
    options.onProgress(`depth ${depth}: repetition ${repetition + 1} of ${options.repetitions}`);
    const order = repetition % 2 === 0 ? subjects : subjects.toReversed();
    for (const subject of order) {
      await sleep(PAUSE_MS);
      note(prefill, subject.name, await subject.prefill(depth, options.promptLength));
    }
    for (const subject of order) {
      await sleep(PAUSE_MS);
      note(decode, subject.name, await subject.decode(depth, options.generateLength));
    }
  }
  const names = subjects.map(({ name }) => name);
  const overheads = (decode.get(names[0] ?? '') ?? []).flatMap(({ overheadSeconds }) => overheadSeconds ?? []);
  return {
    depth,
    prefill: compare(names, prefill),
    decode: compare(names, decode),
    ...(overheads.length === 0 ? {} : { overheadMs: rounded(median(overheads) * 1000) }),
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
