import type { Command } from 'commander';
import { readSpeculativeConfig, type SpeculationOptions } from '../scheduler/speculation/options.ts';

/**
 * Runs before a command's action: makes a `--speculative-config` of vLLM's short flags `--spec-method`, `--spec-model` and `--spec-tokens`.
 * Errors name the flags, because the user wrote no key of the JSON.
 */
export function readSpeculationFlags(command: Command): void {
  const method = command.getOptionValue('specMethod') as SpeculationOptions['method'] | undefined;
  const model = command.getOptionValue('specModel') as string | undefined;
  const tokens = command.getOptionValue('specTokens') as number | undefined;
  if (method === undefined && model === undefined && tokens === undefined) return;
  if (command.getOptionValue('speculativeConfig') !== undefined)
    command.error(
      'error: --spec-method, --spec-model and --spec-tokens cannot be combined with --speculative-config, which has the same settings as method, model and num_speculative_tokens',
    );
  if (model !== undefined && method !== undefined && method !== 'draft_model')
    command.error(`error: --spec-method ${method} has no draft model: remove --spec-model, or use draft_model`);
  if (method === 'draft_model' && model === undefined)
    command.error('error: --spec-method draft_model needs --spec-model: a GGUF file, or a name on Hugging Face');
  if (model === '') command.error('error: --spec-model needs a GGUF file, or a name on Hugging Face');
  if (tokens === undefined && method !== 'suffix')
    command.error(
      'error: --spec-tokens is missing: the largest number of drafts of a request in a step, like --spec-tokens 8',
    );
  const config = {
    ...(method === undefined ? {} : { method }),
    ...(model === undefined ? {} : { model }),
    ...(tokens === undefined ? {} : { num_speculative_tokens: tokens }),
  };
  command.setOptionValue('speculativeConfig', readSpeculativeConfig(config));
}
