import { Command } from 'commander';
import { demoModelPath } from '../../base/package-files.ts';
import { chatTemplateMissing } from '../../engine/errors.ts';
import { addEngineFlags, type EngineFlags, engineOptionsOf, eventsTo, integerFrom } from '../args.ts';
import type { CliContext, ExitCode } from '../context.ts';
import { Interruption, orInterrupted } from '../interrupt.ts';
import { loadProgress } from '../load-progress.ts';
import { addSamplingFlags, type SamplingFlags, samplingOptionsOf } from '../sampling-flags.ts';
import { readChatTemplate } from '../text-input.ts';
import { ChatLoop } from './chat-loop.ts';
import { Conversation } from './conversation.ts';

interface ChatFlags extends EngineFlags, SamplingFlags {
  readonly system?: string;
  readonly stats: boolean;
}

export function chatCommand(context: CliContext, exit: (code: ExitCode) => void): Command {
  const command = new Command('chat')
    .summary('chat with a model in the terminal')
    .description('Chat with a model in the terminal. /help shows the commands of the conversation.')
    .argument('[model]', 'path of a GGUF file, or a name like hf:owner/name:Q8_0 (default: the bundled demo model)')
    .option('--system <text>', "a system message before the user's first message")
    .option('--stats', 'show the speed of each answer', false)
    .optionsGroup('Sampling:')
    .option(
      '--max-tokens <n>',
      'largest number of tokens of an answer (default: the rest of the context)',
      integerFrom(1),
    );
  addSamplingFlags(command);
  addEngineFlags(command);
  command.addHelpText(
    'after',
    `
Examples:
  kvasir chat
  kvasir chat hf:Qwen/Qwen3-0.6B-GGUF:Q8_0 --system "Be brief." --temperature 0.7
  printf 'Hello!\\nTell me a story.\\n' | kvasir chat model.gguf        each line is a message`,
  );
  return command.action(async (model: string | undefined, flags: ChatFlags) => {
    exit(await chat(model ?? demoModelPath(), flags, context));
  });
}

async function chat(model: string, flags: ChatFlags, context: CliContext): Promise<ExitCode> {
  using interruption = new Interruption(context);
  const engine = await orInterrupted(openEngine(model, flags, context), interruption.signal);
  if (engine === undefined) return interruption.exitCode;
  try {
    const { name, description, hasChatTemplate } = engine.model;
    if (!hasChatTemplate) throw chatTemplateMissing({ model: name });
    if (context.terminal !== undefined) {
      if (description !== undefined) context.stdout.write(`${description}\n`);
      context.stdout.write(`${name}. /help shows the commands, Ctrl-D leaves.\n`);
    }
    const conversation = new Conversation(engine, samplingOptionsOf(flags, engine.model), flags.system);
    const loop = new ChatLoop({ conversation, context, signal: interruption.signal, showsStats: flags.stats });
    await loop.run();
  } finally {
    await engine.close();
  }
  return interruption.signal.aborted ? interruption.exitCode : 0;
}

async function openEngine(model: string, flags: ChatFlags, context: CliContext) {
  return context.createEngine(
    engineOptionsOf(model, flags, {
      ...loadProgress(model, context.stderr),
      onEvent: eventsTo(context.stderr),
      ...(flags.chatTemplate === undefined ? {} : { chatTemplate: await readChatTemplate(flags.chatTemplate) }),
    }),
  );
}
