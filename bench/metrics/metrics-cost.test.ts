import { expect, it } from 'vitest';
import { runBench } from '../../test/support/run-bench.ts';

it('bench metrics has a row for each number of requests', async () => {
  const small = ['--gen-len', '8', '--prompt-len', '8', '--threads', '1', '--kv-cache-memory', '16MiB'];
  const { code, out } = await runBench('metrics', '--requests', '1,3', ...small, '--repetitions', '1', '--json');
  expect(code).toBe(0);
  const { rows } = JSON.parse(out) as { rows: Record<string, number>[] };
  expect(rows.map(({ requests }) => requests)).toEqual([1, 3]);
  for (const { stepCpuMs, metricsCpuMs, sharePercent, scrapeCpuMs, steps } of rows) {
    expect(steps).toBeGreaterThanOrEqual(8);
    for (const figure of [stepCpuMs, metricsCpuMs, scrapeCpuMs]) expect(figure).toBeGreaterThan(0);
    expect(sharePercent).toBeCloseTo((100 * metricsCpuMs!) / stepCpuMs!, 1);
  }
});
