import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { Prng } from '../../src/base/prng.ts';
import { linearFit } from '../statistics.ts';
import { growthOf, type Measure, type Sample } from './growth.ts';
import type { SoakReport } from './soak-run.ts';

const MiB = 1 << 20;

/** 60 samples of 12,000 requests in 30 minutes. `heap` and `files` get the number of requests and the number of the sample. */
function samplesOf(of: {
  readonly heap?: (requests: number, at: number) => number;
  readonly files?: (requests: number, at: number) => number;
}): Sample[] {
  return Array.from({ length: 60 }, (_, at) => ({
    seconds: 30 * at,
    requests: 200 * at,
    heap: 20 * MiB + (of.heap?.(200 * at, at) ?? 0),
    files: 40 + Math.floor(of.files?.(200 * at, at) ?? 0),
  }));
}

const leaksOf = (samples: readonly Sample[]): Measure[] =>
  growthOf(samples).flatMap(({ measure, isLeak }) => (isLeak ? [measure] : []));

describe('a linear fit', () => {
  it('has the slope and its standard error', () => {
    const fit = linearFit([
      [0, 1],
      [1, 3],
      [2, 5],
    ]);
    expect(fit).toEqual({ slope: 2, error: 0, serialError: 0 });
    // By hand: residuals 1/6, -1/3, 1/6; their squares sum to 1/6.
    const { slope, error } = linearFit([
      [0, 0],
      [1, 0],
      [2, 1],
    ]);
    expect(slope).toBeCloseTo(0.5, 12);
    expect(error).toBeCloseTo(Math.sqrt(1 / 6 / 2), 12);
  });

  it('has a larger standard error if neighbouring residuals are alike', () => {
    const prng = new Prng(1);
    const ratioOf = (value: (x: number) => number): number => {
      const { error, serialError } = linearFit(Array.from({ length: 40 }, (_, x) => [x, value(x)]));
      return serialError / error;
    };
    expect(ratioOf(() => prng.unit())).toBeLessThan(1.5);
    expect(ratioOf((x) => (x < 20 ? 0 : 1))).toBeGreaterThan(3);
  });
});

describe('the growth of a process', () => {
  const prng = new Prng(7);
  const noise = (size: number): number => size * (prng.unit() - 0.5);

  it('is no leak if it is within the noise', () => {
    expect(leaksOf(samplesOf({ heap: () => noise(2 * MiB), files: () => noise(4) }))).toEqual([]);
  });

  it('is a leak from some bytes per request on, also below the noise of single samples', () => {
    expect(leaksOf(samplesOf({ heap: (requests) => 100 * requests + noise(MiB / 2) }))).toEqual(['heap']);
    expect(leaksOf(samplesOf({ heap: (requests) => 1024 * requests + noise(4 * MiB) }))).toEqual(['heap']);
    expect(leaksOf(samplesOf({ heap: (requests) => 10 * requests }))).toEqual([]);
  });

  it('is a leak from some files per thousand aborted requests on', () => {
    // 15 of 100 requests are aborted.
    expect(leaksOf(samplesOf({ files: (requests) => (0.15 * requests) / 100 }))).toEqual(['files']);
    expect(leaksOf(samplesOf({ files: (requests) => (0.15 * requests) / 500 }))).toEqual(['files']);
  });

  it('is no leak if a single event explains it', () => {
    // A thread that starts has eight files, and 20 MiB of memory.
    for (const start of [31, 35, 45, 55, 58])
      expect(leaksOf(samplesOf({ files: (_, at) => (at < start ? 0 : 8) })), `${start}`).toEqual([]);
    expect(leaksOf(samplesOf({ heap: (_, at) => (at < 45 ? 0 : 20 * MiB) }))).toEqual([]);
  });

  it('excludes the start-up, in which caches fill', () => {
    expect(leaksOf(samplesOf({ heap: (requests) => 1000 * Math.min(requests, 5000) }))).toEqual([]);
    expect(leaksOf(samplesOf({ heap: (requests) => 10 * MiB * (1 - Math.exp(-requests / 1000)) }))).toEqual([]);
  });

  it('excludes the start-up of a process that began later', () => {
    const late = samplesOf({ heap: (requests) => 1000 * Math.min(requests, 5000) }).map((sample) => ({
      ...sample,
      requests: sample.requests + 40_000,
    }));
    expect(leaksOf(late)).toEqual([]);
  });

  it('does not depend on the speed of the machine', () => {
    const samples = samplesOf({ heap: (requests) => 100 * requests, files: (requests) => requests / 1000 });
    const slow = samples.map((sample, at) => ({ ...sample, seconds: at < 40 ? sample.seconds : 10 * sample.seconds }));
    expect(leaksOf(slow)).toEqual(['heap', 'files']);
    expect(leaksOf(slow)).toEqual(leaksOf(samples));
  });

  it('has no measure that the system does not count, and needs some samples', () => {
    const samples = samplesOf({});
    expect(growthOf(samples).map(({ measure }) => measure)).toEqual(['heap', 'files']);
    expect(growthOf(samples.slice(0, 10))).toEqual([]);
  });
});

/** The samples of real runs. */
describe('the recorded samples', () => {
  const { runs } = JSON.parse(readFileSync('bench/results/2026-11-23-soak.json', 'utf8')) as {
    readonly runs: readonly { readonly rows: readonly [SoakReport] }[];
  };
  const [before, after] = runs.map(({ rows: [report] }) => report.samples) as [
    SoakReport['samples'],
    SoakReport['samples'],
  ];

  it('of 30 minutes have the growth of the heap by the counters of a fault injector', () => {
    expect(leaksOf(before.server!)).toEqual(['heap', 'resident']);
  });

  it('of 30 minutes with fewer counters and with free pages given back have a small growth of the server', () => {
    expect(leaksOf(after.server!)).toEqual(['heap', 'resident']);
    expect(leaksOf(after.rank0!)).toEqual([]);
  });

  const { aborted, requests, others } = runs[1]!.rows[0];
  const abortedPart = aborted / (requests + others);
  it.each<[string, Measure, (requests: number) => number]>([
    ['1 KiB of objects per request', 'heap', (count) => 1024 * count],
    ['a listener of 100 bytes per request', 'heap', (count) => 100 * count],
    ['1 KiB of native memory per request', 'native', (count) => 1024 * count],
    ['512 bytes of resident memory per request', 'resident', (count) => 512 * count],
    ['4 KiB of memory that V8 or `malloc` keep', 'busy', (count) => 4096 * count],
    ['a file for every 100 aborted requests', 'files', (count) => Math.floor((abortedPart * count) / 100)],
    ['a socket for every 100 aborted requests', 'sockets', (count) => Math.floor((abortedPart * count) / 100)],
    ['a thread for every 1000 requests', 'threads', (count) => Math.floor(count / 1000)],
    ['a timer for every 100 aborted requests', 'resources', (count) => Math.floor((abortedPart * count) / 100)],
  ])('with %s have a leak', (_, measure, leaked) => {
    // These measures of the server grew without a planted leak, too.
    const samples = measure === 'heap' || measure === 'resident' ? after.rank0! : after.server!;
    const leaking = samples.map((sample) => ({
      ...sample,
      [measure]: (sample[measure] ?? 0) + leaked(sample.requests),
    }));
    expect(leaksOf(samples)).not.toContain(measure);
    expect(leaksOf(leaking)).toContain(measure);
  });
});
