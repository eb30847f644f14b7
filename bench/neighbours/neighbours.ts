import { median, rounded } from '../statistics.ts';
import { quantile } from '../step-times.ts';
import type { ServerSample } from './measure-server.ts';

/** Who else uses the cores. */
export const neighbours = ['none', 'busy'] as const;
export type Neighbour = (typeof neighbours)[number];

/** The barrier of the server's threads, as in `KVASIR_BARRIER`. */
export const barriers = ['kvasir', 'ggml'] as const;
export type Barrier = (typeof barriers)[number];

export type Samples = Readonly<Record<Neighbour, readonly ServerSample[]>>;

export interface NeighboursRow {
  readonly barrier: Barrier;
  readonly neighbour: Neighbour;
  readonly promptTokensPerSecond: number;
  readonly decodeTokensPerSecond: number;
  readonly decodeCpuMs: number;
  /** The rates divided by the rates without neighbours times the fair share of the cores. */
  readonly promptShare?: number;
  readonly decodeShare?: number;
  readonly healthMs: { readonly p50: number; readonly p99: number; readonly max: number; readonly count: number };
}

/** The fair share of a server with a thread on each core, if other processes use half of each of some cores. */
export const fairShare = (cores: number, shared: number): number => 1 - shared / 2 / cores;

/** One row without neighbours and one beside busy processes. `fair`: `fairShare`. */
export function rowsOf(barrier: Barrier, samples: Samples, fair: number): NeighboursRow[] {
  const of = (neighbour: Neighbour, value: (sample: ServerSample) => number): number =>
    median(samples[neighbour].map(value));
  const shareOf = (value: (sample: ServerSample) => number): number =>
    rounded(of('busy', value) / (of('none', value) * fair));
  return neighbours.map((neighbour) => {
    const health = Float64Array.from(samples[neighbour].flatMap(({ healthMs }) => healthMs)).sort();
    return {
      barrier,
      neighbour,
      promptTokensPerSecond: rounded(of(neighbour, (sample) => sample.promptTokensPerSecond)),
      decodeTokensPerSecond: rounded(of(neighbour, (sample) => sample.decodeTokensPerSecond)),
      decodeCpuMs: rounded(of(neighbour, (sample) => sample.decodeCpuMs)),
      ...(neighbour === 'none'
        ? {}
        : {
            promptShare: shareOf((sample) => sample.promptTokensPerSecond),
            decodeShare: shareOf((sample) => sample.decodeTokensPerSecond),
          }),
      healthMs: {
        p50: quantile(health, 0.5),
        p99: quantile(health, 0.99),
        max: quantile(health, 1),
        count: health.length,
      },
    };
  });
}
