import { Command } from 'commander';
import { formatTable } from '../../src/base/table.ts';
import { addEngineFlags, integerFrom } from '../../src/cli/args.ts';
import type { CliContext } from '../../src/cli/context.ts';
import {
  addBenchFlags,
  type BenchFlags,
  benchOptions,
  type Exit,
  report,
  untilInterrupted,
  withEngine,
} from '../bench-flags.ts';
import { RandomTokens } from '../random-tokens.ts';
import type { OpenMeasuredEngine } from '../subject/engine-subject.ts';
import { measureSmoothness, type SmoothnessRow } from './smoothness.ts';

interface SmoothnessFlags extends BenchFlags {
  readonly prompts: number;
  readonly promptLen: number;
  readonly streamPromptLen: number;
  readonly genLen: number;
}

export function smoothnessCommand(openEngine: OpenMeasuredEngine, context: CliContext, exit: Exit): Command {
  const command = new Command('smoothness')
    .summary('the time between tokens of a stream while long prompts arrive')
    .description(
      'Measure the time between tokens of a stream, alone and while long prompts arrive, with --target-inter-token-latency and without a limit in turn.',
    )
    .option('--prompts <n>', 'prompts that arrive one after the other', integerFrom(1), 2)
    .option('--prompt-len <tokens>', 'tokens of each prompt', integerFrom(1), 2048)
    .option('--stream-prompt-len <tokens>', "tokens of the stream's prompt", integerFrom(1), 64)
    .option('--gen-len <tokens>', 'tokens of the stream before the first prompt arrives', integerFrom(2), 64);
  return addEngineFlags(addBenchFlags(command, 3)).action(async (flags: SmoothnessFlags) =>
    exit(await untilInterrupted(context, (signal) => measure(openEngine, context, flags, signal))),
  );
}

function measure(
  openEngine: OpenMeasuredEngine,
  context: CliContext,
  flags: SmoothnessFlags,
  signal: AbortSignal,
): Promise<void> {
  const options = benchOptions(flags, context);
  const unlimited = { ...options, targetInterTokenLatency: 0 };
  return withEngine(openEngine, options, signal, (limited) =>
    withEngine(openEngine, unlimited, signal, async ({ engine }) => {
      const engines = [
        { target: flags.targetInterTokenLatency, engine: limited.engine },
        { target: 0, engine },
      ];
      const rows = await measureSmoothness(
        engines,
        new RandomTokens(Date.now(), engine.model.vocabSize),
        {
          streamPromptLength: flags.streamPromptLen,
          aloneLength: flags.genLen,
          prompts: flags.prompts,
          promptLength: flags.promptLen,
          repetitions: flags.repetitions,
          onProgress: (text) => context.stderr.write(`${text}\n`),
        },
        signal,
      );
      report(context, flags, limited, { table: smoothnessTable(rows), rows });
    }),
  );
}

function smoothnessTable(rows: readonly SmoothnessRow[]): string {
  const header = ['target', 'alone ms', 'beside p50', 'p99', 'max', 'p99 / alone', 'prompt tok/s'];
  const lines = rows.map(({ target, aloneMs, besideMs, ratio, promptTokensPerSecond }) => [
    target === 0 ? 'no limit' : String(target),
    aloneMs,
    besideMs.p50,
    besideMs.p99,
    besideMs.max,
    ratio,
    promptTokensPerSecond,
  ]);
  return formatTable(header, lines);
}
