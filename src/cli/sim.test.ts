import { expect, test } from 'vitest';
import type { CliContext } from './context.ts';
import { runCli } from './run-cli.ts';
import { simCommand } from './sim.ts';

async function sim(...flags: string[]) {
  const out: string[] = [];
  const sink = { write: (text: string) => out.push(text) > 0 };
  const context = { version: '0', stdout: sink, stderr: sink } as unknown as CliContext;
  const code = await runCli(['sim', ...flags], context, [simCommand]);
  return { code, text: out.join('') };
}

test('the same seed is the same run', async () => {
  const first = await sim('--seed', '7', '--steps', '300', '--scenario', 'crash', '--json');
  expect(first.code).toBe(0);
  expect(first.text).toBe((await sim('--seed', '7', '--steps', '300', '--scenario', 'crash', '--json')).text);
  expect(JSON.parse(first.text)).toMatchObject({ seed: 7, scenario: 'crash' });
});

test('a summary for people', async () => {
  expect((await sim('--steps', '100', '--scenario', 'local')).text).toContain('all invariants held');
});

test('an unknown scenario is refused, and the known ones are named', async () => {
  const { code, text } = await sim('--scenario', 'sunshine');
  expect(code).toBe(2);
  expect(text).toContain('crash');
});
