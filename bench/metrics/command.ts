import { Command } from 'commander';
import { formatTable } from '../../src/base/table.ts';
import { addEngineFlags, integerFrom } from '../../src/cli/args.ts';
import type { CliContext } from '../../src/cli/context.ts';
import {
  addBenchFlags,
  type BenchFlags,
  benchOptions,
  cell,
  type Exit,
  report,
  untilInterrupted,
  withEngine,
} from '../bench-flags.ts';
import { countsFlag } from '../flags.ts';
import { RandomTokens } from '../random-tokens.ts';
import type { OpenMeasuredEngine } from '../subject/engine-subject.ts';
import { type MetricsRow, measureMetricsCost } from './metrics-cost.ts';

interface MetricsFlags extends BenchFlags {
  readonly requests: readonly number[];
  readonly promptLen: number;
  readonly genLen: number;
}

/** `kvasir bench metrics`: what the metrics of `/metrics` cost. */
export function metricsCommand(openEngine: OpenMeasuredEngine, context: CliContext, exit: Exit): Command {
  const command = new Command('metrics')
    .summary('the CPU time of the metrics, as a share of a step')
    .description(
      'Measure the CPU time of the metrics in a step, as a share of the CPU time of the step, and that of an answer of /metrics. The budget is' +
        ' 0.5 % of a step.',
    )
    .option('--requests <n,...>', 'requests at once; a row for each number', countsFlag, [1, 8, 64])
    .option('--prompt-len <tokens>', 'tokens of each prompt', integerFrom(1), 64)
    .option('--gen-len <tokens>', 'tokens to generate', integerFrom(1), 64);
  return addEngineFlags(addBenchFlags(command, 3)).action(async (flags: MetricsFlags) =>
    exit(await untilInterrupted(context, (signal) => measure(openEngine, context, flags, signal))),
  );
}

function measure(
  openEngine: OpenMeasuredEngine,
  context: CliContext,
  flags: MetricsFlags,
  signal: AbortSignal,
): Promise<void> {
  return withEngine(openEngine, benchOptions(flags, context), signal, async (measured) => {
    const { engine } = measured;
    const random = new RandomTokens(1, engine.model.vocabSize);
    const { promptLen: promptLength, genLen: genLength, repetitions } = flags;
    const rows: MetricsRow[] = [];
    for (const requests of flags.requests) {
      rows.push(await measureMetricsCost(engine, random, { requests, promptLength, genLength, repetitions }, signal));
      context.stderr.write(`${requests} requests\n`);
    }
    report(context, flags, measured, { table: metricsTable(rows), rows });
  });
}

function metricsTable(rows: readonly MetricsRow[]): string {
  return formatTable(
    ['CPU time', 'step ms', 'metrics ms', 'share %', 'scrape ms'],
    rows.map((row) => [
      `${row.requests} requests`,
      cell(row.stepCpuMs),
      cell(row.metricsCpuMs),
      cell(row.sharePercent),
      cell(row.scrapeCpuMs),
    ]),
  );
}
