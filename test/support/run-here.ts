import { EventEmitter } from 'node:events';
import { Readable } from 'node:stream';
import { packageVersion } from '../../src/base/package-files.ts';
import { chatCommand } from '../../src/cli/chat/command.ts';
import { doctorCommand } from '../../src/cli/doctor/command.ts';
import { generateCommand } from '../../src/cli/generate.ts';
import { listCommand } from '../../src/cli/hub/list.ts';
import { pullCommand } from '../../src/cli/hub/pull.ts';
import { removeCommand } from '../../src/cli/hub/remove.ts';
import { runCli } from '../../src/cli/run-cli.ts';
import { serveCommand } from '../../src/cli/serve.ts';
import { sizeCommand } from '../../src/cli/size/command.ts';
import { tiersCommand } from '../../src/cli/tiers.ts';
import { createEngine } from '../../src/compose.ts';
import { checkEngineOptions } from '../../src/compose-check.ts';
import { shareOnGpu } from '../../src/compose-size.ts';

/**
 * Runs a command line in this process, without signals: what `main.ts` does, less the start of a process, which costs more
 * CPU time than most commands that fail. `cli-process.ts` runs the built command.
 */
export async function runHere(args: readonly string[], input = '') {
  const written = { stdout: '', stderr: '' };
  const sink = (name: keyof typeof written) => ({
    write(text: string) {
      written[name] += text;
    },
  });
  const code = await runCli(
    args,
    {
      version: packageVersion(),
      checkEngineOptions,
      shareOnGpu: async (...given) => shareOnGpu(...given),
      createEngine,
      stdout: sink('stdout'),
      stderr: sink('stderr'),
      stdin: Readable.from([input]),
      signals: new EventEmitter(),
      exitNow: (exitCode) => {
        throw new Error(`the command ends the process with ${exitCode}`);
      },
    },
    [
      serveCommand,
      generateCommand,
      chatCommand,
      tiersCommand,
      pullCommand,
      listCommand,
      removeCommand,
      doctorCommand,
      sizeCommand,
    ],
  );
  return { code, ...written };
}
