import { assert } from '../base/assert.ts';
import type { RequestId, StepId, TokenCount } from '../core/ids.ts';
import type { SequencePlan, Span, StepPlan } from '../core/step.ts';
import type { KvCache } from '../kv/kv-cache.ts';
import type { SchedulerOptions } from './contract.ts';
import { addPrompt, emptyLoad, type Pace, type StepLoad } from './pace.ts';
import type { RequestState } from './request-state.ts';

/** The step that is being planned: schedules tokens of requests until the token budget is used up. */
export class StepDraft {
  readonly #kv: KvCache;
  readonly #sequences: SequencePlan[] = [];
  readonly #states: RequestState[] = [];
  readonly #tokensMax: number;
  readonly #tokensMaxPerRequest: number;
  #tokensLeft: number;
  readonly #pace: Pace | undefined;
  readonly #isMeasured: boolean;
  readonly #load: StepLoad = emptyLoad();
  #hasBegunPrompts: boolean = false;
  /** The step has as many prompt tokens as the pace allows. */
  #isPaceFull: boolean = false;

  /**
   * `pace`: limits the prompt tokens of a step with streams; absent: only the token budget is a limit. `isMeasured`: the
   * load of the step is counted.
   */
  constructor(kv: KvCache, options: SchedulerOptions, pace?: Pace, isMeasured = false) {
    this.#kv = kv;
    this.#isMeasured = isMeasured || pace !== undefined;
    this.#pace = pace;
    this.#tokensMax = options.maxNumBatchedTokens;
    this.#tokensMaxPerRequest = options.longPrefillTokenThreshold ?? Infinity;
    this.#tokensLeft = options.maxNumBatchedTokens;
  }

  get tokensLeft(): number {
    return this.#isPaceFull ? 0 : this.#tokensLeft;
  }

  get load(): StepLoad {
    return this.#load;
  }

  get isEmpty(): boolean {
    return this.#sequences.length === 0;
  }

  /** Parallel to the plan's sequences. */
  get states(): readonly RequestState[] {
    return this.#states;
  }

  /** All decodes are scheduled: tokens that are added from now on are prompt tokens. */
  beginPrompts(): void {
    this.#hasBegunPrompts = true;
    this.#isPaceFull = this.#pace?.promptTokensAllowed(this.#load, 0) === 0;
  }

  /**
   * Adds the request's next tokens within the budget; none if it waits for another request or a load. Returns false if
   * the pool has no block for them.
   */
  add(state: RequestState): boolean {
    assert(!state.inFlight, `request ${state.request.id} is in the step already`);
    const paced = this.#allowedPromptTokens(state);
    if (paced === 0) return true;
    const spans = this.#kv.scheduleTokens(state.kv, Math.min(this.tokensLeft, this.#tokensMaxPerRequest, paced));
    if (spans.length === 0) return !state.kv.isOutOfBlocks;
    const budgetBefore = this.#tokensLeft;
    for (let i = 0; i < spans.length; i++) this.#tokensLeft -= spans[i]!.end - spans[i]!.start;
    if (budgetBefore - this.#tokensLeft === paced) this.#isPaceFull = true;
    this.#count(state, spans);
    this.#sequences.push(this.#sequence(state, spans));
    this.#states.push(state);
    state.inFlight = true;
    state.knownToRunner = true;
    return true;
  }

  finish(stepId: StepId, released: readonly RequestId[]): StepPlan {
    const tokenCount = (this.#tokensMax - this.#tokensLeft) as TokenCount;
    return { stepId, sequences: this.#sequences, tokenCount, released };
  }

  /** Tokens that the pace allows the request. If it allows none, the step gets no more prompt tokens. */
  #allowedPromptTokens(state: RequestState): number {
    if (!this.#hasBegunPrompts || this.#pace === undefined) return Infinity;
    const tokens = this.#isPaceFull ? 0 : this.#pace.promptTokensAllowed(this.#load, state.kv.nextPosition());
    if (tokens === 0) this.#isPaceFull = true;
    return tokens;
  }

  #count(state: RequestState, spans: readonly Span[]): void {
    if (!this.#isMeasured) return;
    if (this.#hasBegunPrompts) {
      for (let i = 0; i < spans.length; i++) addPrompt(this.#load, spans[i]!.start, spans[i]!.end);
      return;
    }
    this.#load.decodes++;
    this.#load.decodeContext += state.tokens.length;
    if (state.outputTokens > 0) this.#load.streams++;
  }

  #sequence(state: RequestState, spans: readonly Span[]): SequencePlan {
    const { tokens, kv, request } = state;
    const isComplete = spans[spans.length - 1]!.end === tokens.length;
    const sequence: SequencePlan = isComplete
      ? { requestId: request.id, tokens, spans, blockTables: kv.tables, sample: state.sample }
      : { requestId: request.id, tokens, spans, blockTables: kv.tables };
    return kv.hasMaskedWrites ? { ...sequence, writeTables: this.#kv.writeTables(kv, spans) } : sequence;
  }
}
