import { Command } from 'commander';
import { formatTable } from '../../src/base/table.ts';
import { integerFrom } from '../../src/cli/args.ts';
import type { CliContext, ExitCode } from '../../src/cli/context.ts';
import { measurePools } from './pools.ts';

/** `kvasir bench pools`: random requests in small pools and few running slots, in simulated time. Needs no model. */
export function poolsCommand(context: CliContext, exit: (code: ExitCode) => void): Command {
  return new Command('pools')
    .summary('time of requests in small pools and few slots, simulated')
    .description(
      'Run the scheduler on random requests in small pools and with few running slots, without a model and in simulated' +
        ' time. The table compares with a pool that never fills up and a store that loads at once.',
    )
    .option('--seeds <n>', 'random scenarios of each kind', integerFrom(1), 100)
    .option('--json', 'print the table on standard error, and one JSON line {"rows":[...]} on standard output', false)
    .action(({ seeds, json }: { readonly seeds: number; readonly json: boolean }) => {
      const rows = measurePools({ seeds, onProgress: (text) => context.stderr.write(`${text}\n`) });
      const header = ['', 'mean ms', 'to unlimited', 'tokens', 'preemptions'];
      const cells = rows.map((row) => [row.what, row.meanMs, row.toUnlimited, row.tokens, row.preemptions]);
      (json ? context.stderr : context.stdout).write(`\n${formatTable(header, cells)}`);
      if (json) context.stdout.write(`${JSON.stringify({ rows })}\n`);
      exit(0);
    });
}
