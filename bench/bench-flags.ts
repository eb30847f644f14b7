import { availableParallelism } from 'node:os';
import { basename } from 'node:path';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { demoModelPath } from '../src/base/package-files.ts';
import { type EngineFlags, engineOptionsOf, eventsTo, integerFrom, oneOf } from '../src/cli/args.ts';
import type { CliContext, ExitCode } from '../src/cli/context.ts';
import { Interruption, orInterrupted } from '../src/cli/interrupt.ts';
import { loadProgress } from '../src/cli/load-progress.ts';
import type { EngineOptions } from '../src/engine/options.ts';
import { findGpu } from '../src/ggml/device.ts';
import { interrupted } from './errors.ts';
import type { MeasuredEngine, OpenMeasuredEngine } from './subject/engine-subject.ts';

/** Flags of the benches that run a model. */
export interface BenchFlags extends EngineFlags {
  readonly model?: string;
  readonly repetitions: number;
  readonly json: boolean;
}
export interface PeerFlags {
  readonly peer: 'none' | 'libllama';
  readonly peerUrl?: string;
}

export type Exit = (code: ExitCode) => void;

export function addBenchFlags(command: Command, repetitions: number): Command {
  return command
    .option('--model <file>', 'path of a GGUF file (default: the bundled demo model)')
    .option('--repetitions <n>', 'number of measurements; the table has the medians', integerFrom(1), repetitions)
    .option('--json', 'print the table on standard error, and one JSON line {"rows":[...]} on standard output', false);
}

/** `several`: the bench compares with both peers in one run. */
export function addPeerFlags(command: Command, peers: 'one' | 'several' = 'one'): Command {
  const url = new Option(
    '--peer-url <url>',
    "compare with a server that serves the same model over OpenAI's API, such as llama-server -np <requests>",
  ).argParser(urlFlag);
  return command
    .addOption(oneOf('--peer <peer>', 'engine to compare with', ['none', 'libllama'], 'none'))
    .addOption(peers === 'one' ? url.conflicts('peer') : url);
}

function urlFlag(text: string): string {
  if (/^https?:\/\//.test(text) && URL.canParse(text)) return text;
  throw new InvalidArgumentError('It must be a URL, like http://127.0.0.1:8080.');
}

export const threadsOf = (flags: EngineFlags): number => flags.threads ?? availableParallelism();

/** Where an engine with these flags computes, and its peer too. */
export const deviceOf = ({ device }: EngineFlags): 'cpu' | 'gpu' =>
  device === 'cpu' || findGpu() === undefined ? 'cpu' : 'gpu';

const placeOf = (flags: EngineFlags): string =>
  deviceOf(flags) === 'cpu' ? `${threadsOf(flags)} threads` : `GPU ${findGpu()?.description}`;

/** The context of a bench is a cached prefix, so prefix caching is always on. */
export function benchOptions(flags: BenchFlags, context: CliContext): EngineOptions {
  const model = flags.model ?? demoModelPath();
  const options = engineOptionsOf(model, flags, {
    ...loadProgress(model, context.stderr),
    onEvent: eventsTo(context.stderr),
  });
  return { ...options, enablePrefixCaching: true };
}

/** Runs a bench until it ends or the user interrupts it. */
export async function untilInterrupted(
  context: CliContext,
  measure: (signal: AbortSignal) => Promise<void>,
): Promise<ExitCode> {
  using interruption = new Interruption(context);
  try {
    await measure(interruption.signal);
    return 0;
  } catch (error) {
    if (interruption.signal.aborted) return interruption.exitCode;
    throw error;
  }
}

/** Opens an engine, and closes it after `measure`. */
export async function withEngine<T>(
  openEngine: OpenMeasuredEngine,
  options: EngineOptions,
  signal: AbortSignal,
  measure: (measured: MeasuredEngine) => Promise<T>,
): Promise<T> {
  const measured = await orInterrupted(openEngine(options), signal);
  if (measured === undefined) throw interrupted();
  try {
    return await measure(measured);
  } finally {
    await measured.engine.close();
  }
}

/** For people, and for `--json`. */
export interface BenchResults {
  readonly table: string;
  readonly rows: readonly unknown[];
}

export function report(
  context: CliContext,
  flags: BenchFlags,
  { engine }: Pick<MeasuredEngine, 'engine'>,
  results: BenchResults,
): void {
  const { architecture, path } = engine.model;
  reportOf(context, flags, `${basename(path)} (${architecture}), ${placeOf(flags)}`, results);
}

export function reportOf(context: CliContext, flags: BenchFlags, subject: string, { table, rows }: BenchResults): void {
  const title = `${subject}, ${flags.numerics} numerics, medians of ${flags.repetitions}`;
  (flags.json ? context.stderr : context.stdout).write(`\n${title}\n\n${table}\n`);
  if (flags.json) context.stdout.write(`${JSON.stringify({ rows })}\n`);
}

export const cell = (value: number | undefined): string => (value === undefined ? '-' : String(value));
