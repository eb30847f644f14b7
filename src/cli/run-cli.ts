import { Command, CommanderError } from 'commander';
import { KvasirError } from '../base/errors.ts';
import { takeDottedFlags } from '../connector/config.ts';
import {
  connectorClassInvalid,
  connectorClassMissing,
  connectorModuleFailed,
  connectorUnknown,
  kvConfigInvalid,
  kvConfigNotJson,
} from '../connector/errors.ts';
import { invalidParameter } from '../core/errors.ts';
import { tooManyRanks } from '../worker/errors.ts';
import type { CliContext, ExitCode } from './context.ts';
import { readKvTransferFlags } from './kv-transfer-flags.ts';

/** Makes one of the commands; `exit` is how it says what the shell is to get. */
export type CommandFactory = (context: CliContext, exit: (code: ExitCode) => void) => Command;

/**
 * Parses the command line, runs the command, and turns whatever came of it into an exit code and at most one line of
 * error. Never exits by itself.
 */
export async function runCli(
  argv: readonly string[],
  context: CliContext,
  commands: readonly CommandFactory[],
): Promise<ExitCode> {
  let code: ExitCode = 0;
  const program = new Command('kvasir')
    .description('LLM inference server: GGUF models, an OpenAI API, and text that survives the loss of any KV cache.')
    .version(context.version)
    .showHelpAfterError('(--help shows the options)');
  for (const make of commands) program.addCommand(make(context, (given) => (code = given)));
  for (const command of withSubcommands(program)) {
    command.exitOverride().configureOutput({
      writeOut: (text) => void context.stdout.write(text),
      writeErr: (text) => void context.stderr.write(text),
    });
    command.showHelpAfterError('(--help shows the options)');
  }
  try {
    const { rest, dotted } = takeDottedFlags(argv);
    program.hook('preAction', (_, command) => readKvTransferFlags(command, dotted));
    await program.parseAsync(rest, { from: 'user' });
    return code;
  } catch (error) {
    return report(error, context);
  }
}

function withSubcommands(command: Command): Command[] {
  return [command, ...command.commands.flatMap(withSubcommands)];
}

/** The world is as it should be: it is the command line that has to change. */
const commandLineFaults = new Set(
  [
    invalidParameter,
    kvConfigInvalid,
    kvConfigNotJson,
    connectorUnknown,
    connectorModuleFailed,
    connectorClassMissing,
    connectorClassInvalid,
    tooManyRanks,
  ].map(({ definition }) => definition.code),
);

function report(error: unknown, { stderr }: CliContext): ExitCode {
  // Commander has said what is wrong.
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
  if (error instanceof KvasirError) {
    stderr.write(`error: ${withFlagNames(error)}\n`);
    return commandLineFaults.has(error.code) ? 2 : 1;
  }
  // Our own bug: the stack is what a report of it needs.
  stderr.write(`internal error: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
  return 1;
}

/** The engine says `topK` where the command line says --top-k; a connector's settings are spelt as in its JSON. */
function withFlagNames(error: KvasirError): string {
  const parameter = error.fields.parameter;
  if (error.code === tooManyRanks.definition.code) {
    return error.message.replace('pipelineParallelSize', '--pipeline-parallel-size');
  }
  if (typeof parameter !== 'string' || error.code !== invalidParameter.definition.code) return error.message;
  const flag = `--${parameter.replace(/(?<=[a-z])[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
  return error.message.replaceAll(`\`${parameter}\``, flag);
}
