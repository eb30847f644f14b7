import { setTimeout as sleep } from 'node:timers/promises';
import { assert } from '../../src/base/assert.ts';
import type { SamplingOptions } from '../../src/core/sampling.ts';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import { interrupted } from '../errors.ts';
import { PAUSE_MS } from '../latency/latency.ts';
import { median, rounded } from '../statistics.ts';

/** A prompt, and how its output is sampled. */
export interface SpeculationTask {
  readonly name: string;
  readonly prompt: Int32Array;
  readonly params: SamplingOptions;
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
}

export interface SpeculationEngines {
  readonly plain: AsyncEngine;
  readonly speculative: AsyncEngine;
}

interface Run {
  readonly tokens: readonly number[];
  readonly perSecond: number;
}

/** Runs each task with and without speculation in turn, and compares the tokens. The first repetition is a warm-up. */
export async function measureSpeculation(
  { plain, speculative }: SpeculationEngines,
  tasks: readonly SpeculationTask[],
  { repetitions, onProgress }: { readonly repetitions: number; readonly onProgress: (text: string) => void },
  signal: AbortSignal,
): Promise<SpeculationRow[]> {
  const rows: SpeculationRow[] = [];
  for (const task of tasks) {
    const runs = { plain: [] as Run[], speculative: [] as Run[] };
    const before = speculative.stats();
    for (let repetition = 0; repetition <= repetitions; repetition++) {
      onProgress(`${task.name}: ${repetition === 0 ? 'warming up' : `repetition ${repetition} of ${repetitions}`}`);
      const order = repetition % 2 === 0 ? (['plain', 'speculative'] as const) : (['speculative', 'plain'] as const);
      for (const kind of order) {
        await sleep(PAUSE_MS);
        const run = await runOnce(kind === 'plain' ? plain : speculative, task, signal);
        if (repetition > 0 || runs[kind].length === 0) runs[kind].push(run);
      }
    }
    const after = speculative.stats();
    assert(
      [...runs.plain, ...runs.speculative].every(({ tokens }) => String(tokens) === String(runs.plain[0]!.tokens)),
      'speculation changes no token',
    );
    const measured = { plain: runs.plain.slice(1), speculative: runs.speculative.slice(1) };
    const generated = after.generatedTokens - before.generatedTokens;
    rows.push({
      task: task.name,
      plainTokensPerSecond: rounded(median(measured.plain.map(({ perSecond }) => perSecond))),
      speculativeTokensPerSecond: rounded(median(measured.speculative.map(({ perSecond }) => perSecond))),
      ratio: rounded(median(measured.speculative.map(({ perSecond }, i) => perSecond / measured.plain[i]!.perSecond))),
      draftedPerToken: rounded((after.draftedTokens - before.draftedTokens) / generated),
      acceptedPerToken: rounded((after.acceptedTokens - before.acceptedTokens) / generated),
    });
  }
  return rows;
}

async function runOnce(engine: AsyncEngine, { prompt, params }: SpeculationTask, signal: AbortSignal): Promise<Run> {
  const tokens: number[] = [];
  let firstMs: number | undefined;
  let firstCount = 0;
  for await (const { tokenIds } of engine.generate({ prompt, params }, { signal })) {
    tokens.push(...tokenIds);
    if (firstMs !== undefined || tokenIds.length === 0) continue;
    firstMs = performance.now();
    firstCount = tokens.length;
  }
  if (signal.aborted) throw interrupted();
  assert(firstMs !== undefined && tokens.length > firstCount, 'a task has an output of several steps');
  return { tokens, perSecond: (1000 * (tokens.length - firstCount)) / (performance.now() - firstMs) };
}
