/**
 * `npm run connector:coverage [-- --update]` lists the code of `src/connector` that the tests beside it do not reach. It fails if a
 * folder's share of reached branches is below its floor in `coverage-floor.json`. `--update` sets the floors to the shares found.
 *
 * `test/support/branch-coverage.ts` counts while the tests run. With a folder as the argument, the counts are there already, from a run
 * with `KVASIR_COVERAGE=folder` (`.ci/run`). Code that runs only on other threads counts as not reached.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { type Branches, branchesOf, isFailedAssertion, type RunScript } from './branch-coverage/branches.ts';
import {
  checkFloors,
  type FolderBranches,
  reachedPercent,
  readFloors,
  updateConnectorFloors,
} from './branch-coverage/floors.ts';
import { sourcePositions } from './branch-coverage/source-positions.ts';

const flags = process.argv.slice(2);
const given = flags.find((flag) => !flag.startsWith('--'));
const folder = given ?? mkdtempSync(join(tmpdir(), 'kvasir-coverage-'));
if (given === undefined) runTests();

const runs = new Map<string, RunScript[]>();
for (const file of readdirSync(folder))
  for (const script of JSON.parse(readFileSync(join(folder, file), 'utf8')) as RunScript[]) {
    const others = runs.get(script.path) ?? [];
    // A test may run a changed copy.
    if (others.length === 0 || others[0]!.code === script.code) runs.set(script.path, [...others, script]);
  }
if (given === undefined) rmSync(folder, { recursive: true });

const folders = new Map<string, FolderBranches>();
for (const [path, scripts] of [...runs].sort(([a], [b]) => a.localeCompare(b))) {
  const branches = branchesOf(scripts, isFailedAssertion);
  const { count, missed } = folders.get(folderOf(path)) ?? { count: 0, missed: 0 };
  folders.set(folderOf(path), { count: count + branches.count, missed: missed + branches.unreached.length });
  print(path, scripts[0]!.code, branches);
}
if (flags.includes('--update')) updateConnectorFloors(folders);
else
  checkFloors(
    readFloors().connector,
    new Map([...folders].map(([name, branches]) => [name, reachedPercent(branches)])),
    'Test this code, or remove it. `npm run connector:coverage -- --update` sets new floors.',
  );

function runTests(): void {
  // The long form reaches more branches.
  const env = { ...process.env, KVASIR_COVERAGE: folder, KVASIR_TEST_LONG: '0' };
  const { status } = spawnSync('npx', ['vitest', 'run', '--project', 'connector*'], { stdio: 'inherit', env });
  if (status !== 0) process.exit(1);
}

function folderOf(path: string): string {
  return relative('dist/src', dirname(path));
}

function print(path: string, code: string, { unreached }: Branches): void {
  const positionOf = sourcePositions(path, code);
  for (const { offset, text } of unreached) {
    const { file, line } = positionOf(offset);
    console.log(`${file}:${line}  ${text}`);
  }
}
