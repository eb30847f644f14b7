import { EventEmitter } from 'node:events';
import { expect, test, vi } from 'vitest';
import type { CliContext } from './context.ts';
import { runCli } from './run-cli.ts';
import { simCommand } from './sim.ts';

async function sim(flags: readonly string[], { isTTY = false, signals = new EventEmitter() } = {}) {
  const [out, err]: [string[], string[]] = [[], []];
  const sink = (into: string[]) => ({ isTTY, write: (text: string) => into.push(text) > 0 });
  const context = { version: '0', stdout: sink(out), stderr: sink(err), signals } as unknown as CliContext;
  const code = await runCli(['sim', ...flags], context, [simCommand]);
  return { code, out: out.join(''), err: err.join(''), listeners: signals.listenerCount('SIGINT') };
}

test('equal seeds give equal runs', async () => {
  const flags = ['--seed', '7', '--steps', '300', '--scenario', 'crash', '--json'];
  const first = await sim(flags);
  expect(first.code).toBe(0);
  expect(first.out).toBe((await sim(flags)).out);
  expect(JSON.parse(first.out)).toMatchObject({ seed: 7, scenario: 'crash' });
});

test('without --json, a readable summary is printed', async () => {
  expect((await sim(['--steps', '100', '--scenario', 'local'])).out).toContain('all invariants held');
});

test('faults and requests of a world can be left out', async () => {
  const { code, out } = await sim([
    '--steps',
    '1',
    '--turns',
    '3',
    '--off',
    'falseHits,aborts',
    '--without',
    'r1,r2',
    '--json',
  ]);
  expect(code).toBe(0);
  expect(JSON.parse(out)).toMatchObject({ worlds: 1 });
});

test('Ctrl-C ends a long run with the summary so far and leaves no listener', async () => {
  const signals = new EventEmitter();
  const run = sim(['--steps', '1000000000'], { isTTY: true, signals });
  await vi.waitFor(() => expect(signals.listenerCount('SIGINT')).toBe(1), { timeout: 60_000, interval: 1 });
  signals.emit('SIGINT');
  const { code, out, listeners } = await run;
  expect(code).toBe(130);
  expect(out).toContain('interrupted; so far all invariants held');
  expect(listeners).toBe(0);
});

test.each([
  ['--scenario', 'sunshine', 'crash'],
  ['--off', 'rain', 'There is no fault "rain"'],
])('%s %s is refused with a hint', async (flag, value, hint) => {
  const { code, err } = await sim([flag, value]);
  expect(code).toBe(2);
  expect(err).toContain(hint);
});
