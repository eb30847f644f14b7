import type { TokenCount } from '../core/ids.ts';
import type { EngineRequest, RequestStats } from '../core/request.ts';
import type { SampleRequest, Span } from '../core/step.ts';
import type { TokenBuffer } from '../core/tokens.ts';
import type { KvRequest } from '../kv/kv-request.ts';

/**
 * One request from `add` to its end.
 *
 *   waiting --admit--> running --finish/abort--> ended
 *      | ^                | ^
 *      | +----preempt-----+ |  loads decided
 *      +-----admit-----> loading --abort--> ended
 *                         ^ |  has lost KV: asks its connector again, and loads what there is
 *                         +-+
 */
export class RequestState {
  readonly request: EngineRequest;
  readonly tokens: TokenBuffer;
  readonly kv: KvRequest;
  /** Order of `add`; unique. */
  readonly arrival: number;
  readonly sample: SampleRequest;
  status: 'waiting' | 'loading' | 'running' | 'ended' = 'waiting';
  /** It waits outside the queue because a connector has no answer yet. */
  isDeferred: boolean = false;
  /** It holds pages, has lost KV, and waits until its connector has said what can be loaded. */
  isQueryingConnector: boolean = false;
  /** It waits for its connector's answer until this time at the latest; set by the first "ask later", unset by the admission. */
  queryDeadlineMs: number | undefined;
  /** How often it has asked again because a load failed. */
  failedLoadRetries = 0;
  /** A plan that is out contains it: its pages stay as they are until `apply`. */
  inFlight: boolean = false;
  /** A runner may keep state for it. */
  knownToRunner: boolean = false;
  #admittedOnce: boolean = false;
  #cachedTokens = 0;
  #computedTokens = 0;
  /** Of these, the ones that were computed for the first time and had to be: see `#due`. */
  #firstTimeTokens = 0;
  #preemptions = 0;
  #externalTokens = 0;
  #failedLoads = 0;
  /** Prompt tokens that the first plan has to compute and that no step has computed yet. Ascending and disjoint. */
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

  /** `promised`: what is to be loaded, ascending and disjoint; not all of it spares a row. */
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

  preempted(): void {
    this.status = 'waiting';
    this.isQueryingConnector = false;
    this.#preemptions++;
  }

  /** Counts the tokens of a step, all of them, and those that no earlier step has computed and the first plan had to. */
  computed(spans: readonly Span[]): void {
    for (let i = 0; i < spans.length; i++) {
      const { start, end } = spans[i]!;
      this.#computedTokens += end - start;
      if (this.#toCompute.length > 0) this.#countFirstTime(start, end);
      if (end <= this.#outputReached) continue;
      this.#firstTimeTokens += end - Math.max(start, this.#outputReached);
      this.#outputReached = end;
    }
  }

  #countFirstTime(start: number, end: number): void {
    const left: Span[] = [];
    for (const toCompute of this.#toCompute) {
      const from = Math.max(start, toCompute.start);
      const to = Math.min(end, toCompute.end);
      if (from >= to) {
        left.push(toCompute);
        continue;
      }
      this.#firstTimeTokens += to - from;
      if (toCompute.start < from) left.push(spanOf(toCompute.start, from));
      if (to < toCompute.end) left.push(spanOf(to, toCompute.end));
    }
    this.#toCompute = left;
  }

  stats(): RequestStats {
    const stats = {
      promptTokens: this.sample.promptLength,
      cachedTokens: this.#cachedTokens,
      outputTokens: this.outputTokens,
      computedTokens: this.#computedTokens,
      recomputedTokens: this.#computedTokens - this.#firstTimeTokens,
      preemptions: this.#preemptions,
    };
    // Once per token: most requests have nothing from outside, and pay for nothing more than this one object.
    if (this.#externalTokens === 0 && this.#failedLoads === 0) return stats;
    return {
      ...stats,
      ...(this.#externalTokens === 0 ? {} : { externalTokens: this.#externalTokens }),
      ...(this.#failedLoads === 0 ? {} : { failedLoads: this.#failedLoads }),
    };
  }
}

const spanOf = (start: number, end: number): Span => ({ start: start as TokenCount, end: end as TokenCount });

/** Negative when `a` goes before `b`. A total order: arrivals differ. */
export type RequestOrder = (a: RequestState, b: RequestState) => number;

/** First come, first served. A preempted request came before all that still wait, so it goes first again. */
export const byArrival: RequestOrder = (a, b) => a.arrival - b.arrival;

export const byPriority: RequestOrder = (a, b) => a.request.priority - b.request.priority || a.arrival - b.arrival;
