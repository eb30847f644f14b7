import { buffer } from 'node:stream/consumers';
import { Command } from 'commander';
import { assertDefined } from '../base/assert.ts';
import { demoModelPath } from '../base/package-files.ts';
import type { SamplingOptions } from '../core/sampling.ts';
import type { RenderedPrompt } from '../engine/chat/rendered-prompt.ts';
import type { AsyncEngine, ModelInfo } from '../engine/contract.ts';
import { wholeOrError } from '../engine/early-end.ts';
import { reusedTokens } from '../engine/stats.ts';
import { promptTokensDetails } from '../server/apis/openai/prompt-usage.ts';
import { ChoiceCollector, type ChoiceOutput } from '../server/generation/choice-collector.ts';
import { tokenizeText } from '../server/generation/generation.ts';
import { addEngineFlags, type EngineFlags, engineOptionsOf, eventsTo, integerFrom } from './args.ts';
import type { CliContext, ExitCode } from './context.ts';
import { Interruption, orInterrupted } from './interrupt.ts';
import { loadProgress } from './load-progress.ts';
import { addSamplingFlags, type SamplingFlags, samplingOptionsOf } from './sampling-flags.ts';
import { readChatTemplate, readTextFlag } from './text-input.ts';

interface GenerateFlags extends EngineFlags, SamplingFlags {
  readonly model?: string;
  readonly prompt?: string;
  readonly chat: boolean;
  readonly system?: string;
  readonly json: boolean;
  readonly maxTokens: number;
  readonly logprobs?: number;
}

export function generateCommand(context: CliContext, exit: (code: ExitCode) => void): Command {
  const command = new Command('generate')
    .summary('complete one prompt')
    .description('Complete one prompt and print the text while it is generated.')
    .option(
      '--model <model>',
      'path of a GGUF file, or a name like hf:owner/name:Q8_0 (default: the bundled demo model)',
    )
    .option(
      '--prompt <text>',
      'the prompt (required); - reads standard input, @file reads a file (a newline at the end is removed)',
    )
    .option('--chat', "use the prompt as a user's message and apply the model's chat template", false)
    .option('--system <text>', "with --chat: a system message before the user's message")
    .option('--json', 'print one JSON line {text, token_ids, finish_reason, usage} instead', false)
    .optionsGroup('Sampling:')
    .option('--max-tokens <n>', 'largest number of output tokens', integerFrom(1), 128);
  addSamplingFlags(command);
  command.option(
    '--logprobs <n>',
    'with --json: log probability of each token, and of the n most probable',
    integerFrom(0),
  );
  addEngineFlags(command);
  command.addHelpText(
    'after',
    `
Examples:
  kvasir generate --prompt "Once upon a time" --temperature 0
  kvasir generate --model m.gguf --prompt "Hello" --max-tokens 32 --temperature 0 --json
  kvasir generate --model m.gguf --chat --prompt @question.txt
  echo "Dear all," | kvasir generate --prompt -`,
  );
  return command.action(async (flags: GenerateFlags) => {
    // Commander's requiredOption would report a missing --prompt if the user wrote --promt.
    if (flags.prompt === undefined) return command.error("error: option '--prompt <text>' is required");
    if (flags.system !== undefined && !flags.chat) return command.error("error: option '--system' needs '--chat'");
    exit(await generate(flags.prompt, flags, context));
  });
}

async function generate(promptFlag: string, flags: GenerateFlags, context: CliContext): Promise<ExitCode> {
  using interruption = new Interruption(context);
  const { signal } = interruption;
  // Ctrl-C must also work while a file is read from storage that does not answer.
  const opening = open(promptFlag, flags, context);
  const opened = await orInterrupted(opening, signal);
  if (opened === undefined) return interruption.exitCode;
  const { engine, prompt } = opened;
  try {
    await run(engine, prompt, flags, { context, signal });
  } finally {
    await engine.close();
  }
  return signal.aborted ? interruption.exitCode : 0;
}

async function open(promptFlag: string, flags: GenerateFlags, context: CliContext) {
  const prompt = await readTextFlag('prompt', promptFlag, () => buffer(context.stdin));
  return { prompt, engine: await context.createEngine(await optionsOf(flags, context)) };
}

async function optionsOf(flags: GenerateFlags, context: CliContext) {
  const model = flags.model ?? demoModelPath();
  return engineOptionsOf(model, flags, {
    ...loadProgress(model, context.stderr),
    onEvent: eventsTo(context.stderr),
    ...(flags.chatTemplate === undefined ? {} : { chatTemplate: await readChatTemplate(flags.chatTemplate) }),
  });
}

async function run(
  engine: AsyncEngine,
  prompt: string,
  flags: GenerateFlags,
  { context, signal }: { readonly context: CliContext; readonly signal: AbortSignal },
): Promise<void> {
  const text = flags.chat ? await asChat(engine, prompt, flags.system, signal) : prompt;
  const tokens = await tokenizeText(engine, text, !flags.chat, signal);
  const params = paramsOf(flags, engine.model);
  const collector = new ChoiceCollector(1, params);
  let lastText = '';
  for await (const next of engine.generate({ prompt: tokens, params }, { signal })) {
    if (signal.aborted) return;
    const delta = wholeOrError(next, signal);
    collector.add(delta);
    if (flags.json || delta.text === '') continue;
    context.stdout.write(delta.text);
    lastText = delta.text;
  }
  const [choice] = collector.choices();
  if (flags.json) context.stdout.write(`${JSON.stringify(jsonOf(assertDefined(choice, 'one choice')))}\n`);
  else if (!lastText.endsWith('\n')) context.stdout.write('\n');
}

function asChat(
  engine: AsyncEngine,
  prompt: string,
  system: string | undefined,
  signal: AbortSignal,
): Promise<RenderedPrompt> {
  const opening = system === undefined ? [] : [{ role: 'system', content: system }];
  const messages = [...opening, { role: 'user', content: prompt }];
  return engine.renderChat(messages, { signal });
}

function paramsOf(flags: GenerateFlags, model: ModelInfo): SamplingOptions {
  const { logprobs } = flags;
  return { ...samplingOptionsOf(flags, model), ...(logprobs === undefined ? {} : { logprobs }) };
}

function jsonOf(choice: ChoiceOutput) {
  const {
    promptTokens,
    outputTokens,
    externalTokens = 0,
    recomputedTokens,
    failedLoads = 0,
    loadedTokens = {},
  } = choice.stats;
  return {
    text: choice.text,
    token_ids: Array.from(choice.tokenIds),
    finish_reason: choice.finish?.reason ?? null,
    usage: {
      prompt_tokens: promptTokens,
      completion_tokens: outputTokens,
      total_tokens: promptTokens + outputTokens,
      prompt_tokens_details: promptTokensDetails({
        cached_tokens: reusedTokens(choice.stats),
        external_tokens: externalTokens,
        recomputed_tokens: recomputedTokens,
        failed_loads: failedLoads,
        loaded_tokens: loadedTokens,
      }),
    },
    ...(choice.logprobs === undefined
      ? {}
      : {
          logprobs: Array.from(choice.logprobs, ({ logprob, top }, i) => ({
            token_id: choice.tokenIds[i],
            logprob,
            top_logprobs: top.map((entry) => ({ token_id: entry.token, logprob: entry.logprob })),
          })),
        }),
  };
}
