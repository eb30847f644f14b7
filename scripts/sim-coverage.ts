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
import { SourceMap } from 'node:module';
import { dirname, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { simulate } from '../sim/run.ts';
import { scenarios } from '../sim/world.ts';
import { assertDefined } from '../src/base/assert.ts';

interface Unreached {
  readonly file: string;
  readonly line: number;
  readonly text: string;
}

const folders = /\/dist\/src\/(kv|scheduler)\//;

interface Floor {
  readonly steps: number;
  readonly seed: number;
  readonly reachedPercent: Readonly<Record<string, number>>;
}

const floorFile = 'scripts/coverage-floor.json';
const floor = process.argv[2] === '--floor' ? (JSON.parse(readFileSync(floorFile, 'utf8')) as Floor) : undefined;
const steps = floor?.steps ?? Number(process.argv[2] ?? 500_000);
const seed = floor?.seed ?? Number(process.argv[3] ?? 1);
const session = new Session();
session.connect();
await session.post('Profiler.enable');
await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
for (const scenario of scenarios) simulate(seed, Math.ceil(steps / scenarios.length), { scenario });
const { result } = await session.post('Profiler.takePreciseCoverage');

let blocks = 0;
/** Branches by folder. */
const blocksOf = new Map<string, number>();
let assertions = 0;
const unreached: Unreached[] = [];
for (const { url, functions } of result.filter((script) => folders.test(script.url))) {
  const path = fileURLToPath(url);
  const folder = assertDefined(folders.exec(url)?.[1], 'a script of a folder that is measured');
  const code = readFileSync(path, 'utf8');
  const map = new SourceMap(JSON.parse(readFileSync(`${path}.map`, 'utf8')));
  for (const { ranges } of functions) {
    blocks += ranges.length;
    add(folder, ranges.length);
    for (const { count, startOffset, endOffset } of ranges) {
      const text = code.slice(startOffset, endOffset);
      // Ranges without code, and code that runs only when an assertion fails, do not count.
      if (count > 0 || /^[\s{}]*$/.test(text)) continue;
      if (isAssertion(path, text)) {
        assertions++;
        add(folder, -1);
        continue;
      }
      unreached.push({ ...positionOf(path, code, startOffset, map), text: text.replace(/\s+/g, ' ').slice(0, 100) });
    }
  }
}

unreached.sort((a, b) => a.file.localeCompare(b.file) || a.line - b.line);
for (const { file, line, text } of unreached) console.log(`${file}:${line}  ${text}`);
blocks -= assertions;
const reached = (100 * (blocks - unreached.length)) / blocks;
console.log(`${assertions} more run only when an assertion fails`);
console.log(
  `${steps} steps from seed ${seed}: ${blocks - unreached.length} of ${blocks} blocks (${reached.toFixed(1)} %)`,
);
if (floor !== undefined) checkFloor(floor);

function add(folder: string, count: number): void {
  blocksOf.set(folder, (blocksOf.get(folder) ?? 0) + count);
}

function checkFloor({ reachedPercent }: Floor): void {
  for (const [folder, wanted] of Object.entries(reachedPercent)) {
    const all = assertDefined(blocksOf.get(folder), `no script of src/${folder} ran`);
    const missed = unreached.filter(({ file }) => file.startsWith(`src/${folder}/`)).length;
    const found = (100 * (all - missed)) / all;
    console.log(`src/${folder}: ${found.toFixed(1)} % of ${all} blocks, at least ${wanted} %`);
    if (found >= wanted) continue;
    console.error(
      `src/${folder} is below its floor: the simulator no longer reaches the lines above. Add worlds that reach this code, or remove it. ${floorFile} has the floors.`,
    );
    process.exitCode = 1;
  }
}

function isAssertion(path: string, text: string): boolean {
  return /^[\s{]*(assert\(false|fail\w*\()/.test(text) || (path.endsWith('verify.js') && text.includes('assert(false'));
}

function positionOf(path: string, code: string, offset: number, map: SourceMap): Omit<Unreached, 'text'> {
  // The position of the branch's first code, not of the space before it.
  const at = offset + /^[\s{?:]*/.exec(code.slice(offset))![0].length;
  const before = code.slice(0, at).split('\n');
  const entry = map.findEntry(before.length - 1, before[before.length - 1]!.length);
  if (!('originalSource' in entry)) return { file: relative(process.cwd(), path), line: before.length };
  const source = resolve(dirname(path), entry.originalSource);
  return { file: relative(process.cwd(), source), line: entry.originalLine + 1 };
}
