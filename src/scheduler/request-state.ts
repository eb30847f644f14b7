import type { TokenCount } from '../core/ids.ts';
import type { EngineRequest, RequestStats } from '../core/request.ts';
import type { SampleRequest, Span } from '../core/step.ts';
import type { TokenBuffer } from '../core/tokens.ts';
import type { KvRequest } from '../kv/kv-request.ts';
import type { Match } from './external-kv.ts';

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
  readonly sample: SampleRequest;
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
  /** A runner may have state of the request. */
  knownToRunner: boolean = false;
  #admittedOnce: boolean = false;
  #cachedTokens = 0;
  #computedTokens = 0;
  /** Of these, the tokens of `#toCompute` and output tokens that were computed for the first time. */
  #firstTimeTokens = 0;
  #preemptions = 0;
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
    this.sample = {
      params: request.params,
      eosTokenIds: request.eosTokenIds,
      promptLength: request.promptTokens.length as TokenCount,
    };
    this.#outputReached = this.sample.promptLength;
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

  loadsFailed(blocks: number): void {
    this.#failedLoads += blocks;
  }

  loaded(place: string, tokens: number): void {
    const before = this.#loadedTokens?.[place] ?? 0;
    this.#loadedTokens = { ...this.#loadedTokens, [place]: before + tokens };
  }

  preempted(): void {
    this.status = 'waiting';
    this.isQueryingConnector = false;
    this.race = undefined;
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

  stats(): RequestStats {
    const stats: Writable<RequestStats> = {
      promptTokens: this.sample.promptLength,
      cachedTokens: this.#cachedTokens,
      outputTokens: this.outputTokens,
      computedTokens: this.#computedTokens,
      recomputedTokens: this.#computedTokens - this.#firstTimeTokens,
      preemptions: this.#preemptions,
    };
    // Called once per token. Assignments allocate a tenth of what spread properties do.
    if (this.#externalTokens !== 0) stats.externalTokens = this.#externalTokens;
    if (this.#failedLoads !== 0) stats.failedLoads = this.#failedLoads;
    if (this.#loadedTokens !== undefined) stats.loadedTokens = this.#loadedTokens;
    return stats;
  }
}

type Writable<T> = { -readonly [Key in keyof T]: T[Key] };

const spanOf = (start: number, end: number): Span => ({ start: start as TokenCount, end: end as TokenCount });

/** Negative if `a` comes before `b`. A total order, because arrivals are unique. */
export type RequestOrder = (a: RequestState, b: RequestState) => number;

/** First come, first served. A preempted request keeps its arrival, so it waits before all later requests. */
export const byArrival: RequestOrder = (a, b) => a.arrival - b.arrival;

export const byPriority: RequestOrder = (a, b) => a.request.priority - b.request.priority || a.arrival - b.arrival;
