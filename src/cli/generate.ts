import { Command } from 'commander';
import { assertDefined } from '../base/assert.ts';
import type { SamplingOptions } from '../core/sampling.ts';
import type { AsyncEngine, OutputDelta } from '../engine/contract.ts';
import { ChoiceCollector } from '../server/choice-collector.ts';
import { tokenizeText } from '../server/generation.ts';
import { promptTokensDetails, reusedTokens } from '../server/prompt-usage.ts';
import {
  addEngineFlags,
  collect,
  type EngineFlags,
  engineOptionsOf,
  eventsTo,
  integerFrom,
  numberFlag,
} from './args.ts';
import type { CliContext, ExitCode } from './context.ts';
import { Interruption, orInterrupted } from './interrupt.ts';
import { loadProgress } from './load-progress.ts';
import { demoModelPath } from './package-files.ts';
import { readTextFile, readTextFlag } from './text-input.ts';

interface GenerateFlags extends EngineFlags {
  readonly model?: string;
  readonly prompt?: string;
  readonly chat: boolean;
  readonly system?: string;
  readonly json: boolean;
  readonly maxTokens: number;
  readonly minTokens?: number;
  readonly temperature?: number;
  readonly topK?: number;
  readonly topP?: number;
  readonly minP?: number;
  readonly repetitionPenalty?: number;
  readonly presencePenalty?: number;
  readonly frequencyPenalty?: number;
  readonly stop?: readonly string[];
  readonly ignoreEos: boolean;
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
    .option('--max-tokens <n>', 'largest number of output tokens', integerFrom(1), 128)
    .option('--min-tokens <n>', 'smallest number of output tokens', integerFrom(0))
    .option('--temperature <t>', '0 selects the most probable token in each step (default: 1)', numberFlag)
    .option('--top-k <k>', 'sample from the k most probable tokens', integerFrom(-1))
    .option('--top-p <p>', 'sample from the most probable tokens whose probabilities sum to p', numberFlag)
    .option('--min-p <p>', 'exclude tokens whose probability is below p times the largest probability', numberFlag)
    .option(
      '--repetition-penalty <x>',
      'above 1: tokens of the prompt and of the output become less probable',
      numberFlag,
    )
    .option('--presence-penalty <x>', 'subtracted once from the logit of each token of the output', numberFlag)
    .option('--frequency-penalty <x>', 'subtracted from the logit for each occurrence in the output', numberFlag)
    .option('--seed <n>', 'seed of the randomness; an equal seed gives an equal text (default: random)', integerFrom(0))
    .option('--stop <text>', 'stop string: the text ends before it; can be given several times', collect)
    .option('--ignore-eos', 'continue after the end-of-sequence token', false)
    .option('--logprobs <n>', 'with --json: log probability of each token, and of the n most probable', integerFrom(0));
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
  const prompt = await readTextFlag('prompt', promptFlag, context.readStdin);
  return { prompt, engine: await context.createEngine(await optionsOf(flags, context)) };
}

async function optionsOf(flags: GenerateFlags, context: CliContext) {
  const model = flags.model ?? demoModelPath();
  return engineOptionsOf(model, flags, {
    ...loadProgress(model, context.stderr),
    onEvent: eventsTo(context.stderr),
    ...(flags.chatTemplate === undefined
      ? {}
      : { chatTemplate: await readTextFile('chat template', flags.chatTemplate) }),
  });
}

async function run(
  engine: AsyncEngine,
  prompt: string,
  flags: GenerateFlags,
  { context, signal }: { readonly context: CliContext; readonly signal: AbortSignal },
): Promise<void> {
  const text = flags.chat ? asChat(engine, prompt, flags.system) : prompt;
  const tokens = await tokenizeText(engine, text, !flags.chat, signal);
  const collector = new ChoiceCollector(1);
  let lastText = '';
  for await (const delta of engine.generate({ prompt: tokens, params: paramsOf(flags) }, { signal })) {
    collector.add(delta);
    if (flags.json || delta.text === '') continue;
    context.stdout.write(delta.text);
    lastText = delta.text;
  }
  if (signal.aborted) return;
  const [choice] = collector.choices();
  if (flags.json) context.stdout.write(`${JSON.stringify(jsonOf(assertDefined(choice, 'one choice')))}\n`);
  else if (!lastText.endsWith('\n')) context.stdout.write('\n');
}

function asChat(engine: AsyncEngine, prompt: string, system: string | undefined): string {
  const opening = system === undefined ? [] : [{ role: 'system', content: system }];
  return engine.applyChatTemplate([...opening, { role: 'user', content: prompt }], { addGenerationPrompt: true });
}

/** Absent flags stay absent: the engine sets their defaults. */
function paramsOf(flags: GenerateFlags): SamplingOptions {
  const { maxTokens, minTokens, temperature, topK, topP, minP, stop, ignoreEos, logprobs } = flags;
  const { repetitionPenalty, presencePenalty, frequencyPenalty } = flags;
  const given = {
    maxTokens,
    minTokens,
    temperature,
    topK,
    topP,
    minP,
    repetitionPenalty,
    presencePenalty,
    frequencyPenalty,
    seed: flags.seed === undefined ? undefined : BigInt(flags.seed),
    stop,
    ignoreEos,
    logprobs,
  };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}

function jsonOf(choice: OutputDelta) {
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
    token_ids: choice.tokenIds,
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
          logprobs: choice.logprobs.map(({ logprob, top }, i) => ({
            token_id: choice.tokenIds[i],
            logprob,
            top_logprobs: top.map((entry) => ({ token_id: entry.token, logprob: entry.logprob })),
          })),
        }),
  };
}
