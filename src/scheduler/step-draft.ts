import { assert } from '../base/assert.ts';
import type { RequestId, StepId, TokenCount } from '../core/ids.ts';
import type { LayerRange, SequencePlan, Span, StepPlan } from '../core/step.ts';
import type { KvCache } from '../kv/kv-cache.ts';
import type { SchedulerOptions } from './contract.ts';
import type { LayeredPrefill } from './layered-prefill.ts';
import type { Pace } from './pace.ts';
import type { RequestState } from './request-state.ts';
import type { Slice } from './slice-sizes.ts';
import type { Speculator } from './speculation/speculator.ts';
import { addPrompt, emptyLoad, type StepLoad } from './step-load.ts';

/**
 * The step that is being planned: schedules tokens of requests until the token budget is used up. Each step uses the same
 * draft and arrays, so that a step of decodes allocates almost nothing.
 *
 *   begin -> add (decodes) -> beginPrompts -> add (prompts) -> finish
 */
export class StepDraft {
  readonly #kv: KvCache;
  readonly #sequences: SequencePlan[] = [];
  readonly #states: RequestState[] = [];
  /** Requests in the step; the arrays may still be longer. */
  #size = 0;
  readonly #maxModelLen: number;
  readonly #tokensMax: number;
  readonly #tokensMaxPerRequest: number;
  #tokensLeft = 0;
  readonly #pace: Pace | undefined;
  readonly #isMeasured: boolean;
  #load: StepLoad = emptyLoad();
  #hasBegunPrompts: boolean = false;
  /** The step has as many prompt tokens as the pace allows. */
  #isPaceFull: boolean = false;
  readonly #layered: LayeredPrefill | undefined;

  /**
   * `pace`: limits the prompt tokens of a step with streams; absent: only the token budget is a limit. `isMeasured`: the
   * load of the step is counted. `layered`: chunks may be computed a few layers at a time; only with `pace`.
   */
  // biome-ignore lint/complexity/useMaxParams: the last ones are optional
  constructor(kv: KvCache, options: SchedulerOptions, pace?: Pace, isMeasured = false, layered?: LayeredPrefill) {
    this.#kv = kv;
    this.#layered = layered;
    this.#isMeasured = isMeasured || pace !== undefined;
    this.#pace = pace;
    this.#maxModelLen = options.maxModelLen;
    this.#tokensMax = options.maxNumBatchedTokens;
    this.#tokensMaxPerRequest = options.longPrefillTokenThreshold ?? Infinity;
  }

  /** Begins the next step: drops the last one. */
  begin(): void {
    this.#size = 0;
    this.#tokensLeft = this.#tokensMax;
    this.#load = emptyLoad();
    this.#hasBegunPrompts = false;
    this.#isPaceFull = false;
  }

  get tokensLeft(): number {
    return this.#isPaceFull ? 0 : this.#tokensLeft;
  }

  get load(): StepLoad {
    return this.#load;
  }

  /** The chunks of prompts are smaller than the token budget. */
  get hasSmallChunks(): boolean {
    return this.#tokensMaxPerRequest !== Infinity || (this.#pace !== undefined && this.#load.streams > 0);
  }

  get isEmpty(): boolean {
    return this.#size === 0;
  }

  /** Parallel to the plan's sequences, after `finish`. */
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
    const slice = this.#sliceOf(state, paced);
    // Tokens of its chunk in progress are not computed in another way: the layers that are done would be lost.
    if (slice === undefined && paced !== Infinity && this.#layered?.chunkOf(state) !== undefined) return true;
    const budget = Math.min(this.tokensLeft, this.#tokensMaxPerRequest, slice?.tokens ?? paced);
    const spans = this.#kv.scheduleTokens(state.kv, budget);
    if (spans.length === 0) return !state.kv.isOutOfBlocks;
    const layers = slice === undefined ? undefined : this.#layersOf(state, spans, slice);
    const budgetBefore = this.#tokensLeft;
    for (let i = 0; i < spans.length; i++) this.#tokensLeft -= spans[i]!.end - spans[i]!.start;
    if (budgetBefore - this.#tokensLeft === paced) this.#isPaceFull = true;
    this.#count(state, spans);
    if (layers !== undefined && this.#layered !== undefined) {
      this.#isPaceFull = true;
      this.#load.layerShare = (layers.end - layers.first) / this.#layered.layerCount;
    }
    const sequence = this.#sequence(state, spans);
    this.#sequences[this.#size] = layers === undefined ? sequence : { ...sequence, layers };
    this.#states[this.#size++] = state;
    state.inFlight = true;
    state.knownToRunner = true;
    return true;
  }

  /** If the step has decodes only, adds drafts within the budget. Extra rows are cheap only in such steps. */
  addDrafts(speculator: Speculator): void {
    if (this.#load.decodes === 0 || this.#load.promptTokens > 0) return;
    const drafts = speculator.draft(this.#states.slice(0, this.#size), this.#tokensLeft);
    for (let i = 0; i < drafts.length; i++) if (drafts[i] !== undefined) this.#addDraft(i, drafts[i]!);
  }

  #addDraft(i: number, proposed: Int32Array): void {
    const state = this.#states[i]!;
    const sequence = this.#sequences[i]!;
    const [span] = sequence.spans;
    if (sequence.sample === undefined || sequence.prompt !== undefined || span!.end - span!.start !== 1) return;
    const countMax = Math.min(state.outputTokensLeft(this.#maxModelLen) - 1, this.#tokensLeft);
    if (countMax <= 0) return;
    const drafts = state.draftsAllowed(proposed.subarray(0, countMax));
    const count = drafts.tokens.length === 0 ? 0 : this.#kv.scheduleDrafts(state.kv, drafts.tokens.length);
    if (count === 0) return;
    const spans = [{ start: span!.start, end: (span!.end + count) as TokenCount }];
    const tokens = drafts.tokens.subarray(0, count);
    const { allowed } = drafts;
    const fitting = allowed === undefined ? { tokens } : { tokens, allowed: allowed.slice(0, count) };
    this.#sequences[i] = { ...sequence, spans, drafts: fitting };
    this.#tokensLeft -= count;
    this.#load.draftTokens += count;
    this.#load.draftContext += count * state.tokens.length;
  }

  finish(stepId: StepId, released: readonly RequestId[]): StepPlan {
    if (this.#sequences.length !== this.#size) this.#sequences.length = this.#states.length = this.#size;
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

  /** Which part of a chunk by layers the step computes; undefined: all layers of the tokens that the pace allows. */
  #sliceOf(state: RequestState, paced: number): Slice | undefined {
    const layered = this.#layered;
    const { streams, promptTokens } = this.#load;
    if (layered === undefined || paced === Infinity) return undefined;
    // The rows before a chunk by layers are decodes.
    if (streams === 0 || promptTokens > 0 || state.promptOutput !== undefined || !this.#isSampled()) return undefined;
    return layered.sliceOf(state, this.#load, {
      start: state.kv.nextPosition(),
      // The last token is not part of such a chunk, because it is sampled.
      tokensMax: Math.min(this.#tokensLeft, this.#tokensMaxPerRequest, state.kv.tokensLeft() - 1),
      paced,
    });
  }

  /** Whether each sequence of the step is one token that is sampled. */
  #isSampled(): boolean {
    for (let i = 0; i < this.#size; i++) {
      const { sample, prompt } = this.#sequences[i]!;
      if (sample === undefined || prompt !== undefined) return false;
    }
    return true;
  }

  /** Undefined: a token would be sampled, or the chunk must not write all of its blocks. This is rare. */
  #layersOf(state: RequestState, spans: readonly Span[], slice: Slice): LayerRange | undefined {
    if (state.kv.hasMaskedWrites || spans.at(-1)!.end === state.tokens.length) return undefined;
    return this.#layered?.next(state, spans, slice);
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
    const isSampled = spans[spans.length - 1]!.end === tokens.length && request.params.maxTokens > 0;
    let sequence = isSampled ? state.plans.sampled : state.plans.unsampled;
    const allowed = isSampled ? state.allowedTokens() : undefined;
    if (allowed !== undefined) sequence = { ...sequence, allowed };
    const prompt = state.promptOutput?.rowsIn(spans);
    if (prompt !== undefined) sequence = { ...sequence, prompt };
    return kv.hasMaskedWrites ? { ...sequence, writeTables: this.#kv.writeTables(kv, spans) } : sequence;
  }
}
