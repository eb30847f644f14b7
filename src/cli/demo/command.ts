import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { Command, Option } from 'commander';
import { demoModelPath } from '../../base/package-files.ts';
import { engineDefaults } from '../../engine/options.ts';
import { bytesFlag, integerFrom } from '../args.ts';
import type { CliContext, ExitCode } from '../context.ts';
import { Interruption } from '../interrupt.ts';
import { longestBlock } from '../proof/needed-tokens.ts';
import { ServerProcess } from '../proof/server-process.ts';
import type { CommandFactory } from '../run-cli.ts';
import { differencesOf, isProven, rowOf, type StageFacts, type StageRow } from './report.ts';
import { Scenario } from './scenario.ts';
import { StageTable } from './stage-table.ts';
import { limits, stageNames, stagesFor, type TierStage, tierStages } from './stages.ts';
import { preemptedBlockSizeMax } from './tier-scenario.ts';

interface DemoFlags {
  readonly model?: string;
  readonly threads?: number;
  readonly blockSize: number;
  readonly kvCacheMemory?: number;
  readonly keep: boolean;
  readonly stages?: readonly string[];
  readonly json: boolean;
}

/** `kvasir demo`: KV that one process stored fails to load in other processes, and the texts are the same. */
export const demoCommand: CommandFactory = (context, exit) =>
  new Command('demo')
    .summary('show that the text is the same after failed loads')
    .description(
      'Show recovery from failed loads. All servers keep KV in host memory and on a disk, as with --kv-tier host:1GiB\n' +
        '--kv-tier disk:PATH. One computes four prompts and stores their KV. Then each stage, a separate server, loads the\n' +
        'KV from the disk and continues the texts. In the stages, loads fail, bytes are corrupt, the disk hangs, or\n' +
        'different blocks are missing on two ranks. Then requests are preempted and load their KV from host memory, and a\n' +
        'server that starts again loads it from the disk. Every text must be the same, and only tokens whose load failed\n' +
        'may be computed again. Otherwise the exit code is 1.',
    )
    .option('--model <file>', 'path of a GGUF file (default: the bundled demo model)')
    .option('--threads <n>', 'threads that compute in each process (default: all cores)', integerFrom(1))
    .option('--block-size <tokens>', 'tokens of one KV block', integerFrom(1), engineDefaults.blockSize)
    .option('--kv-cache-memory <bytes>', 'size of the KV pool, like 2GiB', bytesFlag)
    .addOption(new Option('--stages <names...>', 'only these stages, for tests').choices(stageNames).hideHelp())
    .option('--keep', 'keep the stored blocks of all stages, and print their folder', false)
    .option('--json', 'print one JSON line {"model", "stages", "isProven"} on standard output', false)
    .addHelpText(
      'after',
      `
Columns:
  loaded, failed   tokens whose KV was loaded, and tokens whose load failed
  recomputed       tokens that were computed because of failed loads or preemptions, as counted by the engine
  computed         all computed tokens, of prompts and outputs
  minimum          smallest number of tokens to compute; a naive reference counts it from the blocks that failed
  first token      median over the prompts, since submission
  same KV          failed blocks whose recomputed bytes have the checksum of the original bytes
  text             whether texts, tokens and logprobs equal those of the prefill stage, which loads no KV

With a model with sliding windows or recurrent states, prompts run one after the other, because the minimum depends on their
order. Lines below a stage have the lost and the recomputed tokens of each KV group. A lost state costs the tokens since the
checkpoint before it. The stage with preemptions is left out if blocks have more than ${preemptedBlockSizeMax} tokens, as with large states.

Examples:
  kvasir demo
  kvasir demo --model qwen3-0.6b-q8_0.gguf --keep`,
    )
    .action(async (flags: DemoFlags) => exit(await runDemo(flags, context)));

async function runDemo(flags: DemoFlags, context: CliContext): Promise<ExitCode> {
  using interruption = new Interruption(context);
  const folder = await mkdtemp(join(tmpdir(), 'kvasir-demo-'));
  try {
    return await runScenario(flags, context, folder, interruption.signal);
  } catch (error) {
    if (interruption.signal.aborted) return interruption.exitCode;
    throw error;
  } finally {
    if (flags.keep) context.stderr.write(`The stages' directories are in ${folder}\n`);
    else await rm(folder, { recursive: true, force: true });
  }
}

async function runScenario(
  flags: DemoFlags,
  context: CliContext,
  folder: string,
  signal: AbortSignal,
): Promise<ExitCode> {
  const { stdout } = context;
  const model = flags.model ?? demoModelPath();
  const hasColours = stdout.isTTY === true && process.env.NO_COLOR === undefined;
  const table = new StageTable(hasColours);
  const { threads, blockSize, kvCacheMemory } = flags;
  const serverFlags = [
    ...[model, '--block-size', `${blockSize}`, ...limits],
    ...(threads === undefined ? [] : ['--threads', `${threads}`]),
    ...(kvCacheMemory === undefined ? [] : ['--kv-cache-memory', `${kvCacheMemory}`]),
  ];
  const scenario = await Scenario.open({
    ...{ folder, model, blockSize, signal },
    start: (further) => ServerProcess.start([...serverFlags, ...further], signal),
    plantDifference: process.env.KVASIR_DEMO_PLANT_DIFFERENCE === '1',
  });
  const { groups } = scenario;
  const rows: StageRow[] = [];
  let differences = '';
  const show = async (name: string, run: () => Promise<StageFacts>): Promise<void> => {
    const facts = await withProgress(name, context, run);
    const row = rowOf(facts);
    rows.push(row);
    differences += differencesOf(facts);
    if (!flags.json) stdout.write(table.row(row));
  };
  if (!flags.json) stdout.write(`${basename(model)}, each stage in its own process\n\n${table.header()}`);
  await show('prefill', () => scenario.prefill('prefill', 1));
  for (const stage of stagesFor(groups).filter(({ name }) => flags.stages?.includes(name) ?? true)) {
    if (stage.ranks === 2) await show('prefill, two ranks', () => scenario.prefill('prefill, two ranks', 2));
    await show(stage.name, () => scenario.decode(stage));
  }
  const isPossible = ({ kind }: TierStage): boolean =>
    kind !== 'preempted' || longestBlock(groups.filter((group) => group.kind !== 'state')) <= preemptedBlockSizeMax;
  for (const stage of tierStages.filter(({ name }) => flags.stages?.includes(name) ?? true).filter(isPossible))
    await show(stage.name, () => scenario.keepInTiers(stage));
  const isGood = rows.every(isProven);
  if (flags.json) stdout.write(`${JSON.stringify({ model, stages: rows, isProven: isGood })}\n`);
  else stdout.write(`\n${table.legend()}\n${differences}${table.verdict(verdictOf(rows), isGood)}`);
  return isGood ? 0 : 1;
}

function verdictOf(rows: readonly StageRow[]): string {
  const names = (broken: readonly StageRow[]): string => broken.map(({ name }) => name).join('; ');
  const different = rows.filter(({ isTextEqual }) => !isTextEqual);
  if (different.length > 0) return `Outputs differ: ${names(different)}.`;
  const unproven = rows.filter((row) => !isProven(row));
  if (unproven.length > 0)
    return `Outputs match, but the recomputed tokens are not minimal, or their KV differs: ${names(unproven)}.`;
  return 'Outputs match: recovery successful.';
}

/** Shows the running stage: on a terminal in a line that the result replaces, else in lines of the log. */
async function withProgress<T>(name: string, { stderr }: CliContext, run: () => Promise<T>): Promise<T> {
  if (stderr.isTTY !== true) {
    stderr.write(`running: ${name}\n`);
    return run();
  }
  stderr.write(`${name} ...`);
  try {
    return await run();
  } finally {
    stderr.write('\r\u001b[K');
  }
}
