import { Command } from 'commander';
import type { CommandFactory } from '../src/cli/run-cli.ts';
import { disaggregatedCommand } from './disaggregated/command.ts';
import { interactiveCommand } from './interactive/command.ts';
import { latencyCommand } from './latency/command.ts';
import { metricsCommand } from './metrics/command.ts';
import { neighboursCommand } from './neighbours/command.ts';
import { offloadingCommand } from './offloading/command.ts';
import { warnOfOtherWork } from './other-work.ts';
import { poolsCommand } from './pools/command.ts';
import { recoveryCommand } from './recovery/command.ts';
import { schedulerCommand } from './scheduler/command.ts';
import { soakCommand } from './soak/command.ts';
import { speculationCommand } from './speculation/command.ts';
import type { OpenMeasuredEngine } from './subject/engine-subject.ts';
import { throughputCommand } from './throughput/command.ts';
import { tiersCommand } from './tiers/command.ts';
import { transferCommand } from './transfer/command.ts';

/** `kvasir bench`: measures Kvasir on this machine, and libllama on the same file in turn. */
export const benchCommand =
  (openEngine: OpenMeasuredEngine): CommandFactory =>
  (given, exit) => {
    const bench = new Command('bench')
      .summary('measure speed, also against libllama')
      .description(
        'Measure speed on this machine, also against libllama on the same file, KV\ntransfers against plain files, recovery from faults, and the scheduler alone.',
      );
    const context = warnOfOtherWork(bench, given);
    bench.addCommand(latencyCommand(openEngine, context, exit));
    bench.addCommand(throughputCommand(openEngine, context, exit));
    bench.addCommand(interactiveCommand(openEngine, context, exit));
    bench.addCommand(disaggregatedCommand(context, exit));
    bench.addCommand(neighboursCommand(context, exit));
    bench.addCommand(speculationCommand(openEngine, context, exit));
    bench.addCommand(transferCommand(openEngine, context, exit));
    bench.addCommand(tiersCommand(context, exit));
    bench.addCommand(offloadingCommand(openEngine, context, exit));
    bench.addCommand(schedulerCommand(context, exit));
    bench.addCommand(metricsCommand(openEngine, context, exit));
    bench.addCommand(poolsCommand(context, exit));
    bench.addCommand(recoveryCommand(context, exit));
    bench.addCommand(soakCommand(context, exit));
    return bench;
  };
