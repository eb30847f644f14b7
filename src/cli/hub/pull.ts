import { Command } from 'commander';
import { isHubName } from '../../hub/model-name.ts';
import { pullModel } from '../../hub/pull-model.ts';
import type { CliContext, ExitCode } from '../context.ts';
import { Interruption, orInterrupted } from '../interrupt.ts';
import { downloadProgress } from '../load-progress.ts';

const help = `
Names:
  hf:owner/name                      the quantization Q4_K_M, else Q8_0, else the only model
  hf:owner/name:Q8_0                 this quantization
  hf:owner/name:folder/file.gguf     this file
  hf:owner/name@revision:Q8_0        at a branch, a tag or a commit
  https://huggingface.co/owner/name  the address of the model's page, or of a file there

Environment:
  HF_TOKEN       token for private and gated models (also read from the file that \`hf auth login\` writes)
  HF_ENDPOINT    address of a mirror; http only on this machine, or with KVASIR_HUB_ALLOW_HTTP=1
  HF_HUB_CACHE   folder of downloaded models, shared with Hugging Face's programs (default: ~/.cache/huggingface/hub)

Every command that takes a model takes these names too, and downloads what is missing.`;

export function pullCommand(context: CliContext, exit: (code: ExitCode) => void): Command {
  return new Command('pull')
    .summary('download a model from Hugging Face')
    .description(
      'Download a GGUF model from Hugging Face, or bring it up to date. A download that stopped continues where it stopped. Prints the path of the file.',
    )
    .argument('<name>', 'name of the model, like hf:Qwen/Qwen3-0.6B-GGUF:Q8_0')
    .addHelpText('after', help)
    .action(async (name: string) => exit(await pull(isHubName(name) ? name : `hf:${name}`, context)));
}

async function pull(name: string, context: CliContext): Promise<ExitCode> {
  using interruption = new Interruption(context);
  const { signal } = interruption;
  const onProgress = downloadProgress(name, context.stderr);
  const path = await orInterrupted(pullModel(name, { signal, onProgress }), signal);
  if (path === undefined) {
    context.stderr.write('\nRun the command again to continue the download.\n');
    return interruption.exitCode;
  }
  context.stdout.write(`${path}\n`);
  return 0;
}
