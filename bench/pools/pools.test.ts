import { Readable } from 'node:stream';
import { expect, it } from 'vitest';
import type { CliContext } from '../../src/cli/context.ts';
import { runCli } from '../../src/cli/run-cli.ts';
import { benchCommand } from '../command.ts';
import { runScenario } from './pool-run.ts';
import { poolScenario, type ScenarioKind } from './pool-scenario.ts';
import type { PoolRow } from './pools.ts';

const kind: ScenarioKind = {
  name: 'test',
  blocks: [27, 60],
  maxNumSeqs: [8],
  endsEarly: true,
  cost: 'gpu',
  storedShare: 0.5,
};

it('`kvasir bench pools` has a row for each kind of scenario', async () => {
  let out = '';
  const noModel = () => Promise.reject(new Error('no model is needed'));
  const context: CliContext = {
    version: '0',
    createEngine: noModel,
    stdout: { write: (text) => (out += text) },
    stderr: { write: () => undefined },
    stdin: Readable.from([]),
    signals: process,
    exitNow: () => undefined,
  };
  expect(await runCli(['bench', 'pools', '--seeds', '3', '--json'], context, [benchCommand(noModel)])).toBe(0);
  const { rows } = JSON.parse(out) as { rows: PoolRow[] };
  expect(rows).toHaveLength(8);
  for (const { meanMs, toUnlimited, tokens } of rows) {
    expect(meanMs).toBeGreaterThan(0);
    expect(toUnlimited).toBeGreaterThan(0.9);
    expect(tokens).toBeGreaterThan(0.9);
  }
});

it('equal seeds give equal runs, and every request ends after its number of output tokens', () => {
  for (let seed = 1; seed <= 10; seed++) {
    const scenario = poolScenario(kind, seed);
    const run = runScenario(scenario, true);
    expect(run).toEqual(runScenario(poolScenario(kind, seed), true));
    expect(run.requests).toBe(scenario.requests.length);
    expect(run.outputTokens).toBe(scenario.requests.reduce((sum, { outputTokens }) => sum + outputTokens, 0));
    expect(run.meanMs).toBeGreaterThan(run.firstTokenMs);
  }
});

it('a smaller pool preempts requests, and they take longer', () => {
  const scenario = { ...poolScenario(kind, 3), blocks: 30 };
  const limited = runScenario(scenario, true);
  const unlimited = runScenario({ ...scenario, blocks: 10_000 }, true);
  expect(unlimited.preemptions).toBe(0);
  expect(limited.meanMs).toBeGreaterThan(unlimited.meanMs);
});
