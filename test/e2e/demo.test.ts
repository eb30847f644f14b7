/** `kvasir demo` as a user's shell sees it: the built command, every stage a process of its own. */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text as readText } from 'node:stream/consumers';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import type { StageRow } from '../../src/cli/demo/report.ts';
import { buildCommand } from '../support/cli-process.ts';

const main = join(process.cwd(), 'dist', 'src', 'main.js');
/** Where the demo keeps its directories while it runs. */
const folder = mkdtempSync(join(tmpdir(), 'kvasir-demo-test-'));
const children: ChildProcessWithoutNullStreams[] = [];

beforeAll(buildCommand);
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
});
afterAll(() => rmSync(folder, { recursive: true }));

function start(args: readonly string[], environment: Record<string, string> = {}): ChildProcessWithoutNullStreams {
  const env = { ...process.env, TMPDIR: folder, ...environment };
  const child = spawn(process.execPath, [main, 'demo', '--threads', '1', '--kv-cache-memory', '64MiB', ...args], {
    env,
  });
  children.push(child);
  return child;
}

async function run(args: readonly string[], environment: Record<string, string> = {}) {
  const child = start(args, environment);
  child.stdin.end();
  const [stdout, stderr, [code]] = await Promise.all([
    readText(child.stdout),
    readText(child.stderr),
    once(child, 'close') as Promise<[number | null]>,
  ]);
  return { code, stdout, stderr };
}

it('loses KV in every way and writes the same texts, repairing exactly what was lost', async () => {
  const { code, stdout, stderr } = await run(['--json']);
  expect(code, stderr).toBe(0);
  const { stages, isProven } = JSON.parse(stdout) as { stages: StageRow[]; isProven: boolean };
  expect(isProven).toBe(true);
  expect(stages.map(({ name }) => name)).toEqual([
    'prefill',
    'decode',
    'failed load, sync',
    'failed load, async',
    'corrupt bytes',
    'a hole in the middle',
    'hung store',
    'seeded, temperature 0.8',
    'prefill, two ranks',
    'two ranks, other blocks',
  ]);
  for (const row of stages) {
    const { name, computed, minimum, recomputed, repairMinimum, failed, blocksFailed, blocksEqual, isTextEqual } = row;
    expect({ name, computed, recomputed, blocksEqual, isTextEqual }).toEqual({
      name,
      computed: minimum,
      recomputed: repairMinimum,
      blocksEqual: blocksFailed,
      isTextEqual: true,
    });
    expect(failed).toBe(blocksFailed * 16);
    expect(repairMinimum).toBe(blocksFailed * 16);
  }
  expect(stages.find(({ name }) => name === 'a hole in the middle')?.recomputed).toBe(16);
  expect(stages[2]?.events.join('\n')).toMatch(/Recovered from KV load failure: \d+ request\(s\) rescheduled/);
  expect(readdirSync(folder)).toEqual([]);
});

it('shows what differs, and says so to the shell, when a stage does not write the same', async () => {
  const { code, stdout } = await run([], { KVASIR_DEMO_PLANT_DIFFERENCE: '1' });
  expect(code).toBe(1);
  expect(stdout).toMatch(/^--- prompt 1, without a fault$/m);
  expect(stdout).toMatch(/^\+\+\+ prompt 1, seeded, temperature 0\.8$/m);
  expect(stdout).toMatch(/^@@ -1,\d+ \+1,\d+ @@$/m);
  expect(stdout.trimEnd().split('\n').at(-1)).toBe('Outputs differ: seeded, temperature 0.8.');
  // Nobody looks at it on a terminal, so there is nothing in it that only a terminal understands.
  expect(stdout).not.toContain('\u001b');
});

it('cleans up at Ctrl-C', async () => {
  const child = start([]);
  let said = '';
  child.stderr.on('data', (chunk: Buffer) => {
    said += chunk.toString();
    if (said.includes('running: decode')) child.kill('SIGINT');
  });
  child.stdout.resume();
  const [code] = (await once(child, 'close')) as [number | null];
  expect(code).toBe(130);
  expect(readdirSync(folder)).toEqual([]);
});

it('says what is wrong with a model', async () => {
  const { code, stderr } = await run(['--model', 'no-such-model.gguf']);
  expect(code).toBe(1);
  expect(stderr).toContain('no-such-model.gguf');
});
