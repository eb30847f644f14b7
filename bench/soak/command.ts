import { access, constants, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { availableParallelism, loadavg, tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { Command } from 'commander';
import { makeFolders } from '../../src/base/make-folders.ts';
import { demoModelPath } from '../../src/base/package-files.ts';
import { integerFrom, numberFlag } from '../../src/cli/args.ts';
import type { CliContext, ExitCode } from '../../src/cli/context.ts';
import { readGguf } from '../../src/ggml/gguf.ts';
import { readModelConfig } from '../../src/ggml/model-config.ts';
import { resultUnwritable } from '../errors.ts';
import { currentCommit, emptyResults } from '../standard-set/empty-results.ts';
import type { ResultsFile } from '../standard-set/results-file.ts';
import { isBytes, startUpDefault } from './growth.ts';
import { runSoak, type SoakReport } from './soak-run.ts';

interface SoakFlags {
  readonly model?: string;
  readonly minutes: number;
  readonly ranks: number;
  readonly clients: number;
  readonly threads: number;
  readonly seed: number;
  readonly startUp: number;
  readonly collect: boolean;
  readonly samples: number;
  readonly requests?: number;
  readonly out?: string;
}

/** `kvasir bench soak`: a server under random requests, aborts, faults and kills for a long time. */
export function soakCommand(context: CliContext, exit: (code: ExitCode) => void): Command {
  return new Command('soak')
    .summary('a server under random requests and faults for a long time')
    .description(
      'Start a server with two ranks and tiers, send random requests, close connections, let calls of the tiers fail,\n' +
        'lose blocks and kill worker processes. The exit code is 1 if a text differs from that of a server without tiers,\n' +
        'if a request is lost, or if memory or open files grow. Ctrl-C ends the run with the report so far.',
    )
    .option('--model <file>', 'path of a GGUF file (default: the bundled demo model)')
    .option('--minutes <n>', 'time with requests', numberFlag, 30)
    .option('--ranks <n>', 'worker processes', integerFrom(1, 16), 2)
    .option('--clients <n>', 'requests at one time', integerFrom(1, 256), 6)
    .option('--threads <n>', 'threads that compute', integerFrom(1), Math.max(1, availableParallelism() >> 1))
    .option('--seed <n>', 'seed of requests and faults', integerFrom(0), 1)
    .option('--requests <n>', 'end the run earlier, after so many requests', integerFrom(1))
    .option('--samples <n>', 'pauses in which memory and files are measured', integerFrom(20, 1000), 60)
    .option('--start-up <n>', 'requests before memory and files are measured', integerFrom(0), startUpDefault)
    .option('--no-collect', 'measure memory without garbage collections before, as users see it')
    .option('--out <file>', 'file of the result (default: bench/results/<date>-soak.json)')
    .action(async (flags: SoakFlags) => exit(await soak(context, flags)));
}

async function soak(context: CliContext, flags: SoakFlags): Promise<ExitCode> {
  const stop = new AbortController();
  // Later signals are ignored: the report takes seconds.
  const onSignal = (): void => stop.abort();
  context.signals.on('SIGINT', onSignal);
  context.signals.on('SIGTERM', onSignal);
  const folder = await mkdtemp(join(tmpdir(), 'kvasir-soak-'));
  try {
    const model = flags.model ?? demoModelPath();
    const { vocabSize } = readModelConfig(await readGguf(model));
    const { minutes, requests, samples, ranks, clients, seed, startUp, collect } = flags;
    const { date, ...about } = emptyResults(currentCommit(), basename(model));
    const path = flags.out ?? join('bench', 'results', `${date}-soak.json`);
    await prepareFolderOf(path);
    const loadBefore = loadAverage();
    const serverArgs = ['--threads', String(flags.threads), '--kv-cache-memory', '6MiB', '--max-model-len', '1024'];
    const onProgress = (line: string): void => void context.stderr.write(`${line}\n`);
    const report = await runSoak(
      {
        model,
        vocabSize,
        minutes,
        requests,
        samples,
        ranks,
        clients,
        seed,
        startUp,
        collect,
        folder,
        serverArgs,
        onProgress,
      },
      stop.signal,
    );
    const loadAfter = loadAverage();
    const limit = requests === undefined ? '' : ` --requests ${requests}`;
    const asSeen = collect ? '' : ' --no-collect';
    const command = `kvasir bench soak --minutes ${minutes}${limit}${asSeen} --ranks ${ranks} --clients ${clients} --threads ${flags.threads} --seed ${seed}`;
    const run = { command, loadBefore, seconds: report.seconds, rows: [{ loadAfter, ...report }] };
    await orUnwritable(path, () => writeFile(path, `${textOf({ date, ...about, runs: [run] })}\n`));
    context.stdout.write(`${summaryOf(report)}wrote ${path}\n`);
    return report.problems.length > 0 ? 1 : report.isInterrupted ? 130 : 0;
  } catch (error) {
    // Before the server under test has served, there is nothing to report.
    if (stop.signal.aborted) return 130;
    throw error;
  } finally {
    context.signals.off('SIGINT', onSignal);
    context.signals.off('SIGTERM', onSignal);
    await rm(folder, { recursive: true, force: true });
  }
}

/** A folder that cannot be written is an error before the run, not after it. @throws resultUnwritable */
const prepareFolderOf = (path: string): Promise<void> =>
  orUnwritable(path, async () => {
    await makeFolders(dirname(path));
    await access(dirname(path), constants.W_OK);
  });

async function orUnwritable(path: string, write: () => Promise<void>): Promise<void> {
  try {
    await write();
  } catch (error) {
    throw resultUnwritable({ path, reason: (error as Error).message }, error);
  }
}

/** Of the last minute. The clients and the server of a soak keep about four threads busy. */
const loadAverage = (): number => Number(loadavg()[0]?.toFixed(2));

/** JSON with a line for each sample. */
const textOf = (results: ResultsFile): string =>
  JSON.stringify(results, null, 2).replace(
    /\{\s+("seconds"[^{}]*?)\s+\}/g,
    (_, fields: string) => `{ ${fields.replace(/\s+/g, ' ')} }`,
  );

function summaryOf(report: SoakReport): string {
  const { seconds, requests, equal, wrong, lost, aborted, others, kills, lostBlocks, growth, problems } = report;
  const lines = [
    `${seconds} s: ${requests} requests, ${equal} equal, ${wrong} wrong, ${lost} lost, ${aborted} aborted, ${others} others; ${kills} worker processes killed, ${lostBlocks} blocks lost`,
  ];
  if (growth.server?.length === 0)
    lines.push('growth: not measured, because nearly all requests are start-up (--start-up)');
  for (const [name, measured] of Object.entries(growth))
    for (const { measure, first, last, perMillion, error, perHour, isLeak } of measured) {
      const unit = isBytes(measure) ? 1 << 20 : 1;
      const [from, to, slope, plusMinus, hourly] = [first, last, perMillion, error, perHour].map((value) =>
        (value / unit).toFixed(2),
      );
      const what = `${name} ${measure}${isBytes(measure) ? ' (MiB)' : ''}`;
      lines.push(
        `${what.padEnd(22)} ${from} -> ${to}, ${slope} ± ${plusMinus} per million requests, ${hourly} per hour${isLeak ? '  LEAK' : ''}`,
      );
    }
  return `${[...lines, ...problems.map((problem) => `problem: ${problem}`)].join('\n')}\n`;
}
