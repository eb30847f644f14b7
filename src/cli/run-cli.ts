import { Command, CommanderError } from 'commander';
import { KvasirError } from '../base/errors.ts';
import { takeDottedFlags } from '../connector/config.ts';
import {
  bucketUnusable,
  connectorClassInvalid,
  connectorClassMissing,
  connectorIgnoresKeys,
  connectorModuleFailed,
  connectorUnknown,
  keyFileInvalid,
  kvConfigInvalid,
  kvConfigNotJson,
  redisClientMissing,
  redisRefused,
  redisUrlInvalid,
  s3ClientMissing,
  storageUnusable,
  tierClassInvalid,
  tierSpecInvalid,
  tiersInvalid,
} from '../connector/errors.ts';
import { invalidParameter } from '../core/errors.ts';
import { hubNameInvalid, modelNotPath, selectorAmbiguous, selectorUnknown } from '../hub/errors.ts';
import { logLine } from '../server/http/event-log.ts';
import { tlsUnusable } from '../server/http/server-errors.ts';
import { tooManyRanks } from '../worker/errors.ts';
import { configFileInvalid, modelFolderTooLarge, modelNameTwice } from './cli-errors.ts';
import { readConfigFlag } from './config-file.ts';
import type { CliContext, ExitCode } from './context.ts';
import { CommandInterrupted, findModel } from './hub/model-flag.ts';
import { readKvTransferFlags } from './kv-transfer-flags.ts';
import { withPeerHint } from './peer-names.ts';
import { readSpeculationFlags } from './speculation-flags.ts';

/** Creates one of the commands. The command calls `exit` with its exit code. */
export type CommandFactory = (context: CliContext, exit: (code: ExitCode) => void) => Command;

/**
 * Parses the command line, runs the command, and returns its exit code. Prints at most one line for an error. Does not
 * end the process.
 */
export async function runCli(
  argv: readonly string[],
  context: CliContext,
  commands: readonly CommandFactory[],
): Promise<ExitCode> {
  let code: ExitCode = 0;
  const program = new Command('kvasir')
    .description(
      'LLM inference server for GGUF models with an OpenAI API. Missing or invalid KV is computed again; the text is the same.',
    )
    .version(context.version)
    .showHelpAfterError('(--help shows the options)');
  for (const make of commands) program.addCommand(make(context, (given) => (code = given)));
  // Set by the flags of `kvasir serve`.
  const hasJsonLog = (): boolean => program.commands.some((command) => command.getOptionValue('logFormat') === 'json');
  for (const command of withSubcommands(program)) {
    command.exitOverride().configureOutput({
      writeOut: (text) => void context.stdout.write(text),
      writeErr: (text) => void context.stderr.write(hasJsonLog() ? logLine('error', text.trim()) : text),
      outputError: (text, write) => write(withPeerHint(text, command)),
    });
    command.showHelpAfterError('(--help shows the options)');
  }
  try {
    const { rest, dotted } = takeDottedFlags(argv);
    program.hook('preAction', (_, command) => readConfigFlag(command));
    program.hook('preAction', (_, command) => readKvTransferFlags(command, dotted));
    program.hook('preAction', (_, command) => readSpeculationFlags(command));
    program.hook('preAction', (_, command) => findModel(command, context));
    await program.parseAsync(rest, { from: 'user' });
    return code;
  } catch (error) {
    const write = (message: string, code?: string): void =>
      void context.stderr.write(
        hasJsonLog() ? logLine('error', message, code === undefined ? {} : { code }) : `${message}\n`,
      );
    return report(error, write);
  }
}

function withSubcommands(command: Command): Command[] {
  return [command, ...command.commands.flatMap(withSubcommands)];
}

/** Errors whose cause is the command line. */
const commandLineErrors = new Set(
  [
    invalidParameter,
    kvConfigInvalid,
    kvConfigNotJson,
    connectorUnknown,
    connectorModuleFailed,
    connectorClassMissing,
    connectorClassInvalid,
    connectorIgnoresKeys,
    keyFileInvalid,
    redisClientMissing,
    redisRefused,
    redisUrlInvalid,
    storageUnusable,
    bucketUnusable,
    s3ClientMissing,
    tierClassInvalid,
    tierSpecInvalid,
    tiersInvalid,
    tooManyRanks,
    hubNameInvalid,
    modelNotPath,
    selectorAmbiguous,
    selectorUnknown,
    tlsUnusable,
    configFileInvalid,
    modelNameTwice,
    modelFolderTooLarge,
  ].map(({ definition }) => definition.code),
);

function report(error: unknown, write: (message: string, code?: string) => void): ExitCode {
  if (error instanceof CommandInterrupted) return error.exitCode;
  // Commander has printed the error.
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
  if (error instanceof KvasirError) {
    write(`error: ${withFlagNames(error)}`, error.code);
    return commandLineErrors.has(error.code) ? 2 : 1;
  }
  // A bug: a report needs the stack.
  write(`internal error: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
  return 1;
}

/** Replaces the engine's name `topK` by the flag --top-k. A connector's settings keep their JSON names. */
function withFlagNames(error: KvasirError): string {
  const parameter = error.fields.parameter;
  if (error.code === tooManyRanks.definition.code) {
    return error.message.replace('pipelineParallelSize', '--pipeline-parallel-size');
  }
  if (typeof parameter !== 'string' || error.code !== invalidParameter.definition.code) return error.message;
  const flag = `--${parameter.replace(/(?<=[a-z])[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
  return error.message.replaceAll(`\`${parameter}\``, flag);
}
