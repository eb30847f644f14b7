import { availableParallelism, cpus } from 'node:os';
import { Command } from 'commander';
import { formatTable } from '../../src/base/table.ts';
import { integerFrom } from '../../src/cli/args.ts';
import type { CliContext, ExitCode } from '../../src/cli/context.ts';
import { poolTooSmall } from '../errors.ts';
import { wholeNumbersFlag } from '../flags.ts';
import { blocksNeeded, measureScheduler, type SchedulerRow } from './scheduler.ts';

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
    .summary('time of planning and applying steps, without a model')
    .description(
      'Measure the time of planning and applying a step, without a model. The budgets are p50 0.3 ms and p99 1 ms for 256' +
        ' requests and 100,000 blocks. The budget for planning a prompt of 100,000 tokens is 1 ms.',
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
  const header = ['ms', 'p50', 'p99', 'max', 'p99 alone', 'disturbed', 'bytes/token', 'budget', 'verdict'];
  return formatTable(
    header,
    rows.map((row) => [
      row.what,
      row.p50Ms,
      row.p99Ms,
      row.maxMs,
      row.undisturbedP99Ms ?? '-',
      `${row.disturbed}/${row.runs}`,
      row.bytesPerToken ?? '-',
      row.budget === undefined ? '-' : [row.budget.p50Ms ?? [], row.budget.p99Ms].flat().join(' / '),
      row.verdict ?? '-',
    ]),
  );
}

const notes = `p99 alone: p99 of the runs that the kernel did not interrupt; disturbed: the number of interrupted runs. Interruptions of the
garbage collector's threads count too, so on a busy machine p99 alone is too low; on a quiet machine compare p99.
bytes/token: bytes that plan and apply allocate for each decoded token; they must not grow with the prompt.
budget: p50 / p99, or p99; unclear: missed by all runs together, but not by the runs that were not interrupted.
`;
