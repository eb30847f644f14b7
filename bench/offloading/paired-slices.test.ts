import { describe, expect, it } from 'vitest';
import { measureSlice, pairedCost, type Slice } from './paired-slices.ts';

const slice = (seconds: number, cpuMs: number, rest: Partial<Slice> = {}): Slice => ({
  seconds,
  cpuMs,
  afterwardsMs: 0,
  ...rest,
});

describe('pairedCost', () => {
  it('is not changed by a machine whose speed changes from pair to pair', () => {
    const speeds = [1, 3, 2, 0.5, 1.5, 4, 1];
    const [tiers, none]: [Slice[], Slice[]] = [[], []];
    for (const speed of speeds) {
      none.push(slice(10 / speed, 18_000 / speed));
      tiers.push(slice(10 / 0.98 / speed, (18_000 / speed) * 1.01));
    }
    expect(pairedCost([tiers, none], 1_000)).toMatchObject({
      pairs: 7,
      throughputRatio: { median: 0.98, low: 0.98, high: 0.98 },
      cpuRatio: { median: 1.01, low: 1.01, high: 1.01 },
      cpuMsPerToken: [12.12, 12],
      engineThreadMsPerToken: undefined,
    });
  });

  it('one slice that is disturbed does not change the median', () => {
    const none = Array.from({ length: 9 }, () => slice(10, 100));
    const tiers = none.map((_, i) => (i === 4 ? slice(30, 300) : slice(10, 100)));
    const { throughputRatio, cpuRatio } = pairedCost([tiers, none], 1);
    expect([throughputRatio, cpuRatio]).toEqual([
      { median: 1, low: 1, high: 1 },
      { median: 1, low: 1, high: 1 },
    ]);
  });

  it("has the time of the engine's thread, and of the writes after the slices", () => {
    const tiers = [slice(1, 100, { engineThreadMs: 30, afterwardsMs: 50 })];
    const none = [slice(1, 100, { engineThreadMs: 20 })];
    expect(pairedCost([tiers, none], 10)).toMatchObject({
      engineThreadMsPerToken: [3, 2],
      afterwardsMsPerToken: 5,
    });
  });
});

it('a slice counts the CPU time of its run, and the time of the writes after it separately', async () => {
  const compute = (ms: number): void => {
    const startMs = process.cpuUsage().user / 1000;
    while (process.cpuUsage().user / 1000 - startMs < ms);
  };
  const order: string[] = [];
  const measured = await measureSlice(
    async () => {
      compute(60);
      order.push('run');
      return 7;
    },
    async () => {
      compute(30);
      order.push('writes');
    },
  );
  expect(order).toEqual(['run', 'writes']);
  expect(measured.seconds).toBe(7);
  expect(measured.cpuMs).toBeGreaterThanOrEqual(60);
  expect(measured.afterwardsMs).toBeGreaterThanOrEqual(30);
});
