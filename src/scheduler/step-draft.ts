import { assert } from '../base/assert.ts';
import type { RequestId, StepId, TokenCount } from '../core/ids.ts';
import type { SequencePlan, Span, StepPlan } from '../core/step.ts';
import type { KvCache } from '../kv/kv-cache.ts';
import type { SchedulerOptions } from './contract.ts';
import type { RequestState } from './request-state.ts';

/** The step under construction: takes rows from requests as long as the token budget lasts. */
export class StepDraft {
  readonly #kv: KvCache;
  readonly #sequences: SequencePlan[] = [];
  readonly #states: RequestState[] = [];
  readonly #rowsMax: number;
  readonly #rowsMaxPerRequest: number;
  #rowsLeft: number;

  constructor(kv: KvCache, options: SchedulerOptions) {
    this.#kv = kv;
    this.#rowsMax = options.maxNumBatchedTokens;
    this.#rowsMaxPerRequest = options.longPrefillTokenThreshold ?? Infinity;
    this.#rowsLeft = options.maxNumBatchedTokens;
  }

  get rowsLeft(): number {
    return this.#rowsLeft;
  }

  get isEmpty(): boolean {
    return this.#sequences.length === 0;
  }

  /** Parallel to the plan's sequences. */
  get states(): readonly RequestState[] {
    return this.#states;
  }

  /**
   * Adds what the budget allows of the request's next rows; none when it waits for another request's. False when there
   * would be rows, but no page for them.
   */
  add(state: RequestState): boolean {
    assert(!state.inFlight, `request ${state.request.id} is in the step already`);
    const spans = this.#kv.takeRows(state.kv, Math.min(this.#rowsLeft, this.#rowsMaxPerRequest));
    if (spans.length === 0) return !state.kv.isStarved;
    for (let i = 0; i < spans.length; i++) this.#rowsLeft -= spans[i]!.end - spans[i]!.start;
    this.#sequences.push(this.#sequence(state, spans));
    this.#states.push(state);
    state.inFlight = true;
    state.knownToRunner = true;
    return true;
  }

  finish(stepId: StepId, released: readonly RequestId[]): StepPlan {
    const tokenCount = (this.#rowsMax - this.#rowsLeft) as TokenCount;
    return { stepId, sequences: this.#sequences, tokenCount, released };
  }

  #sequence(state: RequestState, spans: readonly Span[]): SequencePlan {
    const { tokens, kv, request } = state;
    const complete = spans[spans.length - 1]!.end === tokens.length;
    const sequence: SequencePlan = complete
      ? { requestId: request.id, tokens, spans, blockTables: kv.tables, sample: state.sample }
      : { requestId: request.id, tokens, spans, blockTables: kv.tables };
    return kv.rowsMasked ? { ...sequence, writeTables: this.#kv.writeTables(kv, spans) } : sequence;
  }
}
