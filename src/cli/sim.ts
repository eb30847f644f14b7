import { Command, InvalidArgumentError } from 'commander';
import { clusterFaultNames } from '../../sim/cluster/cluster-faults.ts';
import { faultNames } from '../../sim/faults.ts';
import { chaosTurns, type SimulationReport, worlds } from '../../sim/run.ts';
import { type Scenario, scenarios, worldFaultNames } from '../../sim/world.ts';
import { integerFrom, oneOf } from './args.ts';
import type { CliContext, ExitCode } from './context.ts';
import { Interruption } from './interrupt.ts';
import type { CommandFactory } from './run-cli.ts';
import { addClusterFlags, type ClusterFlags, clusterFlagIn, runClusters, unreadClusterFlag } from './sim-cluster.ts';

interface SimFlags extends ClusterFlags {
  readonly seed: number;
  readonly steps: number;
  readonly scenario: Scenario;
  readonly turns: number;
  readonly off: readonly string[];
  readonly without: readonly string[];
  readonly json: boolean;
}

/** How long the simulator computes before it gives the event loop a turn for signals and the terminal. */
const sliceMs = 100;
const progressEveryMs = { person: 500, file: 30_000 };

/** `kvasir sim`: tests the real scheduler and KV cache in random worlds. */
export const simCommand: CommandFactory = (context, exit) => {
  const command = new Command('sim')
    .summary('test the scheduler and the KV cache with random faults')
    .description(
      'Run the real scheduler and KV cache with a model of hashes in random worlds: stores fail, corrupt, delay and ' +
        'repeat, workers die, pools are too small. Every token is compared with that of an engine without a cache. ' +
        'Equal seeds give equal runs, bit for bit. After a failure, the simulator reduces the world and prints the ' +
        'command that repeats the failure.',
    )
    .option('--seed <n>', 'seed of the first world; the seeds of later worlds follow from it', integerFrom(0), 1)
    .option('--steps <n>', 'engine steps to simulate, over all worlds', integerFrom(1), 100_000)
    .addOption(oneOf('--scenario <name>', 'kind of worlds', [...scenarios], 'mixed'))
    .option('--turns <n>', 'turns of chaos in each world, before the calm phase', integerFrom(1), chaosTurns)
    .option(
      '--off <faults>',
      `faults to turn off: ${[...faultNames, ...worldFaultNames].join(', ')}; in clusters ${clusterFaultNames.join(', ')}`,
      faultsFrom,
      [],
    )
    .option('--without <ids>', 'requests to leave out (r1,r7); for a reduced failure', listFrom, [])
    .option('--json', 'print one JSON line on standard output', false)
    .addHelpText(
      'after',
      '\nExamples:\n' +
        '  kvasir sim --steps 1000000                      a million steps from seed 1\n' +
        '  kvasir sim --seed 4711 --scenario crash         worlds in which workers die\n' +
        '  kvasir sim --scenario storm --off aborts,twice  without two of the faults\n' +
        '  kvasir sim --cluster --replicas 8               when does a shared tier pay?\n' +
        '  kvasir sim --cluster --worlds 100               random clusters with faults\n',
    );
  return addClusterFlags(command).action(async (flags: SimFlags) => {
    const wrong = wrongFlag(command, flags);
    if (wrong !== undefined) command.error(`error: ${wrong}`);
    exit(flags.cluster === true ? await runClusters(context, flags) : await runSim(context, flags));
  });
};

/** Flags of one kind of simulation that the other kind does not read. */
function wrongFlag(command: Command, flags: SimFlags): string | undefined {
  const alone = clusterFlagIn(flags);
  if (flags.cluster !== true) return alone === undefined ? undefined : `${alone} needs --cluster`;
  const unread = unreadClusterFlag(flags);
  if (unread !== undefined) return unread;
  const other = ['steps', 'scenario', 'turns', 'without'].find((name) => command.getOptionValueSource(name) === 'cli');
  return other === undefined ? undefined : `--${other} has no effect with --cluster`;
}

async function runSim(context: CliContext, flags: SimFlags): Promise<ExitCode> {
  const { seed, steps, scenario, turns } = flags;
  const started = performance.now();
  using interruption = new Interruption(context);
  const progress = new Progress(context, steps);
  let report: SimulationReport | undefined;
  try {
    const options = { scenario, turns, off: new Set(flags.off), without: new Set(flags.without) };
    let sliceEnds = started + sliceMs;
    for await (report of worlds(seed, steps, options)) {
      if (performance.now() < sliceEnds) continue;
      progress.show(report);
      await new Promise((resolve) => setImmediate(resolve));
      if (interruption.signal.aborted) break;
      sliceEnds = performance.now() + sliceMs;
    }
  } catch (error) {
    progress.end();
    context.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
    return 1;
  }
  progress.end();
  const isInterrupted = interruption.signal.aborted;
  const seconds = (performance.now() - started) / 1000;
  if (report !== undefined) summarize(context, flags, report, { seconds, isInterrupted });
  return isInterrupted ? interruption.exitCode : 0;
}

function summarize(
  { stdout }: CliContext,
  { seed, scenario, json }: SimFlags,
  report: SimulationReport,
  { seconds, isInterrupted }: { readonly seconds: number; readonly isInterrupted: boolean },
): void {
  if (json) {
    stdout.write(`${JSON.stringify({ seed, scenario, ...report, ...(isInterrupted ? { interrupted: true } : {}) })}\n`);
    return;
  }
  stdout.write(
    `${isInterrupted ? 'interrupted; so far ' : ''}all invariants held, every token equals the reference\n` +
      `  ${report.steps} steps in ${report.worlds} worlds from seed ${seed} (${scenario}), ${seconds.toFixed(1)} s\n` +
      `  ${report.finished} requests finished, ${report.loaded} blocks loaded, ${report.failedLoads} loads failed, ${report.flushedSaves} saves flushed\n`,
  );
}

/** On a terminal: one line that is overwritten. In a file: a line every 30 s. */
class Progress {
  readonly #out: CliContext['stderr'];
  readonly #steps: number;
  #shownMs = performance.now();
  #isLineOpen: boolean = false;

  constructor({ stderr }: CliContext, steps: number) {
    this.#out = stderr;
    this.#steps = steps;
  }

  show({ steps, worlds: count }: SimulationReport): void {
    const isPerson = this.#out.isTTY === true;
    const nowMs = performance.now();
    if (nowMs - this.#shownMs < (isPerson ? progressEveryMs.person : progressEveryMs.file)) return;
    this.#shownMs = nowMs;
    const percent = Math.min(Math.floor((100 * steps) / this.#steps), 100);
    const text = `${steps} of ${this.#steps} steps (${percent} %), ${count} worlds`;
    this.#out.write(isPerson ? `\r${text}\x1b[K` : `${text}\n`);
    this.#isLineOpen = isPerson;
  }

  end(): void {
    if (this.#isLineOpen) this.#out.write('\r\x1b[K');
    this.#isLineOpen = false;
  }
}

function listFrom(text: string): string[] {
  return text.split(',').filter((name) => name !== '');
}

function faultsFrom(text: string): string[] {
  const known: readonly string[] = [...faultNames, ...worldFaultNames, ...clusterFaultNames];
  const names = listFrom(text);
  const unknown = names.find((name) => !known.includes(name));
  if (unknown !== undefined) throw new InvalidArgumentError(`There is no fault "${unknown}".`);
  return names;
}
