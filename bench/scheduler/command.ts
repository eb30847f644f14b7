import { availableParallelism, cpus } from 'node:os';
import { Command } from 'commander';
import { formatTable } from '../../src/base/table.ts';
import { integerFrom } from '../../src/cli/args.ts';
import type { CliContext, ExitCode } from '../../src/cli/context.ts';
import { poolTooSmall } from '../errors.ts';
import { wholeNumbersFlag } from '../flags.ts';
import { type Budget, blocksNeeded, measureScheduler, type SchedulerRow } from './scheduler.ts';

interface SchedulerFlags {
  readonly requests: number;
  readonly blocks: number;
  readonly blockSize: number;
  readonly promptLen: readonly number[];
  readonly steps: number;
  readonly longPrompt: number;
  readonly repetitions: number;
  readonly json: boolean;
}

/** `kvasir bench scheduler`: the time of planning and applying steps, with budgets. Needs no model. */
export function schedulerCommand(context: CliContext, exit: (code: ExitCode) => void): Command {
  return new Command('scheduler')
    .summary('CPU time and memory of planning and applying steps, without a model')
    .description(
      'Measure the CPU time and the memory of planning and applying a step, without a model. The budgets for 256 decodes and' +
        ' 100,000 blocks are p50 0.3 ms, p99 0.5 ms and 10 KiB; p99 1 ms if requests end and begin. The budget for planning' +
        ' a prompt of 100,000 tokens is 1 ms.',
    )
    .option('--requests <n>', 'running requests', integerFrom(1, 4096), 256)
    .option('--blocks <n>', 'blocks of the KV pool', integerFrom(1), 100_000)
    .option('--block-size <tokens>', 'tokens of a block', integerFrom(1), 16)
    .option('--prompt-len <tokens,...>', 'lengths of the prompts', wholeNumbersFlag, [128, 1024, 4096])
    .option('--steps <n>', 'steps of each measurement', integerFrom(1), 1400)
    .option('--long-prompt <tokens>', 'length of the prompt that is planned and admitted', integerFrom(1), 100_000)
    .option('--repetitions <n>', 'number of measurements; the table has the medians', integerFrom(1), 3)
    .option('--json', 'print the table on standard error, and one JSON line {"rows":[...]} on standard output', false)
    .action((flags: SchedulerFlags) => {
      run(context, flags);
      exit(0);
    });
}

function run(context: CliContext, flags: SchedulerFlags): void {
  const options = {
    requests: flags.requests,
    blocks: flags.blocks,
    blockSize: flags.blockSize,
    promptLengths: flags.promptLen.map((length) => Math.max(length, 1)),
    steps: flags.steps,
    longPrompt: flags.longPrompt,
    repetitions: flags.repetitions,
    onProgress: (text: string) => context.stderr.write(`${text}\n`),
  };
  const needed = blocksNeeded(options);
  if (needed > flags.blocks) throw poolTooSmall({ needed, blocks: flags.blocks });
  const rows = measureScheduler(options);
  const machine = `${cpus()[0]?.model ?? 'unknown CPU'}, ${availableParallelism()} cores`;
  const title = `${machine}, Node.js ${process.versions.node}, ${flags.blocks} blocks of ${flags.blockSize} tokens, ${flags.steps} steps, medians of ${flags.repetitions}`;
  (flags.json ? context.stderr : context.stdout).write(`\n${title}\n\n${schedulerTable(rows)}\n${notes}`);
  const versions = { kvasir: context.version, node: process.versions.node, v8: process.versions.v8 };
  if (flags.json) context.stdout.write(`${JSON.stringify({ machine, versions, rows })}\n`);
}

function schedulerTable(rows: readonly SchedulerRow[]): string {
  const header = ['CPU ms', 'p50', 'p99', 'max', 'KiB/step', 'budget', 'verdict'];
  return formatTable(
    header,
    rows.map((row) => [
      row.what,
      row.p50Ms,
      row.p99Ms,
      row.maxMs,
      row.kibPerStep ?? '-',
      row.budget === undefined ? '-' : budgetText(row.budget),
      row.verdict ?? '-',
    ]),
  );
}

const budgetText = ({ p50Ms, p99Ms, kibPerStep }: Budget): string =>
  [p50Ms ?? [], p99Ms, kibPerStep === undefined ? [] : `${kibPerStep} KiB`].flat().join(' / ');

const notes = `CPU time of the thread, with its part of garbage collection. KiB/step: what plan and apply allocate; it must not grow with the
prompt. budget: p50 / p99, or p99, and KiB/step.
`;
