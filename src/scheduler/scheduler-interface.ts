import type { BlockId, RequestId } from '../core/ids.ts';
import type { EngineRequest, RequestUpdate } from '../core/request.ts';
import type { StepPlan } from '../core/step.ts';
import type { AbortedRequest, ExecutedStep, ScheduledStep, SchedulerStats } from './contract.ts';
import type { DraftOrder } from './speculation/speculator.ts';

/** How much `checkInvariants` checks. Default `all`. */
export type InvariantDepth = 'counts' | 'all';

/**
 * Decides what each step computes. The engine, the simulator and the benchmarks use a scheduler only through this
 * interface (after vLLM's `SchedulerInterface`). Synchronous and deterministic: no I/O, no clock, no randomness; time
 * is an argument.
 *
 *   add, abort -- at any time -->  [ plan --> (the step is executed) --> apply ]  again and again
 *
 * At most one step is in flight: `plan`, then `apply` with its result, then the next `plan`. All other methods may be
 * called at any time between these calls, also while a step is in flight. No method throws because of a request, a
 * store or a worker: such errors are part of results and updates. An exception is a bug, and the scheduler must not be
 * used after it.
 */
export interface SchedulerInterface {
  /**
   * Queues a request; once per request, with a new id. Does not change the step in flight. The caller has checked that
   * the request fits `maxModelLen` and the pool.
   */
  add(request: EngineRequest): void;

  /**
   * Ends a request in any state: a client has disconnected, or the engine has found a stop string. If the step in
   * flight has tokens of the request, its blocks stay allocated until `apply`. Returns the request's final statistics;
   * undefined if the id is unknown or has ended, which is not an error.
   */
  abort(id: RequestId): AbortedRequest | undefined;

  /**
   * With a draft model, called before `plan` when no step is in flight: what the model should draft, and how many tokens. Then
   * `takeDrafts` gets the drafts and how long they took, before `plan`. Undefined: nothing.
   */
  orderDrafts(): DraftOrder | undefined;
  takeDrafts(drafts: readonly Int32Array[], ms: number): void;

  /**
   * Called once per step, when no step is in flight. Decides which tokens of which requests are computed, allocates
   * their blocks, and admits, preempts and resumes requests. The plan may have no sequences; then it has only orders
   * for transfers.
   *
   * The plan is valid until `apply`: the next plan is written into the same arrays.
   *
   * Returns undefined if there is nothing to do before `nextWakeMs`, `notifyTransfers` or another `add`.
   *
   * `nowMs`: any monotonic clock. A connector needs it for deadlines, and a target latency for the duration of the step
   * from `plan` to `apply`.
   */
  plan(nowMs?: number): ScheduledStep | undefined;

  /**
   * Called once per plan, when its step has been executed. Only this method turns a result into state: computed blocks
   * become valid and are cached, tokens are appended, requests end. If the load of a block failed, or the result
   * reports the block as invalid, the tokens that depend on it are computed again.
   *
   * Returns one update for each request that got a token or ended, in batch order. Requests that end because of invalid
   * KV come first. The updates are valid until the next `apply`, which writes the same objects.
   */
  apply(plan: StepPlan, result: ExecutedStep, nowMs?: number): readonly RequestUpdate[];

  /**
   * Transfers have ended, or a connector knows more: the next `plan` asks for reports. Called often; O(1). `nowMs`: the
   * clock of `plan`; loads that end while a step computes are then measured until now and not until its end.
   */
  notifyTransfers(nowMs?: number): void;

  /**
   * Called after `plan` has returned undefined: the latest time of the next `plan`, on the clock of `nowMs`. Undefined:
   * there is nothing to do before `add` or `notifyTransfers`.
   */
  nextWakeMs(): number | undefined;

  /**
   * These blocks are invalid: a worker died, or a block is corrupt. Must be called before the next `plan`. Requests
   * that have one of the blocks compute the KV again, or end with `error` (`kvLoadFailurePolicy`). Returns the updates
   * of those that end. While a step is in flight, the blocks are added to its invalid blocks, and `apply` returns the
   * updates.
   */
  invalidate(blocks: readonly BlockId[]): readonly RequestUpdate[];

  /**
   * Removes the blocks that no request and no transfer uses from the prefix cache. Returns how many blocks stay cached. Connectors
   * keep their blocks.
   */
  resetPrefixCache(): number;

  /** Whether a request has not ended, a step is in flight, or workers need orders for transfers. */
  hasWork(): boolean;

  /** A snapshot. O(number of the connector's counters). */
  stats(): SchedulerStats;

  /**
   * Throws an assertion error if an invariant (I4, I5, I7) is violated. Changes nothing. `counts` compares totals in
   * O(requests): the engine calls it when it is idle. `all` recounts every block in O(blocks): for tests.
   */
  checkInvariants(depth?: InvariantDepth): void;
}
