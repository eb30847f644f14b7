/**
 * `npm run sim:coverage [-- steps [seed]]`: lists the code of the KV core and the scheduler that no world reaches.
 *
 * V8 counts how often each branch runs while the simulator runs all scenarios. A branch that never ran is a range with count 0: of
 * an if, ?:, ??, &&, a loop, a case or a function. V8 does not count an `if` without `else` that is always true, or optional
 * chaining. Positions come from the build's source maps.
 *
 * With `--floor`, steps and seed come from `coverage-floor.json`. It fails if a folder's share of reached branches is below its floor.
 */
import { readFileSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import { fileURLToPath } from 'node:url';
import { simulate } from '../sim/run.ts';
import { scenarios } from '../sim/world.ts';
import { assertDefined } from '../src/base/assert.ts';
import { branchesOf, isFailedAssertion } from './branch-coverage/branches.ts';
import { checkFloors, readFloors } from './branch-coverage/floors.ts';
import { type SourcePosition, sourcePositions } from './branch-coverage/source-positions.ts';

interface Unreached extends SourcePosition {
  readonly text: string;
}

const folders = /\/dist\/src\/(kv|scheduler)\//;

const floor = process.argv[2] === '--floor' ? readFloors().simulator : undefined;
const steps = floor?.steps ?? Number(process.argv[2] ?? 500_000);
const seed = floor?.seed ?? Number(process.argv[3] ?? 1);
const session = new Session();
session.connect();
await session.post('Profiler.enable');
await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
for (const scenario of scenarios) await simulate(seed, Math.ceil(steps / scenarios.length), { scenario });
const { result } = await session.post('Profiler.takePreciseCoverage');

let assertions = 0;
/** Branches by folder. */
const countOf = new Map<string, number>();
const missedOf = new Map<string, number>();
const unreached: Unreached[] = [];
for (const { url, functions } of result.filter((script) => folders.test(script.url))) {
  const path = fileURLToPath(url);
  const folder = assertDefined(folders.exec(url)?.[1], 'a script of a folder that is measured');
  const code = readFileSync(path, 'utf8');
  const positionOf = sourcePositions(path, code);
  const isAssertion = (text: string): boolean =>
    isFailedAssertion(text) || (path.endsWith('verify.js') && text.includes('assert(false'));
  const branches = branchesOf([{ path, code, functions }], isAssertion);
  assertions += branches.assertions;
  countOf.set(folder, (countOf.get(folder) ?? 0) + branches.count);
  missedOf.set(folder, (missedOf.get(folder) ?? 0) + branches.unreached.length);
  for (const { offset, text } of branches.unreached) unreached.push({ ...positionOf(offset), text });
}

unreached.sort((a, b) => a.file.localeCompare(b.file) || a.line - b.line);
for (const { file, line, text } of unreached) console.log(`${file}:${line}  ${text}`);
const count = [...countOf.values()].reduce((sum, each) => sum + each, 0);
const share = (100 * (count - unreached.length)) / count;
console.log(`${assertions} more run only when an assertion fails`);
console.log(
  `${steps} steps from seed ${seed}: ${count - unreached.length} of ${count} branches (${share.toFixed(1)} %)`,
);
if (floor !== undefined) {
  const found = new Map([...countOf].map(([folder, all]) => [folder, (100 * (all - missedOf.get(folder)!)) / all]));
  checkFloors(floor, found, 'Add worlds that reach this code, or remove it.');
}
