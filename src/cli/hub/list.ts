import { Command } from 'commander';
import { formatBytes } from '../../base/bytes.ts';
import { formatTable } from '../../base/table.ts';
import { type DownloadedModel, downloadedModels } from '../../hub/downloaded-models.ts';
import { hubSettings } from '../../hub/settings.ts';
import type { CliContext, ExitCode } from '../context.ts';

export function listCommand(context: CliContext, exit: (code: ExitCode) => void): Command {
  return new Command('list')
    .summary('list downloaded models')
    .description('List the GGUF models that are downloaded, by this program or by others that share the folder.')
    .option('--json', 'print JSON, with the paths of all files', false)
    .action(async (flags: { readonly json: boolean }) => {
      const { cacheFolder } = hubSettings();
      const models = await downloadedModels(cacheFolder);
      context.stdout.write(
        flags.json
          ? `${JSON.stringify({ folder: cacheFolder, models }, undefined, 2)}\n`
          : describe(models, cacheFolder),
      );
      exit(0);
    });
}

function describe(models: readonly DownloadedModel[], folder: string): string {
  if (models.length === 0) {
    return `No models are downloaded to ${folder}. Download one: kvasir pull hf:Qwen/Qwen3-0.6B-GGUF:Q8_0\n`;
  }
  const rows = models.map(({ name, bytes, receivedBytes, commit }) => [
    name,
    receivedBytes === undefined ? formatBytes(bytes) : `${formatBytes(receivedBytes)}, incomplete`,
    commit?.slice(0, 8) ?? '-',
  ]);
  return `${formatTable(['model', 'size', 'commit'], rows)}in ${folder}\n`;
}
