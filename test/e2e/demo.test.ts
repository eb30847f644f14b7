/** `kvasir demo` as in a user's shell: the built command, with each stage in its own process. */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text as readText } from 'node:stream/consumers';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import type { StageRow } from '../../src/cli/demo/report.ts';
import { buildCommand, main } from '../support/cli-process.ts';
import { inLongForm, itInLongForm } from '../support/long-form.ts';
import { gemma4WithExperts, temporaryFolder, writeTinyModel } from '../support/tiny-model.ts';

/** The parent of the demo's temporary directories. */
const folder = mkdtempSync(join(tmpdir(), 'kvasir-demo-test-'));
const children: ChildProcessWithoutNullStreams[] = [];

beforeAll(buildCommand);
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
});
afterAll(() => rmSync(folder, { recursive: true }));

function start(args: readonly string[], environment: Record<string, string> = {}): ChildProcessWithoutNullStreams {
  // Servers of users need the key; those of the demo have none.
  const env = { ...process.env, TMPDIR: folder, KVASIR_API_KEY: 'secret', ...environment };
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

const allStages = [
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
  'preempted, host memory',
  'restarted, disk tier',
];
/**
 * A load, a fault and a tier. A stage is a process, and with two ranks it is three: the default form has ranks in processes in
 * `recovery-process-schedules.test.ts`, and a restart with a disk tier in `offloading.test.ts`.
 */
const shortForm = allStages.filter((name) => !/failed load|a hole|hung|seeded|two ranks|restarted/.test(name));

it('the demo generates the same texts with every fault, and recomputes only the invalid blocks', async () => {
  const { code, stdout, stderr } = await run([
    '--json',
    ...inLongForm([], ['--stages', ...shortForm.filter((name) => !name.startsWith('prefill'))]),
  ]);
  expect(code, stdout + stderr).toBe(0);
  const { stages, isProven } = JSON.parse(stdout) as { stages: StageRow[]; isProven: boolean };
  expect(isProven).toBe(true);
  expect(stages.map(({ name }) => name)).toEqual(inLongForm(allStages, shortForm));
  const preempted = stages.find(({ mustPreempt }) => mustPreempt)!;
  expect(preempted.preemptions).toBeGreaterThan(0);
  expect(preempted.loaded).toBeGreaterThan(0);
  // `isProven` compares both with the minimum.
  expect(preempted.computed - preempted.recomputed).toBe(preempted.minimum - preempted.repairMinimum);
  const stage = (wanted: string): StageRow | undefined => stages.find(({ name }) => name === wanted);
  const { loaded } = stage('decode')!;
  expect(loaded).toBeGreaterThan(0);
  expect(stage('restarted, disk tier')?.loaded ?? loaded).toBe(loaded);
  for (const row of stages.filter(({ mustPreempt }) => !mustPreempt)) {
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
  expect(stage('a hole in the middle')?.recomputed ?? 16).toBe(16);
  expect(stage('corrupt bytes')!.events.join('\n')).toMatch(
    /Recovered from KV load failure: \d+ request\(s\) rescheduled/,
  );
  expect(readdirSync(folder)).toEqual([]);
});

const windowsModel = inLongForm(['gemma3'] as const, []);
it.each(windowsModel)(
  'the demo with a %s model shows for each KV group what was lost and recomputed',
  async (architecture) => {
    const models = temporaryFolder();
    const model = models.file('windows.gguf');
    const small = { embedding: 64, heads: 2, headsKv: 1, feedForward: 128 };
    await writeTinyModel(model, {
      architecture,
      type: 'F16',
      layers: 3,
      window: 48,
      windowPattern: 3,
      ...small,
    });
    const stages = ['a hole in the middle', 'two ranks, other blocks', 'the last window'];
    const { code, stdout, stderr } = await run(['--model', model, '--json', '--stages', ...stages]);
    expect(code, stdout + stderr).toBe(0);
    const rows = (JSON.parse(stdout) as { stages: StageRow[] }).stages;
    const groupsOf = (stage: string) => rows.find(({ name }) => name === stage)?.groups;
    const nothing = { kind: 'window', window: 48, lost: 0, recomputed: 0 };
    expect(groupsOf('a hole in the middle')).toEqual([{ kind: 'full', lost: 16, recomputed: 16 }, nothing, nothing]);
    expect(groupsOf('two ranks, other blocks')).toEqual([{ kind: 'full', lost: 48, recomputed: 48 }, nothing, nothing]);
    const window = { kind: 'window', window: 48, lost: 32, recomputed: 32 };
    expect(groupsOf('the last window')).toEqual([{ kind: 'full', lost: 0, recomputed: 0 }, window, window]);
    for (const { computed, minimum, recomputed, repairMinimum } of rows)
      expect({ computed, recomputed }).toEqual({ computed: minimum, recomputed: repairMinimum });
    // A lost block costs its tokens: the window in front of it is loaded.
    expect(rows.find(({ name }) => name === 'a hole in the middle')?.recomputed).toBe(16);
    expect(rows.find(({ name }) => name === 'the last window')?.recomputed).toBe(32);
    models.remove();
  },
);

itInLongForm(
  'the demo with a gemma4 recomputes only the invalid blocks, although its two kinds of layers have blocks of two lengths',
  async () => {
    const models = temporaryFolder();
    const model = models.file('gemma4.gguf');
    await writeTinyModel(model, { architecture: 'gemma4', type: 'Q8_0', ...gemma4WithExperts });
    const stages = ['failed load, async', 'two ranks, other blocks', 'the last window'];
    const { code, stdout, stderr } = await run(['--model', model, '--json', '--stages', ...stages]);
    expect(code, stdout + stderr).toBe(0);
    const rows = (JSON.parse(stdout) as { stages: StageRow[] }).stages;
    expect(rows.filter(({ failed }) => failed > 0).map(({ name }) => name)).toEqual(stages);
    for (const { blocksEqual, blocksFailed, groups } of rows) {
      expect(blocksEqual).toBe(blocksFailed);
      expect(groups.map(({ kind }) => kind)).toEqual(['full', 'window', 'window']);
      for (const { lost, recomputed } of groups) expect(recomputed).toBe(lost);
    }
    models.remove();
  },
);

itInLongForm(
  'the demo with the hybrid model: a lost state costs the tokens since the checkpoint before it',
  async () => {
    const model = 'models/kvasir-hybrid.gguf';
    const states = ['the last state, sync', 'the last state, async'];
    const others = ['failed load, sync', 'two ranks, other blocks'];
    const holes = ['a hole in the middle'];
    const stages = [...holes, 'the last window', ...others, ...states];
    const { code, stdout, stderr } = await run(['--model', model, '--json', '--stages', ...stages]);
    expect(code, stdout + stderr).toBe(0);
    const rows = (JSON.parse(stdout) as { stages: StageRow[] }).stages;
    const row = (stage: string): StageRow => rows.find(({ name }) => name === stage)!;
    for (const { name, computed, minimum, recomputed, repairMinimum } of rows)
      expect({ name, computed, recomputed }).toEqual({ name, computed: minimum, recomputed: repairMinimum });
    for (const hole of holes)
      expect(row(hole).groups.map(({ kind, lost }) => [kind, lost])).toEqual([
        ['full', 16],
        ['window', 0],
        ['state', 0],
      ]);
    expect(row('the last window').groups[1]).toEqual({ kind: 'window', window: 64, lost: 32, recomputed: 32 });
    for (const stage of states) {
      expect(row(stage).groups[2]).toEqual({ kind: 'state', lost: 64, recomputed: 64 });
      expect(row(stage).recomputed).toBe(2 * 32);
    }
  },
);

it.each(inLongForm(['models/kvasir-hybrid.gguf'], []))(
  'the demo with %s: preempted requests load their windows and states from host memory',
  async (model) => {
    const { code, stdout, stderr } = await run(['--model', model, '--json', '--stages', 'preempted, host memory']);
    expect(code, stdout + stderr).toBe(0);
    const row = (JSON.parse(stdout) as { stages: StageRow[] }).stages.at(-1)!;
    expect(row).toMatchObject({ mustPreempt: true, isTextEqual: true });
    expect(row.preemptions).toBeGreaterThan(0);
    expect(row.loaded).toBeGreaterThan(0);
    expect(row.computed - row.recomputed).toBe(row.minimum - row.repairMinimum);
  },
);

// The default form has a demo that exits with 1 in `demo-planted-bugs.test.ts`.
itInLongForm('the demo prints the difference and exits with 1 when a stage generates another text', async () => {
  const stages = ['--stages', 'seeded, temperature 0.8'];
  const { code, stdout } = await run(stages, { KVASIR_DEMO_PLANT_DIFFERENCE: '1' });
  expect(code).toBe(1);
  expect(stdout).toMatch(/^--- prompt 1, without a fault$/m);
  expect(stdout).toMatch(/^\+\+\+ prompt 1, seeded, temperature 0\.8$/m);
  expect(stdout).toMatch(/^@@ -1,\d+ \+1,\d+ @@$/m);
  expect(stdout.trimEnd().split('\n').at(-1)).toBe('Outputs differ: seeded, temperature 0.8.');
  // The output is not a terminal, so it has no terminal escapes.
  expect(stdout).not.toContain('\u001b');
});

it('the demo removes its directories at Ctrl-C', async () => {
  const child = start([]);
  let log = '';
  child.stderr.on('data', (chunk: Buffer) => {
    log += chunk.toString();
    if (log.includes('running: prefill')) child.kill('SIGINT');
  });
  child.stdout.resume();
  const [code] = (await once(child, 'close')) as [number | null];
  expect(code).toBe(130);
  expect(readdirSync(folder)).toEqual([]);
});

itInLongForm('the demo exits with an error that names a missing model', async () => {
  const { code, stderr } = await run(['--model', 'no-such-model.gguf']);
  expect(code).toBe(1);
  expect(stderr).toContain('no-such-model.gguf');
});
