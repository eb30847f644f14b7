/**
 * Runs the standard set of benches one after another, each in its own process, and writes their results with the machine
 * and the versions. The machine should be idle otherwise.
 *
 *   npm run bench                                        creates missing models in the temporary folder
 *   npm run bench -- --models <folder>                   with Q8_0.gguf and Q4_K_M.gguf
 *   npm run bench -- --list                              prints numbers and commands, runs no bench
 *   npm run bench -- --only 1-3,7                        a part, by numbers
 *   npm run bench -- --only 'latency.*Q8_0'              a part, by a regular expression for commands
 *   npm run bench -- --threads 2 --out <file.json>
 *
 * A part is added to the newest file of the day, or to the file of `--out`; it replaces earlier runs of the same
 * commands. A run of the whole set creates a new file.
 */
import { spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { availableParallelism, loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { text as readText } from 'node:stream/consumers';
import { parseArgs } from 'node:util';
import { makeFoldersSync } from '../../src/base/make-folders.ts';
import { writeShaped } from '../make-model/model-maker.ts';
import { currentCommit, emptyResults } from './empty-results.ts';
import { newestResults, type ResultsFile, type ResultsRow, type ResultsRun, withRun } from './results-file.ts';
import { argumentsOf, chosenBenches, commandOf, type StandardBench, standardSet } from './standard-set.ts';

const { values } = parseArgs({
  options: {
    models: { type: 'string', default: join(tmpdir(), 'kvasir-bench-models') },
    threads: { type: 'string', default: String(availableParallelism()) },
    only: { type: 'string', default: '' },
    list: { type: 'boolean', default: false },
    out: { type: 'string' },
  },
});
const folder = join('bench', 'results');
const today = new Date().toISOString().slice(0, 10);
const modelsOfSet =
  'random weights in the shape of Qwen3-0.6B: node dist/bench/make-model/make-model.js MODEL.gguf Q8_0|Q4_K_M';

const chosen = chosenBenches(standardSet, values.only, values.threads);
if (values.list) for (const bench of chosen) console.log(`${numberOf(bench)}  ${commandOf(bench, values.threads)}`);
else if (chosen.length > 0) await runAll();
else {
  console.error(`no bench matches --only ${values.only}; --list shows them all`);
  process.exitCode = 2;
}

async function runAll(): Promise<void> {
  const path = values.out ?? (values.only === '' ? freePath() : (todaysPath() ?? freePath()));
  const loadBefore = Number(loadavg()[0]?.toFixed(2));
  if (loadBefore > 0.5) {
    console.error(`warning: the machine is busy (load ${loadBefore}); figures will be noisy, and the file will say so`);
  }
  const commit = currentCommit();
  let results = openResults(path, commit);
  const startedMs = performance.now();
  const failed: StandardBench[] = [];
  for (const [i, bench] of chosen.entries()) {
    if (bench.model !== undefined) await makeModel(bench.model);
    const elapsed = clockTime((performance.now() - startedMs) / 1000);
    console.error(`\n== ${i + 1} of ${chosen.length}, ${elapsed} since the start: ${commandOf(bench, values.threads)}`);
    const run = await measured(bench, loadBefore);
    if (run === undefined) {
      failed.push(bench);
      continue;
    }
    results = withRun(results, commit, run);
    // Written after each bench, so that an interrupted run keeps its results.
    makeFoldersSync(folder);
    writeFileSync(path, `${JSON.stringify(results, null, 2)}\n`);
  }
  const elapsed = clockTime((performance.now() - startedMs) / 1000);
  if (results.runs.length > 0) console.error(`\n${elapsed}, wrote ${path}; to draw it: npm run bench:plot -- ${path}`);
  if (failed.length === 0) return;
  console.error(
    `failed; to run again: npm run bench -- --only ${failed.map((bench) => numberOf(bench).trim()).join(',')}`,
  );
  process.exitCode = 1;
}

function numberOf(bench: StandardBench): string {
  return String(standardSet.indexOf(bench) + 1).padStart(2);
}

function clockTime(seconds: number): string {
  return `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, '0')}`;
}

function todaysPath(): string | undefined {
  const names = existsSync(folder) ? readdirSync(folder) : [];
  const newest = newestResults(names.filter((name) => name.startsWith(today)));
  return newest === undefined ? undefined : join(folder, newest);
}

/** A path without a file: a run does not replace the results of an earlier run of the day. */
function freePath(): string {
  for (let i = 1; ; i++) {
    const free = join(folder, i === 1 ? `${today}.json` : `${today}-${i}.json`);
    if (!existsSync(free)) return free;
  }
}

/** The earlier results in the file, which must be of this machine and these versions. */
function openResults(path: string, commit: string): ResultsFile {
  const fresh = emptyResults(commit, modelsOfSet);
  if (!existsSync(path)) return fresh;
  const found = JSON.parse(readFileSync(path, 'utf8')) as ResultsFile;
  const of = ({ machine, versions }: ResultsFile): string => JSON.stringify([machine, versions]);
  if (of(found) !== of(fresh))
    throw new Error(`${path} is of another machine or of other versions; choose another --out`);
  console.error(`adding to ${path}`);
  return found;
}

/** Writes the model under another name first, so that an interrupted run leaves no incomplete model. */
async function makeModel(type: NonNullable<StandardBench['model']>): Promise<void> {
  const file = join(values.models, `${type}.gguf`);
  if (existsSync(file)) return;
  makeFoldersSync(values.models);
  console.error(`making ${file}`);
  await writeShaped(`${file}.partial`, 'qwen3-0.6b', type);
  renameSync(`${file}.partial`, file);
}

/** Undefined if the bench failed, after it printed the reason. */
async function measured(bench: StandardBench, loadBefore: number): Promise<ResultsRun | undefined> {
  const { args, model } = bench;
  const command = commandOf(bench, values.threads);
  const startedMs = performance.now();
  const main = join('dist', 'bundle', 'src', 'main.js');
  const own = argumentsOf({ args, model }, values.threads, (file) => join(values.models, file));
  const child = spawn(process.execPath, [main, 'bench', ...own], { stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = new Promise<number | null>((resolve) => child.on('exit', resolve));
  const stdout = await readText(child.stdout);
  const code = await exited;
  if (code !== 0) return undefined;
  const { rows } = JSON.parse(stdout.trimEnd().split('\n').at(-1) ?? '') as { rows: ResultsRow[] };
  return { command, loadBefore, seconds: Math.round((performance.now() - startedMs) / 1000), rows };
}
