import { Command } from 'commander';
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
}

/** Without `--speculative-config`: as in docs/speculation.md. */
const defaultConfig = { method: 'ngram', numSpeculativeTokens: 12, promptLookupMin: 2, promptLookupMax: 8 } as const;

export function speculationCommand(openEngine: OpenMeasuredEngine, context: CliContext, exit: Exit): Command {
  const command = new Command('speculation')
    .summary('decoding with drafts from the own text, against plain decoding')
    .description(
      'Measure decoding with --speculative-config and without in turn: for an output that quotes its prompt, and for outputs that cannot be predicted. The tokens must be equal.',
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
  const { speculativeConfig = defaultConfig, ...options } = benchOptions(flags, context);
  return withEngine(openEngine, options, signal, ({ engine: plain }) =>
    withEngine(openEngine, { ...options, speculativeConfig }, signal, async (measured) => {
      const engines = { plain, speculative: measured.engine };
      const settings = {
        repetitions: flags.repetitions,
        onProgress: (text: string) => void context.stderr.write(`${text}\n`),
      };
      const tasks = await tasksOf(plain, flags.genLen, signal);
      const rows = await measureSpeculation(engines, tasks, settings, signal);
      report(context, flags, measured, { table: speculationTable(rows), rows });
    }),
  );
}

/**
 * Rewriting: a grammar makes the output a quotation of the prompt, and a bias towards long tokens fixes its tokens. The prompt has the
 * same tokens. So the work is the same for every model. Greedy outputs for random prompts often repeat themselves.
 */
async function tasksOf(engine: AsyncEngine, maxTokens: number, signal: AbortSignal): Promise<SpeculationTask[]> {
  const random = new RandomTokens(7, engine.model.vocabSize);
  const story = engine.tokenize(STORY, { addSpecial: false });
  const quotation = {
    temperature: 0,
    maxTokens: 2 * story.length,
    structuredOutputs: { choice: [STORY] },
    logitBias: new Map(
      story.map((token) => [token, Math.min(BIAS_PER_CHARACTER * engine.detokenize([token]).length, 100)]),
    ),
  };
  const quoted: number[] = [];
  for await (const { tokenIds } of engine.generate({ prompt: Int32Array.from(story), params: quotation }, { signal }))
    quoted.push(...tokenIds);
  const params = { maxTokens, ignoreEos: true };
  return [
    { name: 'rewriting', prompt: Int32Array.from(quoted), params: quotation },
    { name: 'random prompt, greedy', prompt: random.take(256), params: { ...params, temperature: 0 } },
    { name: 'random prompt, temperature 1', prompt: random.take(256), params: { ...params, temperature: 1, seed: 1n } },
    { name: 'random tokens', prompt: random.take(256), params: { ...params, temperature: 100, seed: 2n } },
  ];
}

/** More than the model's own preference for a shorter token. */
const BIAS_PER_CHARACTER = 12;

const STORY =
  'Once upon a time, there was a little girl named Lily. She loved to play outside in the park with her friend Tom. One day, she saw a big red ball under the old tree. Lily ran to the ball and said, "Look, Tom! I found a ball. Can we play with it?" Tom was very happy. They threw the ball up and down, and they laughed all day. When the sun went away, they put the ball in a box and went home to eat soup. ';

function speculationTable(rows: readonly SpeculationRow[]): string {
  const header = ['task', 'plain tok/s', 'with drafts', 'ratio', 'drafted per token', 'accepted per token'];
  const lines = rows.map((row) => [
    row.task,
    row.plainTokensPerSecond,
    row.speculativeTokensPerSecond,
    row.ratio,
    row.draftedPerToken,
    row.acceptedPerToken,
  ]);
  return formatTable(header, lines);
}
