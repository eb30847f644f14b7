import type { RequestId } from '../core/ids.ts';
import type { FinishReason } from '../core/request.ts';
import type { ScheduledStep } from '../scheduler/contract.ts';
import type { CompletionTimes, EngineObserver } from './observer.ts';
import type { RequestHandle } from './request-handle.ts';
import type { StepParts } from './step.ts';

type Times = { -readonly [Key in keyof CompletionTimes]: CompletionTimes[Key] };

/** Measures steps and completions for the observers. Without observers it measures nothing. */
export class Observers {
  readonly #nowMs: () => number;
  readonly #observers = new Set<EngineObserver>();
  /** Of the completions that have not ended. */
  readonly #times = new Map<RequestId, Times>();
  /** Of these, the completions that no plan has had tokens of. */
  readonly #unscheduled = new Set<RequestId>();

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** Returns the function that ends the observation. */
  add(observer: EngineObserver): () => void {
    this.#observers.add(observer);
    return () => void this.#observers.delete(observer);
  }

  /** The time for `began`; undefined without observers. */
  arrival(): number | undefined {
    return this.#observers.size === 0 ? undefined : this.#nowMs();
  }

  began(id: RequestId, arrivedMs: number | undefined): void {
    if (arrivedMs === undefined) return;
    this.#times.set(id, { ...nothingYet, arrivedMs });
    this.#unscheduled.add(id);
  }

  tokensArrived(handle: RequestHandle, tokens: number): void {
    if (tokens === 0 || this.#observers.size === 0) return;
    const times = this.#times.get(handle.request.id);
    if (times === undefined) return;
    const nowMs = this.#nowMs();
    const sinceMs = times.lastTokenMs === undefined ? undefined : nowMs - times.lastTokenMs;
    times.firstTokenMs ??= nowMs;
    times.lastTokenMs = nowMs;
    const completion = { request: handle.request, times, stats: handle.stats };
    for (const observer of this.#observers) observer.tokensArrived?.(completion, { tokens, sinceMs });
  }

  ended({ request, index, stats }: RequestHandle, finishReason: FinishReason): void {
    const times = this.#times.get(request.id) ?? { ...nothingYet };
    this.#times.delete(request.id);
    this.#unscheduled.delete(request.id);
    if (this.#observers.size === 0) return;
    times.endedMs = this.#nowMs();
    for (const observer of this.#observers) observer.completionEnded?.({ request, index, times, stats, finishReason });
  }

  /** The same parts, measured. The time of a step's delivery counts for the step that is computed beside it. */
  measured({ scheduler, executor, outbox, draftModel, nowMs }: StepParts): StepParts {
    let planMs = 0;
    let executeMs = 0;
    let deliverMs = 0;
    return {
      nowMs,
      draftModel,
      scheduler: {
        orderGuesses: () => scheduler.orderGuesses(),
        takeGuesses: (guesses, ms) => scheduler.takeGuesses(guesses, ms),
        plan: (now) => {
          if (this.#observers.size === 0) return scheduler.plan(now);
          const startMs = this.#nowMs();
          const plan = scheduler.plan(now);
          planMs = this.#nowMs() - startMs;
          if (plan !== undefined) this.#scheduled(plan, startMs);
          return plan;
        },
        apply: (plan, result, now) => {
          if (this.#observers.size === 0) return scheduler.apply(plan, result, now);
          const startMs = this.#nowMs();
          const updates = scheduler.apply(plan, result, now);
          const step = { planMs, executeMs, applyMs: this.#nowMs() - startMs, deliverMs, tokens: plan.tokenCount };
          for (const observer of this.#observers) observer.stepEnded?.(step);
          return updates;
        },
      },
      executor: {
        execute: async (plan) => {
          const startMs = this.#nowMs();
          const result = await executor.execute(plan);
          executeMs = this.#nowMs() - startMs;
          return result;
        },
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
      const times = this.#times.get(requestId);
      if (times !== undefined) times.scheduledMs = nowMs;
    }
  }
}

const nothingYet: CompletionTimes = {
  arrivedMs: undefined,
  scheduledMs: undefined,
  firstTokenMs: undefined,
  lastTokenMs: undefined,
  endedMs: undefined,
};
