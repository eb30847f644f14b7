import type { EngineRequest, FinishReason, RequestStats } from '../core/request.ts';
import type { RequestPhase } from '../scheduler/contract.ts';

/** For metrics and traces. The engine calls the methods in its loop: they must be cheap and must not throw. */
export interface EngineObserver {
  /** A step is computed from now on. `cost`: of `stepCost`. */
  stepBegan?(cost: number): void;
  /** A step was applied. */
  stepEnded?(step: StepReport): void;
  /** A completion got tokens; `times` already has the time of these tokens. */
  tokensArrived?(completion: CompletionReport, arrival: TokenArrival): void;
  completionEnded?(completion: EndedCompletion): void;
  /**
   * A call of `generate` or `embed`, in the asynchronous context of the caller. Its completions have the same object. Not
   * every request gets completions: its prompt or grammar may be wrong.
   */
  requestArrived?(arrival: RequestArrival): void;
  /**
   * A completion is in another phase. With such an observer, the engine looks at the phase of each completion after each
   * plan and each step. Every completion begins with `queued` at its arrival, which is not reported.
   */
  phaseBegan?(phase: PhaseReport): void;
}

export interface RequestArrival {
  /** As in `CompletionTimes`. */
  readonly arrivedMs: number;
  /** `GenerateRequest.traceHeaders`. */
  readonly traceHeaders?: TraceHeaders;
}

/** Headers of W3C Trace Context: `traceparent` and `tracestate`. Others are ignored. */
export type TraceHeaders = Readonly<Record<string, string>>;

export interface PhaseReport {
  readonly request: EngineRequest;
  readonly phase: RequestPhase;
  /** The start of the plan, or the end of the step, that changed the phase. */
  readonly startMs: number;
  /** The totals at this time. */
  readonly stats: RequestStats;
}

/** The parts of a step, in milliseconds. */
export interface StepReport {
  readonly planMs: number;
  /** From the start of the kernels to their result. Text is delivered meanwhile. */
  readonly executeMs: number;
  readonly applyMs: number;
  readonly deliverMs: number;
  readonly tokens: number;
}

export interface TokenArrival {
  readonly tokens: number;
  /** Milliseconds since the tokens before; undefined for the first token. */
  readonly sinceMs: number | undefined;
}

/** By the clock of the engine. Undefined: not reached, or the observer came later. */
export interface CompletionTimes {
  /** The call of `generate`. Tokenizing a long text comes after it. */
  readonly arrivedMs: number | undefined;
  /** The first plan with tokens of this completion. */
  readonly scheduledMs: number | undefined;
  readonly firstTokenMs: number | undefined;
  readonly lastTokenMs: number | undefined;
  readonly endedMs: number | undefined;
}

export interface CompletionReport {
  readonly request: EngineRequest;
  /** Undefined: the observer came later. */
  readonly arrival: RequestArrival | undefined;
  readonly times: CompletionTimes;
  /** Undefined: the completion ended before its first update. */
  readonly stats: RequestStats | undefined;
}

export interface EndedCompletion extends CompletionReport {
  /** Its place among the `n` completions of the prompt. */
  readonly index: number;
  readonly finishReason: FinishReason;
}
