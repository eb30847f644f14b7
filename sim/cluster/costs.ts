import type { SequencePlan } from '../../src/core/step.ts';
import { costOf } from '../../src/scheduler/short-first.ts';

/** What a replica's steps and its KV cost. */
export interface Costs {
  /** Of a prompt of 512 tokens in one step. */
  readonly prefillTokensPerSecond: number;
  /** A decode of one request without much context. */
  readonly decodeMs: number;
  /** What 1,000 tokens of context add to a decode. */
  readonly contextMs: number;
  readonly kvBytesPerToken: number;
}

/**
 * Measured with random weights in the shape of Qwen3-0.6B, Q8_0, on two cores of an AMD Zen 5 (docs/performance.md, 2026-11-21): 857 tok/s for a prompt of 512,
 * 80.5 tok/s for decodes, 30.4 tok/s after a context of 8192 tokens. KV: 28 layers, K and V, 8 heads of 128, two bytes each.
 */
export const measuredCosts: Costs = {
  prefillTokensPerSecond: 857,
  decodeMs: 12.4,
  contextMs: 2.5,
  kvBytesPerToken: 28 * 2 * 8 * 128 * 2,
};

/** A step without tokens only starts and reports transfers. */
const transfersOnlyMs = 0.1;
const measuredPrompt = 512;

/**
 * How long a step takes: `decodeMs` for the first row, which reads all weights, and the same time for each further row, of a prompt or of a
 * decode. A row of a prompt costs more after a long context, in the proportion that the scheduler assumes, too (`short-first.ts`).
 */
export class StepTimes {
  readonly #costs: Costs;
  readonly #rowMs: number;

  constructor(costs: Costs) {
    this.#costs = costs;
    const promptMs = (1000 * measuredPrompt) / costs.prefillTokensPerSecond;
    this.#rowMs = Math.max(promptMs - costs.decodeMs, 0) / (costOf(0, measuredPrompt) - 1);
  }

  stepMs(sequences: readonly SequencePlan[]): number {
    if (sequences.length === 0) return transfersOnlyMs;
    let [rows, ms] = [0, this.#costs.decodeMs];
    for (const { spans, tokens } of sequences)
      for (const { start, end } of spans) {
        const isDecode = end - start === 1 && end === tokens.length;
        rows += isDecode ? 1 : costOf(start, end);
        if (isDecode) ms += (this.#costs.contextMs * end) / 1000;
      }
    return ms + Math.max(rows - 1, 0) * this.#rowMs;
  }
}
