import type { TransferId } from '../connector/connector.ts';
import type { BlockId, RequestId } from '../core/ids.ts';
import type { EngineRequest, RequestUpdate } from '../core/request.ts';
import type { StepPlan } from '../core/step.ts';
import type { AbortedRequest, ExecutedStep, ScheduledStep, SchedulerStats } from './contract.ts';

/** How much `checkInvariants` looks at. Default `all`. */
export type InvariantDepth = 'counts' | 'all';

/**
 * Decides what each step computes: what the engine, the simulator and the benchmarks know of a scheduler (after vLLM's
 * `SchedulerInterface`). Synchronous and deterministic: no I/O, no clock, no randomness; time is an argument.
 *
 *   add, abort -- at any time -->  [ plan --> (the step is executed) --> apply ]  again and again
 *
 * At most one plan is out: `plan`, then `apply` with its result, then the next `plan`. All other methods may be called at
 * any time between calls, also while a plan is out. No method fails because of a request, a store or a worker: such faults
 * are part of results and updates. An exception is a bug, and the scheduler must not be used after it.
 */
export interface SchedulerInterface {
  /**
   * Queues a request; once per request, with a new id. Changes nothing of the plan that is out. The caller has checked
   * that the request fits `maxModelLen` and the pool.
   */
  add(request: EngineRequest): void;

  /**
   * Ends a request in whatever state it is: a client has gone away, or the engine has found a stop string. If a plan that
   * contains the request is out, its blocks stay held until `apply`. Returns the request's final statistics; undefined for
   * an id that is unknown or has ended, which is no error.
   */
  abort(id: RequestId): AbortedRequest | undefined;

  /**
   * Once per step, when no plan is out. Decides which tokens of which requests are computed, allocates their blocks, and
   * admits, preempts and resumes requests for that. The plan may have no sequences: it then only moves KV.
   *
   * Returns undefined when there is nothing to do before `nextWakeMs`, `ringTransfers` or another `add`.
   *
   * `nowMs`: any monotonic clock. It is needed with a connector, because each wait for one has a deadline, and with a
   * target latency, because the time from `plan` to `apply` is the duration of the step.
   */
  plan(nowMs?: number): ScheduledStep | undefined;

  /**
   * Once per plan, when its step has been executed. The one place where a result becomes state: computed blocks become
   * valid and shareable, tokens are appended, requests end. Blocks that failed to load, or that the result reports as
   * invalid, are not valid, and what depended on them is computed again.
   *
   * Returns one update for each request that got a token or ended, in batch order; ends by lost KV come first.
   */
  apply(plan: StepPlan, result: ExecutedStep, nowMs?: number): readonly RequestUpdate[];

  /** Transfers have ended, or a connector knows more: the next `plan` asks for it. Called often, and cheap. */
  notifyTransfers(): void;

  /** Whether a report about this transfer is still awaited. Asked by the executor that aggregates reports of workers. */
  isOpenTransfer(id: TransferId): boolean;

  /**
   * Asked after `plan` has returned undefined: when to call `plan` again at the latest, on the clock of `nowMs`. Undefined:
   * only `add` or `ringTransfers` can give it something to do.
   */
  nextWakeMs(): number | undefined;

  /**
   * The content of these blocks is lost or wrong: a worker died, or a block was found corrupt. Must be called before the
   * next `plan`. Requests that have one of the blocks compute again what is missing, or end with `error`
   * (`kvLoadFailurePolicy`): these are the updates. While a plan is out, the blocks are added to its invalid blocks, and
   * the updates come from `apply`.
   */
  invalidate(blocks: readonly BlockId[]): readonly RequestUpdate[];

  /** Whether a request has not ended, a plan is out, or workers must be told something about transfers. */
  hasWork(): boolean;

  /** A snapshot. O(1), but for the names of the connector's counters. */
  stats(): SchedulerStats;

  /**
   * Throws an assertion error when an invariant (I4, I5, I7) does not hold. Changes nothing. `counts` compares totals in
   * O(requests): the engine asks for it whenever it idles. `all` recounts every block in O(blocks): for tests.
   */
  checkInvariants(depth?: InvariantDepth): void;
}
