import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import type { CliContext } from '../../src/cli/context.ts';
import { runCli } from '../../src/cli/run-cli.ts';
import { benchCommand } from '../command.ts';
import { quantile } from '../step-times.ts';
import { type SchedulerRow, verdictOn } from './scheduler.ts';

async function kvasir(...args: string[]) {
  let out = '';
  let err = '';
  const noModel = () => Promise.reject(new Error('no model is needed'));
  const context: CliContext = {
    version: '1.2.3',
    createEngine: noModel,
    stdout: { write: (text) => (out += text) },
    stderr: { write: (text) => (err += text) },
    stdin: Readable.from([]),
    signals: process,
    exitNow: () => undefined,
  };
  return { code: await runCli(args, context, [benchCommand(noModel)]), out, err };
}

const small = ['--requests', '4', '--prompt-len', '8,40', '--steps', '40', '--long-prompt', '500'];

describe('kvasir bench scheduler', () => {
  it('has a row for each case with ordered times and the memory of a step', async () => {
    const { code, out, err } = await kvasir('bench', 'scheduler', ...small, '--repetitions', '2', '--json');
    expect(code).toBe(0);
    expect(err).toMatch(/CPU ms +p50 +p99 +max/);
    const { rows, machine, versions } = JSON.parse(out) as { rows: SchedulerRow[]; machine: string; versions: object };
    expect(machine).toMatch(/cores$/);
    expect(versions).toMatchObject({ kvasir: '1.2.3', node: process.versions.node });
    expect(rows.map(({ what }) => what)).toEqual([
      '4 decodes, prompts of 8',
      '4 decodes, prompts of 40',
      '4 decodes, prompts of 40, blocks filled in one step',
      '4 decodes, prompts of 40, a connector that finds nothing',
      '4 running, prompts of 40, each replaced after 256 tokens',
      '4 running, prompts of 40 from a store, each replaced after 256 tokens',
      'of these loads, one block of each fails',
      'planning 500 tokens, holes in one full group',
      'planning 500 tokens, holes in full + window + state',
      'admitting 500 tokens, nothing cached',
      'admitting 500 tokens, all cached',
      'of that, sha256 of 31 blocks',
    ]);
    for (const { p50Ms, p99Ms, maxMs, runs } of rows) {
      expect(p50Ms).toBeGreaterThan(0);
      expect(p99Ms).toBeGreaterThanOrEqual(p50Ms);
      expect(maxMs).toBeGreaterThanOrEqual(p99Ms);
      expect(runs).toBeGreaterThan(0);
    }
    expect(rows.map(({ kibPerStep }) => kibPerStep !== undefined)).toEqual(rows.map((_, i) => i < 7));
    expect(rows.map(({ verdict }) => verdict !== undefined)).toEqual([
      true,
      true,
      true,
      true,
      true,
      true,
      true,
      true,
      true,
      false,
      false,
      false,
    ]);
  });

  it('ends with an error if the pool is too small', async () => {
    const { code, err } = await kvasir('bench', 'scheduler', ...small, '--blocks', '50');
    expect(code).toBe(1);
    expect(err).toMatch(/need \d+ blocks, the pool has 50/);
  });
});

describe('figures', () => {
  it('quantiles are measured values', () => {
    const times = Float64Array.from({ length: 100 }, (_, i) => i + 1);
    expect([0.5, 0.99, 1].map((share) => quantile(times, share))).toEqual([50, 99, 100]);
    expect(quantile(Float64Array.of(7), 0.99)).toBe(7);
  });

  it('a verdict compares p50, p99 and bytes with the budget', () => {
    const budget = { p50Ms: 0.3, p99Ms: 1, kibPerStep: 10 };
    const measured = { p50Ms: 0.1, p99Ms: 1, maxMs: 5, runs: 1000, kibPerStep: 9 };
    expect(verdictOn(measured, budget)).toBe('met');
    expect(verdictOn({ ...measured, p50Ms: 0.4 }, budget)).toBe('missed');
    expect(verdictOn({ ...measured, p99Ms: 1.1 }, budget)).toBe('missed');
    expect(verdictOn({ ...measured, kibPerStep: 11 }, budget)).toBe('missed');
    expect(verdictOn({ ...measured, kibPerStep: 11 }, { p99Ms: 1 })).toBe('met');
  });
});
