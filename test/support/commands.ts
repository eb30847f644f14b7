import type { Command } from 'commander';
import { benchCommand } from '../../bench/command.ts';
import { chatCommand } from '../../src/cli/chat/command.ts';
import type { CliContext } from '../../src/cli/context.ts';
import { demoCommand } from '../../src/cli/demo/command.ts';
import { doctorCommand } from '../../src/cli/doctor/command.ts';
import { generateCommand } from '../../src/cli/generate.ts';
import { listCommand } from '../../src/cli/hub/list.ts';
import { pullCommand } from '../../src/cli/hub/pull.ts';
import { removeCommand } from '../../src/cli/hub/remove.ts';
import type { CommandFactory } from '../../src/cli/run-cli.ts';
import { serveCommand } from '../../src/cli/serve.ts';
import { simCommand } from '../../src/cli/sim.ts';
import { sizeCommand } from '../../src/cli/size/command.ts';
import { tiersCommand } from '../../src/cli/tiers.ts';

const factories: readonly CommandFactory[] = [
  ...[serveCommand, generateCommand, chatCommand, demoCommand, pullCommand, listCommand, removeCommand],
  ...[tiersCommand, doctorCommand, sizeCommand, simCommand],
  benchCommand(() => Promise.reject(new Error('runs nothing'))),
];

/** The flags of each command of `kvasir`, by its name, such as `bench latency`. */
export function flagsByCommand(): Map<string, ReadonlySet<string>> {
  const found = new Map<string, ReadonlySet<string>>();
  const visit = (command: Command, before: string): void => {
    const name = `${before}${command.name()}`;
    found.set(name, new Set(['--help', ...command.options.flatMap(({ long }) => long ?? [])]));
    for (const inner of command.commands) visit(inner, `${name} `);
  };
  // Commands use their context when they run.
  for (const make of factories)
    visit(
      make({} as CliContext, () => undefined),
      '',
    );
  return found;
}
