import type { Command } from 'commander';
import { modelFile } from '../../hub/model-file.ts';
import type { CliContext, ExitCode } from '../context.ts';
import { Interruption, orInterrupted } from '../interrupt.ts';
import { downloadProgress } from '../load-progress.ts';

/** The user interrupted a command before its action. */
export class CommandInterrupted extends Error {
  readonly exitCode: ExitCode;

  constructor(exitCode: ExitCode) {
    super('interrupted');
    this.exitCode = exitCode;
  }
}

/**
 * Before the action of any command: replaces the name of a model on the hub by the path of its file, and downloads the
 * file if it is not there. The model is the option `--model` or the argument `[model]`.
 * @throws CommandInterrupted, errors of the hub
 */
export async function findModel(command: Command, context: CliContext): Promise<void> {
  // The server listens before it downloads.
  if (command.name() === 'serve') return;
  const place = command.registeredArguments.findIndex((argument) => argument.name() === 'model');
  const given: unknown = place === -1 ? command.getOptionValue('model') : command.processedArgs[place];
  if (typeof given !== 'string') return;
  using interruption = new Interruption(context);
  const { signal } = interruption;
  const finding = modelFile(given, { signal, onProgress: downloadProgress(given, context.stderr) });
  const path = await orInterrupted(finding, signal);
  if (path === undefined) throw new CommandInterrupted(interruption.exitCode);
  if (place === -1) command.setOptionValue('model', path);
  else command.processedArgs[place] = path;
}
