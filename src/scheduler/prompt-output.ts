import { assert } from '../base/assert.ts';
import type { TokenCount } from '../core/ids.ts';
import type { EngineRequest, RequestUpdate } from '../core/request.ts';
import type { PromptResult, PromptRows, Span } from '../core/step.ts';

/**
 * The results of prompt positions that a request asks for: logprobs of its prompt, or hidden states for an embedding.
 * Each position is delivered once, in ascending order, although a preempted or recovered request computes some again.
 *
 *   logprobs     ^^^^^^^^^^^^^.      of the next token, so the last position has none
 *   mean, cls    ^^^^^^^^^^^^^^
 *   last         .............^
 */
export class PromptOutput {
  readonly #topCount: number | undefined;
  /** The result is one vector. */
  readonly #isPooled: boolean;
  readonly #end: number;
  /** From this position on, the request computes its tokens in any case. */
  readonly #computedAnyway: number;
  /** Positions below it are delivered, or not asked for. */
  #next: number;

  private constructor(start: number, { promptTokens, isPooled }: EngineRequest, topCount?: number) {
    const { length: promptLength } = promptTokens;
    this.#next = start;
    this.#end = topCount === undefined ? promptLength : promptLength - 1;
    this.#isPooled = isPooled === true;
    this.#computedAnyway = promptLength - 1;
    this.#topCount = topCount;
  }

  /** Undefined if the request asks for no results of its prompt. */
  static of(request: EngineRequest): PromptOutput | undefined {
    const { promptTokens, params, pooling } = request;
    if (pooling !== undefined) return new PromptOutput(pooling === 'last' ? promptTokens.length - 1 : 0, request);
    const { promptLogprobs } = params;
    return promptLogprobs === undefined ? undefined : new PromptOutput(0, request, promptLogprobs);
  }

  /** All tokens from here on must be computed. The last token of a request is always computed. */
  get computeFrom(): number {
    return this.#next < this.#computedAnyway ? this.#next : Infinity;
  }

  /** The rows of a step that computes these spans; undefined if the step has no position that is asked for. */
  rowsIn(spans: readonly Span[]): PromptRows | undefined {
    const { start, end } = spans[spans.length - 1]!;
    const first = Math.max(start, this.#next);
    const last = Math.min(end, this.#end);
    if (first >= last) return undefined;
    assert(first === this.#next, `position ${this.#next} was asked for, and position ${first} is computed`);
    const rows = { start: first as TokenCount, end: last as TokenCount };
    return this.#topCount === undefined ? rows : { ...rows, topCount: this.#topCount };
  }

  /** The results of `rows` for positions below `below`, on which the request can rely. */
  take({ start, end }: PromptRows, result: PromptResult | undefined, below: number): RequestUpdate['prompt'] {
    const count = Math.min(end, below) - start;
    if (count <= 0) return undefined;
    assert(result !== undefined, `the step has no results of the prompt positions from ${start} on`);
    this.#next = start + count;
    const { logprobs, hidden } = result;
    if (logprobs !== undefined) {
      assert(logprobs.length === end - start, `${logprobs.length} logprobs of ${end - start} positions`);
      return { logprobs: logprobs.slice(0, count) };
    }
    if (this.#isPooled) return hidden === undefined ? undefined : { hidden };
    assert(hidden !== undefined && hidden.length % (end - start) === 0, 'a hidden state for each position');
    return { hidden: hidden.subarray(0, (hidden.length / (end - start)) * count) };
  }
}
