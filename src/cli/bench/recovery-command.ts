import { setMaxListeners } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { Command } from 'commander';
import type { KvTransferConfig } from '../../connector/connector.ts';
import type { EngineOptions } from '../../engine/options.ts';
import { addEngineFlags, type EngineFlags, engineOptionsOf, integerFrom, numberFlag } from '../args.ts';
import type { CliContext, ExitCode } from '../context.ts';
import { Interruption } from '../interrupt.ts';
import { loadProgress } from '../load-progress.ts';
import { demoModelPath } from '../package-files.ts';
import type { OpenMeasuredEngine } from './engine-subject.ts';
import { interrupted } from './errors.ts';
import { isRowGood, measureRecovery, type RecoveryRow } from './recovery.ts';
import { recoveryScenarios } from './recovery-scenarios.ts';
import { killWriter, runWriter, writerCommandName } from './recovery-writer.ts';
import { formatTable } from './table.ts';

interface RecoveryFlags extends EngineFlags {
  readonly model?: string;
  readonly requests: number;
  readonly prefixes: number;
  readonly prefixLen: number;
  readonly promptLen: number;
  readonly genLen: number;
  readonly probability: number;
  readonly repetitions: number;
  readonly seed: number;
  readonly json: boolean;
}

type Exit = (code: ExitCode) => void;

/** `kvasir bench recovery`, and the hidden command that its writer's process runs. */
export function addRecoveryCommands(
  bench: Command,
  openEngine: OpenMeasuredEngine,
  context: CliContext,
  exit: Exit,
): void {
  bench.addCommand(recoveryCommand(openEngine, context, exit));
  const writer = new Command(writerCommandName).action(() => runWriter(openEngine, context));
  bench.addCommand(writer, { hidden: true });
}

function recoveryCommand(openEngine: OpenMeasuredEngine, context: CliContext, exit: Exit): Command {
  const command = new Command('recovery')
    .summary('one workload against stores that lose, corrupt, stall, hang, fill up and die')
    .description(
      'The same requests against a store with one fault after the other: what the text, the work and the first token\n' +
        'make of it. The exit code is 1 when a text differs from that of a run without a store, when a request is lost, or\n' +
        'when more tokens are computed than had to be.',
    )
    .option('--model <file>', 'path of a GGUF file (default: the bundled demo model)')
    .option('--requests <n>', 'requests that arrive at once', integerFrom(1, 256), 12)
    .option('--prefixes <n>', 'how many different beginnings they have', integerFrom(1, 256), 3)
    .option('--prefix-len <tokens>', 'tokens of each beginning', integerFrom(0), 512)
    .option('--prompt-len <tokens>', 'new tokens of each prompt behind it', integerFrom(1), 40)
    .option('--gen-len <tokens>', 'tokens to generate', integerFrom(1), 16)
    .option('--probability <p>', 'how probable it is that a load meets the fault', numberFlag, 0.1)
    .option('--repetitions <n>', 'how often to run each fault; percentiles are over all of them', integerFrom(1), 3)
    .option('--seed <n>', 'draws the workload and the faults', integerFrom(0), 1)
    .option('--json', 'print the table on standard error, and one JSON line {"rows":[...]} on standard output', false);
  return addEngineFlags(command).action(async (flags: RecoveryFlags) => exit(await run(openEngine, context, flags)));
}

async function run(openEngine: OpenMeasuredEngine, context: CliContext, flags: RecoveryFlags): Promise<ExitCode> {
  using interruption = new Interruption(context);
  const { signal } = interruption;
  // Every request of the workload listens.
  setMaxListeners(0, signal);
  const folder = await mkdtemp(join(tmpdir(), 'kvasir-bench-recovery-'));
  try {
    const model = flags.model ?? demoModelPath();
    const engine: EngineOptions = {
      ...engineOptionsOf(model, flags, loadProgress(model, context.stderr)),
      enablePrefixCaching: true,
    };
    const rows = await measureRecovery(
      {
        engine,
        blockSize: flags.blockSize,
        seed: flags.seed,
        requests: flags.requests,
        prefixes: flags.prefixes,
        prefixLength: flags.prefixLen,
        promptLength: flags.promptLen,
        generateLength: flags.genLen,
        scenarios: recoveryScenarios(Math.min(1, Math.max(0, flags.probability))),
        repetitions: flags.repetitions,
        folder,
        openEngine: async (options) => (await openEngine(options)).engine,
        killWriter: (order, prng) => killWriter(order, storeOf(order.engine), prng, signal),
        onProgress: (text) => {
          if (signal.aborted) throw interrupted();
          context.stderr.write(`${text}\n`);
        },
      },
      signal,
    );
    report(context, flags, model, rows);
    return rows.every(isRowGood) ? 0 : 1;
  } catch (error) {
    if (signal.aborted) return interruption.exitCode;
    throw error;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

const storeOf = ({ kvTransferConfig }: EngineOptions): string =>
  String(
    (kvTransferConfig as { kv_connector_extra_config?: KvTransferConfig['kvConnectorExtraConfig'] })
      .kv_connector_extra_config?.shared_storage_path,
  );

function report(context: CliContext, flags: RecoveryFlags, model: string, rows: readonly RecoveryRow[]): void {
  const threads = flags.threads ?? availableParallelism();
  const { requests, prefixes, prefixLen, promptLen, genLen, repetitions, seed } = flags;
  const title =
    `${basename(model)}, ${threads} threads, seed ${seed}: ${requests} requests with ${prefixes} beginnings of ` +
    `${prefixLen} tokens, ${prefixLen} + ${promptLen} -> ${genLen}, ${repetitions} repetitions`;
  (flags.json ? context.stderr : context.stdout).write(`\n${title}\n\n${table(rows)}\n${notes}`);
  if (flags.json) context.stdout.write(`${JSON.stringify({ rows })}\n`);
}

const notes =
  'Texts are compared with a run without a store: tokens and logprobs too. Computed: all tokens, prompts and generated\n' +
  'ones. The minimum is what a naive reference says that knows which blocks were stored and which were lost. A full disk is\n' +
  'injected: stores answer that there is no room. The killed writer is real.\n';

function table(rows: readonly RecoveryRow[]): string {
  return formatTable(
    ['fault', 'texts equal', 'loaded', 'failed', 'computed', 'over minimum', 'TTFT p50 ms', 'TTFT p99 ms', 'lost'],
    rows.map((row) => [
      row.name,
      `${row.textsEqual}/${row.requests}`,
      row.loadedTokens,
      row.failedTokens,
      row.computedTokens,
      row.overMinimum,
      row.firstTokenMs.p50,
      row.firstTokenMs.p99,
      row.requestsLost,
    ]),
  );
}
