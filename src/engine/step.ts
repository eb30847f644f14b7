import type { RequestUpdate } from '../core/request.ts';
import type { SchedulerApi } from '../scheduler/contract.ts';
import type { Executor } from '../worker/executor.ts';

/** Who takes part in a step. */
export interface StepParts {
  /** Knows every request and every block; decides. Synchronous. */
  readonly scheduler: SchedulerApi;
  /** Computes and moves KV, in this process or in others. Never told more than one plan at a time. */
  readonly executor: Executor;
  /** Any monotonic clock: whoever waits for KV from outside waits until a deadline. */
  nowMs(): number;
  /** Hands a request what is new for it. Synchronous, and must not throw. */
  deliver(update: RequestUpdate): void;
}

/**
 * The whole engine is this, again and again. Returns false when there was nothing to do.
 *
 *   requests --> plan --> execute --> apply --> deliver --> text
 *                 ^                     |
 *                 +------ blocks -------+
 *
 * Requests come and go at any time, also while a step is computed: they change what the *next* plan says, and the blocks
 * of one that went stay held until its step is applied. A rejection is the end of the engine, not of a request:
 * whatever can go wrong with a request is part of a result.
 */
export async function step({ scheduler, executor, nowMs, deliver }: StepParts): Promise<boolean> {
  // Which tokens of which requests, with which blocks. Running requests first; new ones are admitted into what room is
  // left; when blocks run out, the one admitted last gives up its own and will be computed again. Blocks that a
  // connector has found elsewhere are loaded: their requests wait beside the others, and hold nobody up.
  const plan = scheduler.plan(nowMs());
  if (plan === undefined) return false;

  // All those tokens in one pass through the model. Their KV is in the pool afterwards, and for each request whose
  // tokens are all computed now, one more token is chosen. The event loop is free meanwhile. A step may have no tokens at
  // all and only move KV.
  const result = await executor.execute(plan);

  // The one place where a result becomes state: blocks become valid and can be shared, tokens are appended, requests
  // end. Blocks that failed to load are not valid, and what depended on them is computed again: that is all of recovery.
  // One update for each request that got a token or ended.
  const updates = scheduler.apply(plan, result, nowMs());

  // Tokens become text, and the text goes to whoever waits for it.
  for (const update of updates) deliver(update);
  return true;
}
