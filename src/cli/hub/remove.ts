import { Command } from 'commander';
import { formatBytes } from '../../base/bytes.ts';
import { removeModels } from '../../hub/downloaded-models.ts';
import { isHubName } from '../../hub/model-name.ts';
import { hubSettings } from '../../hub/settings.ts';
import type { CliContext, ExitCode } from '../context.ts';

export function removeCommand(context: CliContext, exit: (code: ExitCode) => void): Command {
  return new Command('rm')
    .summary('remove downloaded models')
    .description(
      'Remove downloaded models. Without a quantization or a file, all GGUF models of the repository are removed. Other files there stay.',
    )
    .argument('<names...>', 'names of models, as `kvasir list` shows them')
    .action(async (names: readonly string[]) => {
      for (const name of names) {
        const { removed, freedBytes } = await removeModels(
          isHubName(name) ? name : `hf:${name}`,
          hubSettings().cacheFolder,
        );
        context.stdout.write(`removed ${removed.join(', ')} (${formatBytes(freedBytes)})\n`);
      }
      exit(0);
    });
}
