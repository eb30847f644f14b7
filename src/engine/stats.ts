import { assert } from '../base/assert.ts';
import type { RequestStats } from '../core/request.ts';
import type { SchedulerStats } from '../scheduler/contract.ts';
import type { EngineStats } from './contract.ts';

/** Sums over all requests since the start. They never decrease, as counters of Prometheus must not. */
export class EngineTotals {
  #steps = 0;
  #promptTokens = 0;
  #cachedTokens = 0;
  #generatedTokens = 0;
  #computedTokens = 0;
  #recomputedTokens = 0;
  #aborts = 0;
  #externalTokens = 0;
  #draftedTokens = 0;
  #acceptedTokens = 0;

  countStep(): void {
    this.#steps++;
  }

  countAbort(): void {
    this.#aborts++;
  }

  /** Adds the difference of two running totals of a request; `before` is absent the first time. */
  add(before: RequestStats | undefined, after: RequestStats): void {
    if (before !== undefined) assertAscending(before, after);
    this.#promptTokens += after.promptTokens - (before?.promptTokens ?? 0);
    this.#cachedTokens += after.cachedTokens - (before?.cachedTokens ?? 0);
    this.#generatedTokens += after.outputTokens - (before?.outputTokens ?? 0);
    this.#externalTokens += (after.externalTokens ?? 0) - (before?.externalTokens ?? 0);
    this.#draftedTokens += (after.draftedTokens ?? 0) - (before?.draftedTokens ?? 0);
    this.#acceptedTokens += (after.acceptedTokens ?? 0) - (before?.acceptedTokens ?? 0);
    this.#computedTokens += after.computedTokens - (before?.computedTokens ?? 0);
    this.#recomputedTokens += after.recomputedTokens - (before?.recomputedTokens ?? 0);
  }

  report(scheduler: SchedulerStats): EngineStats {
    return {
      running: scheduler.running,
      waiting: scheduler.waiting,
      waitingForRemoteKv: scheduler.waitingForRemoteKv,
      blocks: scheduler.blocks,
      steps: this.#steps,
      promptTokens: this.#promptTokens,
      cachedTokens: this.#cachedTokens,
      generatedTokens: this.#generatedTokens,
      computedTokens: this.#computedTokens,
      recomputedTokens: this.#recomputedTokens,
      preemptions: scheduler.preemptions,
      aborts: this.#aborts,
      externalTokens: this.#externalTokens,
      draftedTokens: this.#draftedTokens,
      acceptedTokens: this.#acceptedTokens,
      transfers: { ...scheduler.transfers },
    };
  }
}

const ascending = [
  'promptTokens',
  'cachedTokens',
  'outputTokens',
  'computedTokens',
  'recomputedTokens',
  'preemptions',
] as const;

function assertAscending(before: RequestStats, after: RequestStats): void {
  for (const name of ascending) {
    if (after[name] >= before[name]) continue;
    // Called for each token, so the message is made only for a failure.
    assert(false, `${name} of a request fell from ${before[name]} to ${after[name]}`);
  }
}

/**
 * Prompt tokens that were not computed for this request: OpenAI's cached tokens. A token that a connector promised does
 * not count if its load failed and the token was computed.
 *
 * `recomputedTokens` also counts tokens computed again after a preemption. If a request had both, the result may be too
 * small.
 */
export function reusedTokens({
  cachedTokens,
  externalTokens = 0,
  recomputedTokens,
  failedLoads = 0,
}: RequestStats): number {
  return failedLoads === 0 ? cachedTokens : cachedTokens - Math.min(recomputedTokens, externalTokens);
}
