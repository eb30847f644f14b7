import { Command } from 'commander';
import { simulate } from '../../sim/run.ts';
import { type Scenario, scenarios } from '../../sim/world.ts';
import { integerFrom, oneOf } from './args.ts';
import type { CommandFactory } from './run-cli.ts';

interface SimFlags {
  readonly seed: number;
  readonly steps: number;
  readonly scenario: Scenario;
  readonly json: boolean;
}

/** `kvasir sim`: the real scheduler and KV cache in random worlds that try to break them. */
export const simCommand: CommandFactory = (context, exit) =>
  new Command('sim')
    .summary('try to break the scheduler and the KV cache')
    .description(
      'Run the real scheduler and KV cache on a model of hashes in random worlds: stores that lose, corrupt, delay and ' +
        'repeat, workers that die, pools that are too small. Every token is compared with an engine that has no cache. ' +
        'The same seed is the same run, bit for bit; a failure names its seed and the line that runs it again.',
    )
    .option('--seed <n>', 'the first world; the next ones follow from it', integerFrom(0), 1)
    .option('--steps <n>', 'engine steps to simulate, over as many worlds as it takes', integerFrom(1), 100_000)
    .addOption(oneOf('--scenario <name>', 'what kind of worlds', [...scenarios], 'mixed'))
    .option('--json', 'print one JSON line on standard output', false)
    .action((flags: SimFlags) => {
      const { seed, steps, scenario } = flags;
      const started = performance.now();
      const onProgress = (done: number): void => void context.stderr.write(`${done} of ${steps} steps\n`);
      try {
        const report = simulate(seed, steps, { scenario, onProgress });
        const seconds = (performance.now() - started) / 1000;
        if (flags.json) context.stdout.write(`${JSON.stringify({ seed, scenario, ...report })}\n`);
        else {
          context.stdout.write(
            `all invariants held, every token was the reference's\n` +
              `  ${report.steps} steps in ${report.worlds} worlds from seed ${seed} (${scenario}), ${seconds.toFixed(1)} s\n` +
              `  ${report.finished} requests finished, ${report.loaded} blocks loaded, ${report.failedLoads} loads failed\n`,
          );
        }
        exit(0);
      } catch (error) {
        context.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
        exit(1);
      }
    });
