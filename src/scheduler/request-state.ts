import { assert } from '../base/assert.ts';
import { byName } from '../base/by-name.ts';
import type { ConstraintState, TokenMask } from '../core/constraint.ts';
import type { TokenCount, TokenId } from '../core/ids.ts';
import type { EngineRequest, RequestStats, RequestUpdate } from '../core/request.ts';
import type { Drafts, SampledToken, SampleRequest, SequencePlan, Span } from '../core/step.ts';
import type { TokenBuffer } from '../core/tokens.ts';
import type { KvRequest } from '../kv/kv-request.ts';
import type { Match } from './external-kv.ts';
import { LostPlaces } from './lost-places.ts';
import { PromptOutput } from './prompt-output.ts';

/**
 * One request from `add` to its end.
 *
 *   waiting --admit--> running --finish/abort--> ended
 *      | ^                | ^
 *      | +----preempt-----+ |  loads decided
 *      +-----admit-----> waitingForRemoteKv --abort--> ended
 *                         ^ |  KV invalid: asks its connector again, and loads the promised blocks
 *                         +-+
 */
export class RequestState {
  readonly request: EngineRequest;
  readonly tokens: TokenBuffer;
  readonly kv: KvRequest;
  /** Order of `add`; unique. */
  readonly arrival: number;
  /** By which it waits; see `TenantTurns`. Does not change while it waits. */
  turn: number;
  readonly sample: SampleRequest;
  /** The request's part of every plan: its spans are those that the KV cache has scheduled last. */
  readonly plans: { readonly sampled: SequencePlan; readonly unsampled: SequencePlan };
  /** The request's part of every result without results of the prompt; valid until the next result. */
  readonly #update: { requestId: EngineRequest['id']; newTokens: SampledToken[]; stats: Writable<RequestStats> };
  readonly promptOutput: PromptOutput | undefined;
  status: 'waiting' | 'waitingForRemoteKv' | 'running' | 'ended' = 'waiting';
  /** The request is not in the queue, because its connector answered "ask later". */
  isDeferred: boolean = false;
  /** The request has blocks with invalid KV, and waits for its connector's answer. */
  isQueryingConnector: boolean = false;
  /** The latest time at which it stops waiting for an answer. Set by the first "ask later", unset by the admission. */
  queryDeadlineMs: number | undefined;
  /** The request computes its first tokens while later blocks load: the promised blocks that are not loaded yet. */
  race: Match | undefined;
  /** How often the request has asked its connector again because a load failed. */
  failedLoadRetries = 0;
  /** The step in flight has tokens of the request, so its blocks do not change before `apply`. */
  inFlight: boolean = false;
  /** The cost of its prompt, estimated while it waits (`short-first.ts`); undefined: not estimated yet. */
  waitingCost: number | undefined;
  /** For people who watch the cache. */
  readonly lost = new LostPlaces();
  /** A runner may have state of the request. */
  knownToRunner: boolean = false;
  /** The place in the grammar after the output tokens; undefined without a grammar. */
  #constraintState: ConstraintState | undefined;
  #admittedOnce: boolean = false;
  #cachedTokens = 0;
  #computedTokens = 0;
  /** Of these, the tokens of `#toCompute` and output tokens that were computed for the first time. */
  #firstTimeTokens = 0;
  #preemptions = 0;
  #lostAtMs: number | undefined;
  #recoveryMs: number | undefined;
  #draftedTokens = 0;
  #acceptedTokens = 0;
  #externalTokens = 0;
  #failedLoads = 0;
  #loadedTokens: Record<string, number> | undefined;
  /** Prompt tokens of the first plan that no step has computed yet. Ascending and disjoint. */
  #toCompute: Span[] = [];
  /** Output tokens below this position were computed at least once. */
  #outputReached: number;

  constructor(request: EngineRequest, tokens: TokenBuffer, kv: KvRequest, arrival: number) {
    this.request = request;
    this.tokens = tokens;
    this.kv = kv;
    this.arrival = arrival;
    this.turn = arrival;
    this.sample = {
      params: request.params,
      eosTokenIds: request.eosTokenIds,
      promptLength: request.promptTokens.length as TokenCount,
    };
    const unsampled: SequencePlan = {
      requestId: request.id,
      tokens,
      spans: kv.scheduled.all,
      blockTables: kv.tables,
      ...(request.adapter === undefined ? {} : { adapter: request.adapter.digest }),
    };
    this.plans = { unsampled, sampled: { ...unsampled, sample: this.sample } };
    this.promptOutput = PromptOutput.of(request);
    this.#outputReached = this.sample.promptLength;
    this.#update = { requestId: request.id, newTokens: [], stats: this.stats() };
    this.#constraintState = request.constraint?.start;
  }

  /** The tokens that may be sampled next; undefined: all. */
  allowedTokens(): TokenMask | undefined {
    const { constraint, params } = this.request;
    if (constraint === undefined || this.#constraintState === undefined) return undefined;
    const avoidEnd = params.ignoreEos || this.outputTokens < params.minTokens;
    return constraint.allowedTokens(this.#constraintState, avoidEnd);
  }

  /**
   * The longest prefix of `drafts` that the grammar allows, and the masks for the tokens after each of these drafts. Drafts
   * that end the output, or are too many for it, are left out: nothing would be computed from them.
   */
  draftsAllowed(drafts: Int32Array): Drafts {
    const { constraint, params, eosTokenIds } = this.request;
    const stops = (token: number): boolean =>
      eosTokenIds.includes(token as TokenId) || params.stopTokenIds.includes(token as TokenId);
    const end = drafts.findIndex(stops);
    const tokens = end === -1 ? drafts : drafts.subarray(0, end);
    if (constraint === undefined || this.#constraintState === undefined) return { tokens };
    const allowed: TokenMask[] = [];
    let state: ConstraintState | undefined = this.#constraintState;
    for (const token of tokens) {
      state = constraint.advance(state, token as TokenId);
      if (state === undefined) break;
      const avoidEnd = params.ignoreEos || this.outputTokens + allowed.length + 1 < params.minTokens;
      allowed.push(constraint.allowedTokens(state, avoidEnd));
    }
    return { tokens: tokens.subarray(0, allowed.length), allowed };
  }

  /** Whether the grammar has no text with this token next. */
  forbids(token: TokenId): boolean {
    const { constraint, eosTokenIds } = this.request;
    if (constraint === undefined || this.#constraintState === undefined || eosTokenIds.includes(token)) return false;
    return constraint.advance(this.#constraintState, token) === undefined;
  }

  /** Appends an output token. */
  append(token: TokenId): void {
    this.tokens.push(token);
    const { constraint, eosTokenIds } = this.request;
    if (constraint === undefined || this.#constraintState === undefined || eosTokenIds.includes(token)) return;
    this.#constraintState = constraint.advance(this.#constraintState, token);
    assert(this.#constraintState !== undefined, `the grammar of request ${this.request.id} allows token ${token}`);
  }

  /** The grammar allows no other token, and the model has no EOS token to say so. */
  get isCompleteWithoutEos(): boolean {
    const { constraint, eosTokenIds } = this.request;
    if (constraint === undefined || this.#constraintState === undefined || eosTokenIds.length > 0) return false;
    return constraint.isComplete(this.#constraintState);
  }

  get outputTokens(): number {
    return this.tokens.length - this.sample.promptLength;
  }

  /** The largest number of output tokens that it may still get. */
  outputTokensLeft(maxModelLen: number): number {
    return Math.min(this.request.params.maxTokens - this.outputTokens, maxModelLen - this.tokens.length);
  }

  /**
   * `promised`: the tokens of blocks to be loaded, ascending and disjoint. Some of them may be computed in any case.
   */
  admitted(promised: readonly Span[]): void {
    if (this.#admittedOnce) return;
    this.#admittedOnce = true;
    this.#cachedTokens = this.tokens.length - this.kv.tokensLeft();
    const { spans } = this.kv;
    for (let i = 0; i < spans.count; i++) this.#toCompute.push(spanOf(spans.start(i), spans.end(i)));
    for (const { start, end } of promised) {
      this.#externalTokens += end - start;
      for (let i = 0; i < spans.count; i++)
        this.#externalTokens -= Math.max(Math.min(end, spans.end(i)) - Math.max(start, spans.start(i)), 0);
    }
  }

  /** A step has verified drafts, and `accepted` of them are output tokens now. */
  drafted(drafts: number, accepted: number): void {
    this.#draftedTokens += drafts;
    this.#acceptedTokens += accepted;
  }

  loadsFailed(blocks: number): void {
    this.#failedLoads += blocks;
  }

  /** KV of the request was lost. */
  lostKv(nowMs: number | undefined): void {
    this.#lostAtMs ??= nowMs;
  }

  /** The request got a token. */
  recovered(nowMs: number | undefined): void {
    if (this.#lostAtMs === undefined || nowMs === undefined) return;
    this.#recoveryMs = (this.#recoveryMs ?? 0) + (nowMs - this.#lostAtMs);
    this.#lostAtMs = undefined;
  }

  loaded(place: string, tokens: number): void {
    const before = this.#loadedTokens?.[place] ?? 0;
    this.#loadedTokens = byName({ ...this.#loadedTokens, [place]: before + tokens });
  }

  preempted(): void {
    this.status = 'waiting';
    this.isQueryingConnector = false;
    this.race = undefined;
    this.waitingCost = undefined;
    this.lost.clear();
    this.#preemptions++;
  }

  /** Counts the tokens that a step computed, and how many of them had to be computed and were not computed before. */
  computed(spans: readonly Span[]): void {
    for (let i = 0; i < spans.length; i++) {
      const { start, end } = spans[i]!;
      this.#computedTokens += end - start;
      if (this.#toCompute.length > 0) this.#firstTimeTokens += this.#takeFromPlan(start, end);
      if (end <= this.#outputReached) continue;
      this.#firstTimeTokens += end - Math.max(start, this.#outputReached);
      this.#outputReached = end;
    }
  }

  /** These tokens, which the first plan computes, are loaded instead. */
  loadsInstead(spans: readonly Span[]): void {
    for (const { start, end } of spans) {
      const tokens = this.#takeFromPlan(start, end);
      this.#cachedTokens += tokens;
      this.#externalTokens += tokens;
    }
  }

  /** Removes the tokens from `#toCompute`. Returns how many of them it had. */
  #takeFromPlan(start: number, end: number): number {
    let tokens = 0;
    const left: Span[] = [];
    for (const toCompute of this.#toCompute) {
      const from = Math.max(start, toCompute.start);
      const to = Math.min(end, toCompute.end);
      if (from >= to) {
        left.push(toCompute);
        continue;
      }
      tokens += to - from;
      if (toCompute.start < from) left.push(spanOf(toCompute.start, from));
      if (to < toCompute.end) left.push(spanOf(to, toCompute.end));
    }
    this.#toCompute = left;
    return tokens;
  }

  /** A copy of the running totals. */
  stats(): RequestStats {
    return this.#writeStats({
      promptTokens: 0,
      cachedTokens: 0,
      outputTokens: 0,
      computedTokens: 0,
      recomputedTokens: 0,
      preemptions: 0,
    });
  }

  /** The new tokens of the next update: `apply` writes them. */
  get newTokens(): SampledToken[] {
    return this.#update.newTokens;
  }

  /** The update of a step. Valid until the next one, because a new object for each token is much to collect. */
  update(): RequestUpdate {
    const update = this.#update;
    this.#writeStats(update.stats);
    return update;
  }

  #writeStats(stats: Writable<RequestStats>): RequestStats {
    stats.promptTokens = this.sample.promptLength;
    stats.cachedTokens = this.#cachedTokens;
    stats.outputTokens = this.outputTokens;
    stats.computedTokens = this.#computedTokens;
    stats.recomputedTokens = this.#computedTokens - this.#firstTimeTokens;
    stats.preemptions = this.#preemptions;
    if (this.#externalTokens !== 0) stats.externalTokens = this.#externalTokens;
    if (this.#failedLoads !== 0) stats.failedLoads = this.#failedLoads;
    if (this.#recoveryMs !== undefined) stats.recoveryMs = this.#recoveryMs;
    if (this.#draftedTokens !== 0) stats.draftedTokens = this.#draftedTokens;
    if (this.#acceptedTokens !== 0) stats.acceptedTokens = this.#acceptedTokens;
    if (this.#loadedTokens !== undefined) stats.loadedTokens = this.#loadedTokens;
    return stats;
  }
}

type Writable<T> = { -readonly [Key in keyof T]: T[Key] };

const spanOf = (start: number, end: number): Span => ({ start: start as TokenCount, end: end as TokenCount });

/** Negative if `a` comes before `b`. A total order, because arrivals are unique. */
export type RequestOrder = (a: RequestState, b: RequestState) => number;

/** First come, first served, in turn of the tenants. A preempted request keeps its turn, so it waits before all later requests. */
export const byTurn: RequestOrder = (a, b) => a.turn - b.turn || a.arrival - b.arrival;

export const byPriority: RequestOrder = (a, b) => a.request.priority - b.request.priority || byTurn(a, b);
