import { EventEmitter } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import type { CliContext } from './context.ts';
import { runCli } from './run-cli.ts';
import { simCommand } from './sim.ts';

async function cluster(flags: readonly string[], signals = new EventEmitter()) {
  const [out, err]: [string[], string[]] = [[], []];
  const sink = (into: string[]) => ({ write: (text: string) => into.push(text) > 0 });
  const context = { version: '0', stdout: sink(out), stderr: sink(err), signals } as unknown as CliContext;
  const code = await runCli(['sim', ...flags], context, [simCommand]);
  return { code, out: out.join(''), err: err.join(''), listeners: signals.listenerCount('SIGINT') };
}

const table = ['--cluster', '--replicas', '2', '--tier-gbits', '0,10', '--conversations', '2'];

test('the table has a row for each number of replicas and each bandwidth, and a plot', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'kvasir-plot-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const plot = join(folder, 'plot.svg');
  const { code, out } = await cluster([...table, '--decode-ms', '2', '--json', '--plot', plot]);
  expect(code).toBe(0);
  const { rows, settings } = JSON.parse(out) as { rows: object[]; settings: object };
  expect(rows).toMatchObject([
    { replicas: 2, tierGigabits: 0, tierHits: 0 },
    { replicas: 2, tierGigabits: 10 },
  ]);
  expect(readFileSync(plot, 'utf8').match(/<polyline/g)).toHaveLength(1);
  expect(settings).toMatchObject({ conversationsPerReplica: 2, costs: { decodeMs: 2, prefillTokensPerSecond: 857 } });
});

test('random clusters end with a summary, without the faults that are off', async () => {
  const { code, out } = await cluster(['--cluster', '--worlds', '3', '--seed', '5', '--off', 'crashes,drains']);
  expect(code).toBe(0);
  expect(out).toContain('no request was lost');
  expect(out).toContain('in 3 clusters from seed 5');
  expect(out).not.toMatch(/crashes|drains/);
});

test('Ctrl-C ends a simulated cluster', async () => {
  const signals = new EventEmitter();
  const run = cluster(['--cluster', '--replicas', '8', '--conversations', '200'], signals);
  await vi.waitFor(() => expect(signals.listenerCount('SIGINT')).toBe(1), { timeout: 60_000, interval: 1 });
  signals.emit('SIGINT');
  expect(await run).toMatchObject({ code: 130, out: '', listeners: 0 });
});

test.each([
  [['--replicas', '2'], '--replicas needs --cluster'],
  [['--cluster', '--steps', '10'], '--steps has no effect with --cluster'],
  [['--cluster', '--worlds', '1', '--decode-ms', '3'], '--decode-ms has no effect with --worlds'],
  [['--cluster', '--first', '1'], '--first needs --worlds'],
  [['--cluster', '--replicas', '1.5'], 'whole numbers of at least 1'],
  [['--cluster', '--tier-gbits', '1,x'], 'It must be a number'],
  [['--cluster', '--pool-tokens', '100'], 'of at least 10757'],
])('%j is refused with a hint', async (flags, hint) => {
  const { code, err } = await cluster(flags);
  expect(code).toBe(2);
  expect(err).toContain(hint);
});
