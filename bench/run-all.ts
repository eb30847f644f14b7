/**
 * Runs the standard set of benches, each in a process of its own, one after another, and writes what they say with the
 * machine and the versions. The machine should have nothing else to do.
 *
 *   npm run bench                                        models are made in the temporary folder when they are not there
 *   npm run bench -- --models <folder>                   with Q8_0.gguf and Q4_K_M.gguf
 *   npm run bench -- --threads 2 --only transfer --out bench/results/<date>.json
 */
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { availableParallelism, cpus, loadavg, tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { text as readText } from 'node:stream/consumers';
import { parseArgs } from 'node:util';
import { findNativeLibraries, GGML_VERSION, NATIVE_PACKAGE_VERSION } from '../src/ggml/native-package.ts';
import { writeQwen06Shaped } from './model-maker.ts';
import type { ResultsFile, ResultsRow, ResultsRun } from './results-file.ts';
import { type StandardBench, standardSet } from './standard-set.ts';

const { values } = parseArgs({
  options: {
    models: { type: 'string', default: join(tmpdir(), 'kvasir-bench-models') },
    threads: { type: 'string', default: String(availableParallelism()) },
    only: { type: 'string', default: '' },
    out: { type: 'string' },
  },
});

const loadBefore = Number(loadavg()[0]?.toFixed(2));
if (loadBefore > 0.5) {
  console.error(`warning: the machine is busy (load ${loadBefore}); figures will be noisy, and the file will say so`);
}
const runs: ResultsRun[] = [];
const path = values.out ?? freePath();
for (const bench of standardSet.filter(({ args }) => args.join(' ').includes(values.only))) {
  if (bench.model !== undefined) await makeModel(bench.model);
  runs.push(await run(bench));
  // After each of them, so that an interrupted run has what it has.
  writeFileSync(path, `${JSON.stringify(results(), null, 2)}\n`);
}
console.error(`wrote ${path}; to draw it: npm run bench:plot -- ${path} docs/performance.svg`);

function today(): string {
  return new Date().toISOString().slice(0, 10);
}

/** The results of a day do not replace those of the same day. */
function freePath(): string {
  const name = join('bench', 'results', today());
  for (let i = 1; ; i++) {
    const free = i === 1 ? `${name}.json` : `${name}-${i}.json`;
    if (!existsSync(free)) return free;
  }
}

/** Made under another name first: what an interrupted run has left is not a model. */
async function makeModel(type: NonNullable<StandardBench['model']>): Promise<void> {
  const file = join(values.models, `${type}.gguf`);
  if (existsSync(file)) return;
  mkdirSync(values.models, { recursive: true });
  console.error(`making ${file}`);
  await writeQwen06Shaped(`${file}.partial`, type);
  renameSync(`${file}.partial`, file);
}

async function run({ args, model }: StandardBench): Promise<ResultsRun> {
  const needsThreads = args[0] !== 'scheduler';
  const tail = [...args, ...(needsThreads ? ['--threads', values.threads] : []), '--json'];
  const withModel = (folder: string): string[] =>
    model === undefined ? tail : [...tail, '--model', join(folder, `${model}.gguf`)];
  const command = `kvasir bench ${withModel('').join(' ')}`;
  console.error(`\n== ${command}`);
  const main = join('dist', 'src', 'main.js');
  const child = spawn(process.execPath, [main, 'bench', ...withModel(values.models)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = new Promise<number | null>((resolve) => child.on('exit', resolve));
  const stdout = await readText(child.stdout);
  const code = await exited;
  if (code !== 0) throw new Error(`${command} ended with ${code}`);
  const { rows } = JSON.parse(stdout.trimEnd().split('\n').at(-1) ?? '') as { rows: ResultsRow[] };
  return { command, rows };
}

function results(): ResultsFile {
  const gigabytes = Math.round(totalmem() / 1024 ** 3);
  return {
    date: today(),
    machine: `${availableParallelism()} cores of ${cpus()[0]?.model ?? 'an unknown CPU'}, ${gigabytes} GiB, ${process.platform}`,
    loadBefore,
    versions: {
      node: process.versions.node,
      ggml: GGML_VERSION,
      package: `${findNativeLibraries().packageName} ${NATIVE_PACKAGE_VERSION}`,
      cc: firstLineOf('cc', '--version'),
    },
    commit: firstLineOf('git', 'rev-parse', '--short', 'HEAD'),
    models: 'random weights in the shape of Qwen3-0.6B: node dist/bench/make-model.js MODEL.gguf Q8_0|Q4_K_M',
    runs,
  };
}

function firstLineOf(command: string, ...args: string[]): string {
  const { stdout } = spawnSync(command, args, { encoding: 'utf8' });
  return typeof stdout === 'string' ? (stdout.split('\n')[0] ?? '') : 'none';
}
