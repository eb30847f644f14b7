import { requestId, stepId, tokenCount } from '../../src/core/ids.ts';
import { parseSamplingParams } from '../../src/core/sampling-parse.ts';
import type { BlockTable, Span, StepPlan } from '../../src/core/step.ts';
import { TokenBuffer } from '../../src/core/tokens.ts';
import type { HiddenStates, StageResult } from '../../src/runner/contract.ts';
import type { GgmlRunner } from '../../src/runner/ggml-runner.ts';

/** A block table with the blocks `first`, `first + 1`, ... */
export const blockTable = (first: number, length: number): BlockTable => ({
  ids: Int32Array.from({ length }, (_, i) => first + i),
  length,
});

let steps = 0;

/** Executes one step with some spans of a prompt on a runner; samples greedily if the last span ends the prompt. */
export function runPrompt(
  runner: GgmlRunner,
  prompt: ArrayLike<number>,
  table: BlockTable,
  spans: readonly (readonly [number, number])[] = [[0, prompt.length]],
  hidden?: HiddenStates,
): Promise<StageResult> {
  const params = parseSamplingParams({ temperature: 0, maxTokens: 1, seed: 0n }, {
    vocabSize: runner.vocabSize,
  } as never);
  const planned: Span[] = spans.map(([start, end]) => ({ start: tokenCount(start), end: tokenCount(end) }));
  const isLast = planned.at(-1)?.end === prompt.length;
  const plan: StepPlan = {
    stepId: stepId(++steps),
    tokenCount: tokenCount(planned.reduce((sum, { start, end }) => sum + end - start, 0)),
    released: [],
    sequences: [
      {
        requestId: requestId('prompt'),
        tokens: new TokenBuffer(prompt),
        spans: planned,
        blockTables: [table],
        ...(isLast ? { sample: { params, promptLength: tokenCount(prompt.length), eosTokenIds: [] } } : {}),
      },
    ],
  };
  return runner.execute(plan, hidden);
}
