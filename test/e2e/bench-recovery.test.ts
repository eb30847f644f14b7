/** `kvasir bench recovery` as in a user's shell, with few and short requests: servers, ranks and files are real. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { CaseRow, LoadMode } from '../../bench/recovery/case-run.ts';
import { faultsOf } from '../../bench/recovery/faults.ts';
import type { ScheduleOutcome } from '../../bench/recovery/schedules.ts';
import type { StageRow } from '../../src/cli/demo/report.ts';
import { buildCommand, main, mainInModules, run } from '../support/cli-process.ts';
import { inLongForm, isLongForm, itInLongForm } from '../support/long-form.ts';
import { needs } from '../support/needs.ts';
import { type PlantedBug, plantedBugs } from '../support/planted-bugs.ts';
import { environmentWith } from '../support/preload.ts';
import { realModel, timeoutMs } from '../support/real-models.ts';
import { temporaryFolder, writeTinyModel } from '../support/tiny-model.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-bench-test-'));
const bugs = mkdtempSync(join(tmpdir(), 'kvasir-bench-bugs-'));
afterAll(() => {
  for (const path of [folder, bugs]) rmSync(path, { recursive: true });
});
const models = temporaryFolder();
afterAll(() => models.remove());
beforeAll(async () => {
  await buildCommand();
  const shape = { layers: 3, window: 48, windowPattern: 3 };
  await writeTinyModel(models.file('windows.gguf'), { architecture: 'gemma3', type: 'F16', ...shape });
});

const small = '--requests 4 --prefixes 2 --prefix-len 64 --prompt-len 20 --gen-len 8 --part 0.3 --threads 1'.split(' ');

function bench(args: readonly string[], environment: Record<string, string> = {}, path = main) {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [path, 'bench', 'recovery', '--json', '--kv-cache-memory', '64MiB', ...small, ...args],
    { encoding: 'utf8', env: { ...process.env, ...environment, TMPDIR: folder } },
  );
  // The command has removed its stores and mounts.
  expect(readdirSync(folder)).toEqual([]);
  return { status, rows: (JSON.parse(stdout || '{"rows":[]}') as { rows: unknown[] }).rows, stderr };
}

const faults = faultsOf({ part: 0.3, slowMs: 200, downSeconds: 1 }).map(({ name }) => name);

/** A case with two ranks starts three processes. So most faults of files have one rank. */
const ofRanks = faults.filter((name) => /bit flip|worker/.test(name));
const ofFiles = faults.filter((name) => !ofRanks.includes(name));
/**
 * Each case starts a server, which costs more CPU time than its requests. The default form has killed workers in
 * `worker-chaos.test.ts`.
 */
const shortForm = /truncated/;
const inThisForm = (names: readonly string[]): readonly string[] =>
  names.filter((name) => isLongForm || shortForm.test(name));
const allCases = [
  ['2', 'async', 'seeded', inThisForm(ofRanks)],
  ['1', 'sync', 'greedy', inThisForm(ofFiles)],
] as const;
it.each(allCases.filter(([, , , names]) => names.length > 0))(
  'no fault changes a text, with %s rank(s), %s loads, %s',
  (ranks, mode, sampling, names) => {
    const shape = ['--ranks', ranks, '--mode', mode, '--sampling', sampling, '--down-seconds', '1'];
    const only = names.map((name) => name.replace(/[()]/g, '.')).join('|');
    const { status, rows, stderr } = bench([...shape, '--only', only]);
    expect(status, stderr).toBe(0);
    expect(rows).toHaveLength(1 + names.length);
    for (const row of rows as CaseRow[]) {
      expect(row).toMatchObject({ textsEqual: 4, requests: 4, requestsLost: 0, overMinimum: 0 });
      expect(row.computedTokens, row.fault).toBeGreaterThan(0);
      // Only hung reads make the engine give up loads of other blocks.
      if (row.fault === 'hung syscall') expect(row.givenUpTokens).toBeGreaterThanOrEqual(0);
      else expect(row.givenUpTokens, row.fault).toBe(0);
    }
    expect(stderr).toContain('over the minimum');
  },
);

itInLongForm('no fault of files changes a text with encrypted stores', () => {
  const damages = ['missing', 'bit flip', 'truncated'];
  const shape = ['--ranks', '2', '--mode', 'async', '--sampling', 'greedy', '--encrypt'];
  const { status, rows, stderr } = bench([...shape, '--only', damages.join('|')]);
  expect(status, stderr).toBe(0);
  expect(rows).toHaveLength(1 + damages.length);
  for (const row of rows as CaseRow[])
    expect(row).toMatchObject({ textsEqual: 4, requests: 4, requestsLost: 0, overMinimum: 0 });
});

type GroupCase = readonly [groups: string, ranks: string, model: () => string, mode: LoadMode];
const windows = (): string => models.file('windows.gguf');
// Each rank lacks layers of some groups. The demo has states (`demo.test.ts`).
const ofGroups: readonly GroupCase[] = [['windows', '2', windows, 'async']];
it.each(inLongForm(ofGroups, []))(
  'with %s on %s rank(s), no more than the minimum over all KV groups is computed',
  (_, ranks, model, mode) => {
    const shape = ['--ranks', ranks, '--mode', mode, '--sampling', 'greedy', '--model', model()];
    const damages = ['missing', 'bit flip', 'truncated'];
    const { status, rows, stderr } = bench([...shape, '--only', damages.join('|')]);
    expect(status, stderr).toBe(0);
    expect(rows).toHaveLength(1 + damages.length);
    for (const row of rows as CaseRow[])
      expect(row).toMatchObject({ textsEqual: 4, requests: 4, requestsLost: 0, overMinimum: 0 });
  },
);

// The default form has random schedules in `recovery-schedules.test.ts` and `recovery-process-schedules.test.ts`.
itInLongForm('random schedules of faults change no text', () => {
  const schedules = 4;
  const [outcome] = bench(['--schedules', `${schedules}`, '--seed', '3', '--ranks', '2', '--mode', 'async'])
    .rows as ScheduleOutcome[];
  expect(outcome).toMatchObject({ schedules, requestsLost: 0, failed: [] });
  expect(outcome!.textsEqual).toBe(outcome!.requests);
});

// `demo-planted-bugs.test.ts` has all bugs in the demo, which has the same reference.
it.each(inLongForm<readonly PlantedBug[]>(plantedBugs.slice(0, 1), []))(
  'an engine with the bug %s generates equal texts, but computes more than the minimum',
  (bug) => {
    const shape = ['--ranks', '1', '--mode', 'async', '--sampling', 'greedy', '--only', 'bit flip'];
    // Which blocks are damaged depends on their keys, and so on the kernels of this machine. With many blocks of each request, valid
    // blocks come after damaged ones in any case.
    const long = ['--requests', '8', '--prompt-len', '160', '--part', '0.2'];
    const { status, rows } = bench([...shape, ...long], environmentWith(bug, bugs), mainInModules);
    expect(status).toBe(1);
    const [none, ...faulty] = rows as CaseRow[];
    // On a busy machine a load may be late, which this bug makes dearer too.
    expect(none).toMatchObject({ textsEqual: 8 });
    expect(faulty).toHaveLength(1);
    for (const row of faulty) {
      expect(row).toMatchObject({ textsEqual: 8, requestsLost: 0 });
      expect(row.overMinimum, row.fault).toBeGreaterThan(0);
    }
  },
);

const limits = ['--threads', '1', '--kv-cache-memory', '128MiB', '--json'];
const fewTokens =
  '--requests 3 --prefixes 1 --prefix-len 48 --prompt-len 12 --gen-len 4 --part 0.4 --down-seconds 1'.split(' ');

/** Real models, with a stage of the demo, or with a fault of the benchmark. Other tests have all of them with the bundled models. */
const inDemo = [
  { ...realModel('gemma3'), stage: 'the last window' },
  { ...realModel('qwen2.5-coder'), stage: 'corrupt bytes' },
];
const inBenchmark = [
  { ...realModel('smollm2'), fault: 'truncated', mode: 'sync' },
  { ...realModel('gemma3'), fault: 'bit flip', mode: 'async' },
];

for (const { name, path, isThere, reason, stage } of inLongForm(inDemo, []))
  describe(name, needs(isThere, reason), () => {
    it(
      'shows the same texts in the demo, and computes the minimum',
      async () => {
        const { code, stdout, stderr } = await run(['demo', '--model', path, ...limits, '--stages', stage]);
        expect(code, stderr).toBe(0);
        const { stages: rows, isProven } = JSON.parse(stdout) as { stages: StageRow[]; isProven: boolean };
        expect(isProven).toBe(true);
        expect(rows.map(({ name }) => name)).toContain(stage);
        for (const row of rows) {
          expect(row).toMatchObject({ isTextEqual: true, computed: row.minimum, recomputed: row.repairMinimum });
        }
      },
      timeoutMs,
    );
  });

for (const { name, path, isThere, reason, fault, mode } of inLongForm(inBenchmark, []))
  describe(name, needs(isThere, reason), () => {
    it(
      'keeps its texts in the fault benchmark, and computes the minimum',
      async () => {
        const shape = ['--ranks', '1', '--mode', mode, '--sampling', 'greedy', '--only', fault];
        const { code, stdout, stderr } = await run([
          'bench',
          'recovery',
          '--model',
          path,
          ...limits,
          ...fewTokens,
          ...shape,
        ]);
        expect(code, stderr).toBe(0);
        const { rows } = JSON.parse(stdout) as { rows: CaseRow[] };
        expect(rows.map((row) => row.fault)).toEqual(['none', fault]);
        for (const row of rows)
          expect(row).toMatchObject({ textsEqual: 3, requests: 3, requestsLost: 0, overMinimum: 0, givenUpTokens: 0 });
      },
      timeoutMs,
    );
  });
