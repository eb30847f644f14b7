import { availableParallelism } from 'node:os';
import { basename } from 'node:path';
import { Command } from 'commander';
import type { EngineOptions } from '../../engine/options.ts';
import { type LlamaReference, openReference, type ReferenceOptions } from '../../ggml/llama-reference.ts';
import { addEngineFlags, type EngineFlags, engineOptionsOf, integerFrom, noticesTo, oneOf } from '../args.ts';
import type { CliContext, ExitCode } from '../context.ts';
import { orInterrupted } from '../interrupt.ts';
import { loadProgress } from '../load-progress.ts';
import { demoModelPath } from '../package-files.ts';
import type { CommandFactory } from '../run-cli.ts';
import { EngineSubject, type MeasuredEngine, type OpenMeasuredEngine } from './engine-subject.ts';
import { interrupted } from './errors.ts';
import { wholeNumbersFlag } from './flags.ts';
import { type LatencyRow, measureLatency } from './latency.ts';
import { PeerSubject } from './peer-subject.ts';
import { addRecoveryCommands } from './recovery-command.ts';
import { schedulerCommand } from './scheduler-command.ts';
import { formatTable } from './table.ts';
import { measureThroughput, REFERENCE_BATCH, type ThroughputRow } from './throughput.ts';

interface BenchFlags extends EngineFlags {
  readonly model?: string;
  readonly promptLen: number;
  readonly genLen: number;
  readonly repetitions: number;
  readonly peer: 'none' | 'libllama';
  readonly json: boolean;
}
interface LatencyFlags extends BenchFlags {
  readonly depth: readonly number[];
}
interface ThroughputFlags extends BenchFlags {
  readonly requests: number;
  readonly prefixLen: number;
}

/** `kvasir bench`: Kvasir measured on this machine, and libllama on the same file in the same minutes. */
export const benchCommand =
  (openEngine: OpenMeasuredEngine): CommandFactory =>
  (context, exit) => {
    const bench = new Command('bench')
      .summary('measure speed, also against libllama')
      .description('Measure speed on this machine, also against libllama on the same file, and the scheduler alone.');
    bench.addCommand(latencyCommand(openEngine, context, exit));
    bench.addCommand(throughputCommand(openEngine, context, exit));
    bench.addCommand(schedulerCommand(context, exit));
    addRecoveryCommands(bench, openEngine, context, exit);
    return bench;
  };

type Exit = (code: ExitCode) => void;

function latencyCommand(openEngine: OpenMeasuredEngine, context: CliContext, exit: Exit): Command {
  const command = addBenchFlags(new Command('latency'), { promptLen: 512, repetitions: 5 })
    .summary('one request at a time: prefill and decode, at some depths of context')
    .description('Prefill and decode of one request at a time, in tokens per second, behind contexts of some depths.')
    .option('--depth <tokens,...>', 'tokens that lie in the KV cache before', wholeNumbersFlag, [0, 2048]);
  return addEngineFlags(command).action(async (flags: LatencyFlags) => {
    const length = Math.max(...flags.depth) + flags.promptLen + flags.genLen + 1;
    const reference = { contextLength: length, batch: REFERENCE_BATCH, sequences: 1 };
    const code = await withSubjects(openEngine, context, flags, reference, async (measured, peer, signal) => {
      const ours = new EngineSubject(measured, flags.blockSize, signal);
      const rows = await measureLatency(peer === undefined ? [ours] : [ours, new PeerSubject(peer)], {
        depths: flags.depth,
        promptLength: flags.promptLen,
        generateLength: flags.genLen,
        repetitions: flags.repetitions,
        onProgress: (text) => context.stderr.write(`${text}\n`),
      });
      report(context, flags, measured, latencyTable(rows, flags), rows);
    });
    exit(code);
  });
}

function throughputCommand(openEngine: OpenMeasuredEngine, context: CliContext, exit: Exit): Command {
  const command = addBenchFlags(new Command('throughput'), { promptLen: 64, repetitions: 3 })
    .summary('many requests at once, with a common prefix')
    .description('Many requests that arrive at once and begin alike, in generated tokens per second.')
    .option('--requests <n>', 'requests that arrive at once', integerFrom(1, 256), 16)
    .option('--prefix-len <tokens>', 'tokens that all prompts begin with', integerFrom(0), 1024);
  return addEngineFlags(command).action(async (flags: ThroughputFlags) => {
    const contextLength = flags.prefixLen + flags.requests * (flags.promptLen + flags.genLen);
    const reference = { contextLength, batch: REFERENCE_BATCH, sequences: flags.requests };
    const code = await withSubjects(openEngine, context, flags, reference, async (measured, peer, signal) => {
      const options = {
        requests: flags.requests,
        prefixLength: flags.prefixLen,
        promptLength: flags.promptLen,
        generateLength: flags.genLen,
        repetitions: flags.repetitions,
        onProgress: (text: string) => context.stderr.write(`${text}\n`),
      };
      const row = await measureThroughput(measured, peer, options, signal);
      report(context, flags, measured, throughputTable(row), [row]);
    });
    exit(code);
  });
}

function addBenchFlags(command: Command, defaults: { promptLen: number; repetitions: number }): Command {
  return command
    .option('--model <file>', 'path of a GGUF file (default: the bundled demo model)')
    .option('--prompt-len <tokens>', 'new tokens of a prompt', integerFrom(1), defaults.promptLen)
    .option('--gen-len <tokens>', 'tokens to generate', integerFrom(1), 64)
    .option('--repetitions <n>', 'how often to measure; medians are reported', integerFrom(1), defaults.repetitions)
    .addOption(oneOf('--peer <peer>', 'whom to compare with', ['none', 'libllama'], 'none'))
    .option('--json', 'print the table on standard error, and one JSON line {"rows":[...]} on standard output', false);
}

type Measure = (measured: MeasuredEngine, peer: LlamaReference | undefined, signal: AbortSignal) => Promise<void>;

/** Opens Kvasir, and the peer if one is wanted, on the same file and the same threads; closes both. */
async function withSubjects(
  openEngine: OpenMeasuredEngine,
  context: CliContext,
  flags: BenchFlags,
  reference: Omit<ReferenceOptions, 'threads'>,
  measure: Measure,
): Promise<ExitCode> {
  const interrupt = new AbortController();
  const onSignal = (): void => interrupt.abort();
  context.signals.on('SIGINT', onSignal);
  try {
    const options = benchOptions(flags, context);
    const measured = await orInterrupted(openEngine(options), interrupt.signal);
    if (measured === undefined) return 130;
    let peer: LlamaReference | undefined;
    try {
      const threads = flags.threads ?? availableParallelism();
      if (flags.peer === 'libllama') peer = openReference(options.model, { ...reference, threads });
      await measure(measured, peer, interrupt.signal);
      return 0;
    } finally {
      peer?.close();
      await measured.engine.close();
    }
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === interrupted.definition.code) return 130;
    throw error;
  } finally {
    context.signals.off('SIGINT', onSignal);
  }
}

/** The context of a bench is a cached prefix, so prefixes are cached whatever the flags say. */
function benchOptions(flags: BenchFlags, context: CliContext): EngineOptions {
  const model = flags.model ?? demoModelPath();
  const options = engineOptionsOf(model, flags, {
    onProgress: loadProgress(model, context.stderr),
    onNotice: noticesTo(context.stderr),
  });
  return { ...options, enablePrefixCaching: true };
}

function report(
  context: CliContext,
  flags: BenchFlags,
  { engine }: MeasuredEngine,
  table: string,
  rows: readonly unknown[],
): void {
  const threads = flags.threads ?? availableParallelism();
  const { architecture, path } = engine.model;
  const title = `${basename(path)} (${architecture}), ${threads} threads, ${flags.numerics} numerics, medians of ${flags.repetitions}`;
  (flags.json ? context.stderr : context.stdout).write(`\n${title}\n\n${table}\n`);
  if (flags.json) context.stdout.write(`${JSON.stringify({ rows })}\n`);
}

const cell = (value: number | undefined): string => (value === undefined ? '-' : String(value));

function latencyTable(rows: readonly LatencyRow[], flags: LatencyFlags): string {
  const header = ['tok/s', 'depth', 'kvasir', 'libllama', 'ratio', 'overhead ms/step'];
  const lines = rows.flatMap(({ depth, prefill, decode, overheadMs }) => [
    [`prefill ${flags.promptLen}`, depth, cell(prefill.kvasir), cell(prefill.libllama), cell(prefill.ratio), ''],
    [`decode ${flags.genLen}`, depth, cell(decode.kvasir), cell(decode.libllama), cell(decode.ratio), cell(overheadMs)],
  ]);
  return formatTable(header, lines);
}

function throughputTable(row: ThroughputRow): string {
  const { requests, prefixLength, promptLength, generateLength, throughput, firstTokenMs } = row;
  const what = `${requests} requests, ${prefixLength} + ${promptLength} -> ${generateLength}`;
  return formatTable(
    ['tok/s generated', 'kvasir', 'libllama', 'ratio', 'first token ms'],
    [[what, cell(throughput.kvasir), cell(throughput.libllama), cell(throughput.ratio), cell(firstTokenMs)]],
  );
}
