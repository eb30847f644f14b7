import { setTimeout as sleep } from 'node:timers/promises';
import { assert } from '../../src/base/assert.ts';
import type { SamplingOptions } from '../../src/core/sampling.ts';
import type { AsyncEngine, EngineStats } from '../../src/engine/contract.ts';
import { interrupted } from '../errors.ts';
import { PAUSE_MS } from '../pauses.ts';
import { median, rounded } from '../statistics.ts';

/** A prompt, and how its output is sampled. */
export interface SpeculationTask {
  readonly name: string;
  readonly prompt: Int32Array;
  readonly params: SamplingOptions;
  /** Outputs of these are not measured. They end before each run of the task. */
  readonly earlier?: readonly SpeculationTask[];
}

export interface SpeculationRow {
  readonly task: string;
  /** Medians of the output tokens per second after the first token. */
  readonly plainTokensPerSecond: number;
  readonly speculativeTokensPerSecond: number;
  /** The median of the ratios of neighbouring runs. */
  readonly ratio: number;
  /** Drafts that were verified and accepted in all runs, per output token. */
  readonly draftedPerToken: number;
  readonly acceptedPerToken: number;
  /** The share of drafts that were accepted; null without drafts. */
  readonly acceptance: number | null;
  /** Output tokens per step. */
  readonly tokensPerStep: number;
}

export interface SpeculationEngines {
  readonly plain: AsyncEngine;
  readonly speculative: AsyncEngine;
}

interface Run {
  readonly tokens: readonly number[];
  readonly perSecond: number;
}

/**
 * Runs each task with and without speculation in turn, and compares the tokens. The first repetition is a warm-up. Each repetition has a
 * cache salt of its own, so drafts come from no output of the same task.
 */
export async function measureSpeculation(
  { plain, speculative }: SpeculationEngines,
  tasks: readonly SpeculationTask[],
  { repetitions, onProgress }: { readonly repetitions: number; readonly onProgress: (text: string) => void },
  signal: AbortSignal,
): Promise<SpeculationRow[]> {
  const rows: SpeculationRow[] = [];
  for (const task of tasks) {
    const runs = { plain: [] as Run[], speculative: [] as Run[] };
    const counts = { generatedTokens: 0, draftedTokens: 0, acceptedTokens: 0 };
    for (let repetition = 0; repetition <= repetitions; repetition++) {
      onProgress(`${task.name}: ${repetition === 0 ? 'warming up' : `repetition ${repetition} of ${repetitions}`}`);
      const order = repetition % 2 === 0 ? (['plain', 'speculative'] as const) : (['speculative', 'plain'] as const);
      for (const kind of order) {
        const engine = kind === 'plain' ? plain : speculative;
        const cacheSalt = `${task.name} ${repetition}`;
        for (const earlier of task.earlier ?? []) await runOnce(engine, earlier, cacheSalt, signal);
        await sleep(PAUSE_MS);
        const before = engine.stats();
        const run = await runOnce(engine, task, cacheSalt, signal);
        runs[kind].push(run);
        if (kind === 'speculative') addDifference(counts, before, engine.stats());
      }
    }
    assert(
      [...runs.plain, ...runs.speculative].every(({ tokens }) => String(tokens) === String(runs.plain[0]!.tokens)),
      'speculation changes no token',
    );
    const measured = { plain: runs.plain.slice(1), speculative: runs.speculative.slice(1) };
    const { generatedTokens, draftedTokens, acceptedTokens } = counts;
    rows.push({
      task: task.name,
      plainTokensPerSecond: rounded(median(measured.plain.map(({ perSecond }) => perSecond))),
      speculativeTokensPerSecond: rounded(median(measured.speculative.map(({ perSecond }) => perSecond))),
      ratio: rounded(median(measured.speculative.map(({ perSecond }, i) => perSecond / measured.plain[i]!.perSecond))),
      draftedPerToken: rounded(draftedTokens / generatedTokens),
      acceptedPerToken: rounded(acceptedTokens / generatedTokens),
      acceptance: draftedTokens === 0 ? null : rounded(acceptedTokens / draftedTokens),
      // A step of one request gives one token and the accepted drafts.
      tokensPerStep: rounded(generatedTokens / (generatedTokens - acceptedTokens)),
    });
  }
  return rows;
}

type Counts = Pick<EngineStats, 'generatedTokens' | 'draftedTokens' | 'acceptedTokens'>;

function addDifference(counts: { -readonly [Key in keyof Counts]: number }, before: Counts, after: Counts): void {
  for (const key of ['generatedTokens', 'draftedTokens', 'acceptedTokens'] as const)
    counts[key] += after[key] - before[key];
}

async function runOnce(
  engine: AsyncEngine,
  { prompt, params }: SpeculationTask,
  cacheSalt: string,
  signal: AbortSignal,
): Promise<Run> {
  const tokens: number[] = [];
  let firstMs: number | undefined;
  let firstCount = 0;
  for await (const { tokenIds } of engine.generate({ prompt, params, cacheSalt }, { signal })) {
    tokens.push(...tokenIds);
    if (firstMs !== undefined || tokenIds.length === 0) continue;
    firstMs = performance.now();
    firstCount = tokens.length;
  }
  if (signal.aborted) throw interrupted();
  assert(firstMs !== undefined && tokens.length > firstCount, 'a task has an output of several steps');
  return { tokens, perSecond: (1000 * (tokens.length - firstCount)) / (performance.now() - firstMs) };
}
