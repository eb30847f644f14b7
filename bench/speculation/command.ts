import { Command, Option } from 'commander';
import { formatTable } from '../../src/base/table.ts';
import { addEngineFlags, integerFrom } from '../../src/cli/args.ts';
import type { CliContext } from '../../src/cli/context.ts';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import {
  addBenchFlags,
  type BenchFlags,
  benchOptions,
  type Exit,
  report,
  untilInterrupted,
  withEngine,
} from '../bench-flags.ts';
import { RandomTokens } from '../random-tokens.ts';
import type { OpenMeasuredEngine } from '../subject/engine-subject.ts';
import { measureSpeculation, type SpeculationRow, type SpeculationTask } from './speculation.ts';

interface SpeculationFlags extends BenchFlags {
  readonly genLen: number;
  readonly method: keyof typeof configs;
}

/** Without `--speculative-config`. */
const configs = {
  ngram: { method: 'ngram', numSpeculativeTokens: 12, promptLookupMin: 2, promptLookupMax: 8 },
  suffix: { method: 'suffix' },
  mtp: { method: 'mtp', numSpeculativeTokens: 3 },
  none: undefined,
} as const;

export function speculationCommand(openEngine: OpenMeasuredEngine, context: CliContext, exit: Exit): Command {
  const command = new Command('speculation')
    .summary('decoding with drafts from earlier text, against plain decoding')
    .description(
      'Measure decoding with --speculative-config and without in turn: for an output that quotes its prompt, for an output that is like three earlier outputs, and for outputs that cannot be predicted. The tokens must be equal.',
    )
    .addOption(
      new Option(
        '--method <method>',
        'drafts from the own text (ngram), also from earlier outputs (suffix), or from the model’s layer for multi-token prediction (mtp), as vLLM calls them; none: both engines decode plainly, which shows the noise of the comparison',
      )
        .choices(['ngram', 'suffix', 'mtp', 'none'])
        .default('ngram')
        .conflicts('speculativeConfig'),
    )
    .option('--gen-len <tokens>', 'tokens of each output', integerFrom(16), 192);
  return addEngineFlags(addBenchFlags(command, 5)).action(async (flags: SpeculationFlags) =>
    exit(await untilInterrupted(context, (signal) => measure(openEngine, context, flags, signal))),
  );
}

function measure(
  openEngine: OpenMeasuredEngine,
  context: CliContext,
  flags: SpeculationFlags,
  signal: AbortSignal,
): Promise<void> {
  const { speculativeConfig = configs[flags.method], ...options } = benchOptions(flags, context);
  return withEngine(openEngine, options, signal, ({ engine: plain }) =>
    withEngine(
      openEngine,
      speculativeConfig === undefined ? options : { ...options, speculativeConfig },
      signal,
      async (measured) => {
        const engines = { plain, speculative: measured.engine };
        const settings = {
          repetitions: flags.repetitions,
          onProgress: (text: string) => void context.stderr.write(`${text}\n`),
        };
        const tasks = await tasksOf(plain, flags.genLen, signal);
        const rows = await measureSpeculation(engines, tasks, settings, signal);
        report(context, flags, measured, { table: speculationTable(rows), rows });
      },
    ),
  );
}

/**
 * Rewriting: the prompt has the tokens of the output. Like earlier outputs: requests before had the same story with other names. So the work
 * is the same for every model. Greedy outputs for random prompts often repeat themselves.
 */
async function tasksOf(engine: AsyncEngine, maxTokens: number, signal: AbortSignal): Promise<SpeculationTask[]> {
  const random = new RandomTokens(7, engine.model.vocabSize);
  // Of their own, so that the random prompts are those of earlier results.
  const prompts = new RandomTokens(8, engine.model.vocabSize);
  const quotation = quotationOf(engine, storyOf('Lily', 'Tom', 'ball'), prompts.take(16));
  const quoted: number[] = [];
  for await (const { tokenIds } of engine.generate(quotation, { signal })) quoted.push(...tokenIds);
  const earlier = [storyOf('Anna', 'Ben', 'kite'), storyOf('Mia', 'Sam', 'drum'), storyOf('Sue', 'Max', 'doll')];
  const params = { maxTokens, ignoreEos: true };
  return [
    { ...quotation, name: 'rewriting', prompt: Int32Array.from(quoted) },
    {
      ...quotation,
      name: 'like earlier outputs',
      earlier: earlier.map((story) => quotationOf(engine, story, prompts.take(16))),
    },
    { name: 'random prompt, greedy', prompt: random.take(256), params: { ...params, temperature: 0 } },
    { name: 'random prompt, temperature 1', prompt: random.take(256), params: { ...params, temperature: 1, seed: 1n } },
    { name: 'random tokens', prompt: random.take(256), params: { ...params, temperature: 100, seed: 2n } },
  ];
}

/** A grammar makes the output this story, and a bias towards long tokens fixes its tokens. */
function quotationOf(engine: AsyncEngine, story: string, prompt: Int32Array): SpeculationTask {
  const tokens = engine.tokenize(story, { addSpecial: false });
  const bias = (token: number): number => Math.min(BIAS_PER_CHARACTER * engine.detokenize([token]).length, 100);
  const params = {
    temperature: 0,
    maxTokens: 2 * tokens.length,
    structuredOutputs: { choice: [story] },
    logitBias: new Map(tokens.map((token) => [token, bias(token)])),
  };
  return { name: 'a story', prompt, params };
}

/** More than the model's own preference for a shorter token. */
const BIAS_PER_CHARACTER = 12;

const storyOf = (girl: string, friend: string, thing: string): string =>
  `Once upon a time, there was a little girl named ${girl}. She loved to play outside in the park with her friend ${friend}. One day, she saw a big red ${thing} under the old tree. ${girl} ran to the ${thing} and said, "Look, ${friend}! I found a ${thing}. Can we play with it?" ${friend} was very happy. They threw the ${thing} up and down, and they laughed all day. When the sun went away, they put the ${thing} in a box and went home to eat soup. `;

function speculationTable(rows: readonly SpeculationRow[]): string {
  const header = ['task', 'plain tok/s', 'with drafts', 'ratio', 'drafted per token', 'accepted', 'tokens per step'];
  const lines = rows.map((row) => [
    row.task,
    row.plainTokensPerSecond,
    row.speculativeTokensPerSecond,
    row.ratio,
    row.draftedPerToken,
    row.acceptance ?? '-',
    row.tokensPerStep,
  ]);
  return formatTable(header, lines);
}
