import { assertDefined } from '../base/assert.ts';
import type { RequestId } from '../core/ids.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { EngineRequest, FinishReason } from '../core/request.ts';
import { hasMoreLayers, type SequencePlan } from '../core/step.ts';
import type { ExecutedStep, RequestPhase, ScheduledStep } from '../scheduler/contract.ts';
import type { Inspector } from '../scheduler/inspector.ts';
import { stepCost } from '../worker/worker-watch.ts';
import type { CompletionTimes, EngineObserver, RequestArrival, TraceHeaders } from './observer.ts';
import type { RequestHandle } from './request-handle.ts';
import type { StepParts } from './step.ts';

type Times = { -readonly [Key in keyof CompletionTimes]: CompletionTimes[Key] };

/** A completion that has not ended. */
interface Observed {
  readonly request: EngineRequest;
  readonly arrival: RequestArrival;
  readonly times: Times;
  phase: RequestPhase;
  /** The step in flight computes more of it than the next token. */
  isPrefill: boolean;
}

/** Measures steps and completions for the observers. Without observers it measures nothing. */
export class Observers {
  readonly #nowMs: () => number;
  readonly #inspector: Pick<Inspector, 'phaseOf' | 'statsOf' | 'spec'> | undefined;
  readonly #observers = new Set<EngineObserver>();
  /** How many of them observe phases. */
  #phaseObservers = 0;
  readonly #observed = new Map<RequestId, Observed>();
  /** Of these, the completions that no plan has had tokens of. */
  readonly #unscheduled = new Set<RequestId>();

  /** Without an inspector there are no phases. */
  constructor(nowMs: () => number, inspector?: Pick<Inspector, 'phaseOf' | 'statsOf' | 'spec'>) {
    this.#nowMs = nowMs;
    this.#inspector = inspector;
  }

  /** Returns the function that ends the observation. */
  add(observer: EngineObserver): () => void {
    this.#observers.add(observer);
    this.#countPhaseObservers();
    return () => {
      this.#observers.delete(observer);
      this.#countPhaseObservers();
    };
  }

  /** The argument for `began`; undefined without observers. */
  arrived({ traceHeaders }: { readonly traceHeaders?: TraceHeaders }): RequestArrival | undefined {
    if (this.#observers.size === 0) return undefined;
    const arrivedMs = this.#nowMs();
    const arrival = traceHeaders === undefined ? { arrivedMs } : { arrivedMs, traceHeaders };
    for (const observer of this.#observers) observer.requestArrived?.(arrival);
    return arrival;
  }

  began(request: EngineRequest, arrival: RequestArrival | undefined): void {
    if (arrival === undefined) return;
    const times = { ...nothingYet, arrivedMs: arrival.arrivedMs };
    this.#observed.set(request.id, { request, arrival, times, phase: 'queued', isPrefill: false });
    this.#unscheduled.add(request.id);
  }

  tokensArrived(handle: RequestHandle, tokens: number): void {
    if (tokens === 0 || this.#observers.size === 0) return;
    const observed = this.#observed.get(handle.request.id);
    if (observed === undefined) return;
    const { times, arrival } = observed;
    const nowMs = this.#nowMs();
    const sinceMs = times.lastTokenMs === undefined ? undefined : nowMs - times.lastTokenMs;
    times.firstTokenMs ??= nowMs;
    times.lastTokenMs = nowMs;
    const completion = { request: handle.request, arrival, times, stats: handle.stats };
    for (const observer of this.#observers) observer.tokensArrived?.(completion, { tokens, sinceMs });
  }

  ended({ request, index, stats }: RequestHandle, finishReason: FinishReason): void {
    const { arrival, times = { ...nothingYet } } = this.#observed.get(request.id) ?? {};
    this.#observed.delete(request.id);
    this.#unscheduled.delete(request.id);
    if (this.#observers.size === 0) return;
    times.endedMs = this.#nowMs();
    const completion = { request, arrival, index, times, stats, finishReason };
    for (const observer of this.#observers) observer.completionEnded?.(completion);
  }

  /** The same parts, measured. The time of a step's delivery counts for the step that is computed beside it. */
  measured({ scheduler, executor, outbox, draftModel, nowMs }: StepParts): StepParts {
    let planMs = 0;
    let executeMs = 0;
    let deliverMs = 0;
    const measuredExecute = async (plan: ScheduledStep): Promise<ExecutedStep> => {
      for (const observer of this.#observers) observer.stepBegan?.(stepCost(plan));
      const startMs = this.#nowMs();
      const result = await executor.execute(plan);
      executeMs = this.#nowMs() - startMs;
      return result;
    };
    return {
      nowMs,
      draftModel,
      scheduler: {
        orderDrafts: () => scheduler.orderDrafts(),
        takeDrafts: (drafts, ms) => scheduler.takeDrafts(drafts, ms),
        plan: (now) => {
          if (this.#observers.size === 0) return scheduler.plan(now);
          const startMs = this.#nowMs();
          const plan = scheduler.plan(now);
          planMs = this.#nowMs() - startMs;
          if (plan !== undefined) this.#scheduled(plan, startMs);
          this.#notePhases(startMs, plan);
          return plan;
        },
        apply: (plan, result, now) => {
          if (this.#observers.size === 0) return scheduler.apply(plan, result, now);
          const startMs = this.#nowMs();
          const updates = scheduler.apply(plan, result, now);
          const endMs = this.#nowMs();
          const tokens = computedTokens(plan, this.#inspector?.spec);
          const step = { planMs, executeMs, applyMs: endMs - startMs, deliverMs, tokens };
          for (const observer of this.#observers) observer.stepEnded?.(step);
          this.#notePhases(endMs);
          return updates;
        },
      },
      executor: {
        execute: (plan) => (this.#observers.size === 0 ? executor.execute(plan) : measuredExecute(plan)),
      },
      outbox: {
        put: (updates) => outbox.put(updates),
        deliver: () => {
          const startMs = this.#nowMs();
          outbox.deliver();
          deliverMs = this.#nowMs() - startMs;
        },
      },
    };
  }

  #scheduled({ sequences }: ScheduledStep, nowMs: number): void {
    if (this.#unscheduled.size === 0) return;
    for (const { requestId } of sequences) {
      if (!this.#unscheduled.delete(requestId)) continue;
      const observed = this.#observed.get(requestId);
      if (observed !== undefined) observed.times.scheduledMs = nowMs;
    }
  }

  /** `plan`: the step that was planned just now. */
  #notePhases(nowMs: number, plan?: ScheduledStep): void {
    if (this.#phaseObservers === 0 || this.#inspector === undefined) return;
    // For the inspector, scheduled tokens are computed already.
    for (const sequence of plan?.sequences ?? []) {
      const observed = this.#observed.get(sequence.requestId);
      if (observed !== undefined) observed.isPrefill = computesMany(sequence);
    }
    for (const observed of this.#observed.values()) {
      const { request, isPrefill } = observed;
      observed.isPrefill = false;
      const seen = this.#inspector.phaseOf(request.id);
      const phase = seen === 'decode' && isPrefill ? 'prefill' : seen;
      // Undefined: the completion has ended, and its last tokens are not delivered yet.
      if (phase === undefined || phase === observed.phase) continue;
      observed.phase = phase;
      const stats = assertDefined(this.#inspector.statsOf(request.id), `request ${request.id} has a phase`);
      for (const observer of this.#observers) observer.phaseBegan?.({ request, phase, startMs: nowMs, stats });
    }
  }

  #countPhaseObservers(): void {
    this.#phaseObservers = [...this.#observers].filter(({ phaseBegan }) => phaseBegan !== undefined).length;
  }
}

/** Tokens of which more layers follow are counted in the step with the last of them. */
function computedTokens({ sequences, tokenCount }: ScheduledStep, spec: KvCacheSpec | undefined): number {
  const last = sequences.at(-1);
  if (last === undefined || spec === undefined || !hasMoreLayers(last, spec)) return tokenCount;
  return last.spans.reduce((count, { start, end }) => count - (end - start), tokenCount as number);
}

/** Whether a step computes more than one token, besides drafts. */
function computesMany({ spans, drafts }: SequencePlan): boolean {
  let tokens = -(drafts?.tokens.length ?? 0);
  for (const { start, end } of spans) tokens += end - start;
  return tokens > 1;
}

const nothingYet: CompletionTimes = {
  arrivedMs: undefined,
  scheduledMs: undefined,
  firstTokenMs: undefined,
  lastTokenMs: undefined,
  endedMs: undefined,
};
