import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { linearFit, rounded } from '../statistics.ts';

/** What is measured of a process. Bytes, and a number of files. */
export const measures = ['rss', 'heap', 'native', 'files'] as const;
export type Measure = (typeof measures)[number];

export type Sample = { readonly ms: number } & { readonly [Name in Measure]?: number };

/** The samples of a process so far; a last line that is not complete is left out. */
export function readSamples(folder: string, processId: number): Sample[] {
  try {
    const lines = readFileSync(join(folder, `${processId}.jsonl`), 'utf8')
      .split('\n')
      .slice(0, -1);
    return lines.map((line) => JSON.parse(line) as Sample);
  } catch {
    return [];
  }
}

export interface Growth {
  readonly measure: Measure;
  /** The mean of the first and the last tenth of the samples. */
  readonly first: number;
  readonly last: number;
  readonly perHour: number;
  /** The standard error of `perHour`. */
  readonly error: number;
  /** The least growth over the measured time that is likely: of the slope less three errors. */
  readonly certain: number;
  /** More than this is a leak. */
  readonly bound: number;
  readonly isLeak: boolean;
}

const MiB = 1 << 20;
/**
 * What a process may grow in any time, and besides in a short run, which is all warm-up. A thread that replaces one whose file call is
 * late has 8 files, 2 MiB of native memory and 20 MiB of resident memory, and there may be a few of them.
 */
const bounds: Readonly<Record<Measure, { readonly always: number; readonly inShortRuns: number }>> = {
  rss: { always: 96 * MiB, inShortRuns: 64 * MiB },
  heap: { always: 2 * MiB, inShortRuns: 30 * MiB },
  native: { always: 12 * MiB, inShortRuns: 30 * MiB },
  files: { always: 32, inShortRuns: 60 },
};
/** Neighbouring samples are not independent: the regression uses means of parts of the time. */
const partsMax = 24;
const msPerHour = 3_600_000;

/** The growth of a process while it was measured. Measures without a count are left out. */
export function growthOf(samples: readonly Sample[]): Growth[] {
  return measures.flatMap((measure) => {
    const points = samples.flatMap(({ ms, [measure]: value }): [number, number][] =>
      value === undefined ? [] : [[ms / msPerHour, value]],
    );
    if (points.length < 6) return [];
    const parts = meansOf(points, Math.min(partsMax, Math.floor(points.length / 2)));
    const { slope, error } = linearFit(parts);
    const hours = points.at(-1)![0] - points[0]![0];
    const { always, inShortRuns } = bounds[measure];
    const bound = always + inShortRuns * Math.min(1, 1 / (hours * 60));
    const certain = (slope - 3 * error) * hours;
    const ends = meansOf(points, Math.min(10, points.length));
    return {
      measure,
      first: rounded(ends[0]![1]),
      last: rounded(ends.at(-1)![1]),
      perHour: rounded(slope),
      error: rounded(error),
      certain: rounded(certain),
      bound: rounded(bound),
      isLeak: certain > bound,
    };
  });
}

/** The means of consecutive parts with nearly equal numbers of points. */
function meansOf(points: readonly [number, number][], count: number): [number, number][] {
  return Array.from({ length: count }, (_, i) => {
    const part = points.slice(Math.floor((i * points.length) / count), Math.floor(((i + 1) * points.length) / count));
    const mean = (of: 0 | 1): number => part.reduce((sum, point) => sum + point[of], 0) / part.length;
    return [mean(0), mean(1)];
  });
}
