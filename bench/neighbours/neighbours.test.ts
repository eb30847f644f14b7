import { describe, expect, it } from 'vitest';
import type { ServerSample } from './measure-server.ts';
import { fairShare, rowsOf } from './neighbours.ts';

const sample = (rate: number, healthMs: readonly number[] = [1]): ServerSample => ({
  promptTokensPerSecond: 10 * rate,
  decodeTokensPerSecond: rate,
  decodeCpuMs: 1000 / rate,
  healthMs,
});

describe('bench neighbours', () => {
  it('a busy process on half of the cores leaves three quarters of them', () => {
    expect(fairShare(2, 1)).toBe(0.75);
    expect(fairShare(16, 8)).toBe(0.75);
    expect(fairShare(3, 1)).toBeCloseTo(0.833, 3);
  });

  it('compares medians with the fair share of the medians without neighbours', () => {
    const samples = { none: [sample(40), sample(44), sample(10)], busy: [sample(30), sample(24), sample(20)] };
    const [alone, beside] = rowsOf('kvasir', samples, 0.75);
    expect(alone).toMatchObject({ barrier: 'kvasir', neighbour: 'none', decodeTokensPerSecond: 40, decodeCpuMs: 25 });
    expect(alone).not.toHaveProperty('decodeShare');
    expect(beside).toMatchObject({ neighbour: 'busy', decodeTokensPerSecond: 24, decodeShare: 0.8, promptShare: 0.8 });
  });

  it('takes quantiles of the latencies of all repetitions together', () => {
    const slow = Array.from({ length: 99 }, (_, i) => i + 1);
    const samples = { none: [sample(1)], busy: [sample(1, slow), sample(1, [1000])] };
    expect(rowsOf('ggml', samples, 1)[1]?.healthMs).toEqual({ p50: 50, p99: 99, max: 1000, count: 100 });
  });
});
