import { linearFit, rounded } from '../statistics.ts';

/**
 * What is measured of a process: bytes, and numbers of things. `heap` is without `code`. `resident`: after V8 and `malloc` have given their
 * free pages back to the system. `busy`: before that, so with the memory that they keep for the next requests.
 */
export const measures = [
  'heap',
  'code',
  'native',
  'resident',
  'busy',
  'files',
  'sockets',
  'threads',
  'resources',
] as const;
export type Measure = (typeof measures)[number];

/** A process without requests, after garbage collections. Measures that the system does not count are absent. */
export type Sample = { readonly [Name in Measure]?: number } & {
  /** Since the start of the soak. */
  readonly seconds: number;
  /** That have ended before. */
  readonly requests: number;
};

export interface Growth {
  readonly measure: Measure;
  /** Of the first and the last sample after the start-up. */
  readonly first: number;
  readonly last: number;
  /** The slope, per million requests, and its standard error. */
  readonly perMillion: number;
  readonly error: number;
  /** The slope, per hour. */
  readonly perHour: number;
  readonly isLeak: boolean;
}

const MiB = 1 << 20;
/**
 * The growth that matters, per million requests. `heap`, `native`: 32 bytes for each request, because a request that leaves a listener
 * leaves more. `resident`: allocators give pages back late. Numbers: 100 files are a tenth of the usual limit of a process.
 */
const matters: Readonly<Record<Measure, number>> = {
  heap: 32e6,
  // V8 compiles functions again for thousands of requests. A function that is created for each request would also grow the heap.
  code: Infinity,
  native: 32e6,
  resident: 100 * MiB,
  busy: 100 * MiB,
  files: 100,
  sockets: 100,
  threads: 100,
  resources: 100,
};
/** Growth in the measured time that single events explain, such as the start of a thread or a table that doubles. */
const ofSingleEvents = (measure: Measure): number => (isBytes(measure) ? MiB / 4 : 1);

export const isBytes = (measure: Measure): boolean => ['heap', 'code', 'native', 'resident', 'busy'].includes(measure);

/**
 * The start-up of a process: the first half of its requests, and at least so many. In it, caches and tables reach their bounds, code is compiled, and
 * threads start. With the demo model, the heap of the server grows by 5 MiB in 3,500 requests.
 */
const startUpPart = 0.5;
export const startUpDefault = 5000;
const samplesMin = 8;

/**
 * The growth of a process after its start-up, from all samples of this process; empty if nearly all requests are start-up. A leak is a slope that is above zero by more than three
 * standard errors, and that matters. It is a slope over requests: a slow machine has fewer of them, and the same slope.
 */
export function growthOf(samples: readonly Sample[], startUpMin = startUpDefault): Growth[] {
  const begin = samples[0]?.requests ?? 0;
  const startUp = Math.max(startUpMin, startUpPart * ((samples.at(-1)?.requests ?? 0) - begin));
  const measured = samples.filter(({ requests }) => requests >= begin + startUp);
  return measures.flatMap((measure) => {
    const known = measured.filter((sample) => sample[measure] !== undefined);
    if (known.length < samplesMin) return [];
    const slopeOver = (x: 'requests' | 'seconds', unit: number) =>
      linearFit(known.map((sample) => [sample[x] / unit, sample[measure] ?? 0]));
    const { slope, serialError } = slopeOver('requests', 1e6);
    const [first, last] = [known[0]!, known.at(-1)!];
    const growth = (slope * (last.requests - first.requests)) / 1e6;
    return {
      measure,
      first: first[measure] ?? 0,
      last: last[measure] ?? 0,
      perMillion: rounded(slope),
      error: rounded(serialError),
      perHour: rounded(slopeOver('seconds', 3600).slope),
      isLeak: slope > 3 * serialError && slope > matters[measure] && growth > ofSingleEvents(measure),
    };
  });
}
