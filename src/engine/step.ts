import { setImmediate as nextTurn } from 'node:timers/promises';
import type { SchedulerInterface } from '../scheduler/scheduler-interface.ts';
import type { Executor } from '../worker/executor.ts';
import type { Outbox } from './outbox.ts';

/** Who takes part in a step. */
export interface StepParts {
  /** Knows every request and every block; decides. Synchronous. */
  readonly scheduler: SchedulerInterface;
  /** Computes and moves KV, in this process or in others. Never told more than one plan at a time. */
  readonly executor: Executor;
  /** Hands requests what is new for them. Synchronous. */
  readonly outbox: Outbox;
  /** Any monotonic clock: whoever waits for KV from outside waits until a deadline. */
  nowMs(): number;
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
export async function step({ scheduler, executor, outbox, nowMs }: StepParts): Promise<boolean> {
  // Which tokens of which requests, with which blocks. Running requests first; new ones are admitted into what room is
  // left; when blocks run out, the one admitted last gives up its own and will be computed again. Blocks that a
  // connector has found elsewhere are loaded: their requests wait beside the others, and hold nobody up.
  const plan = scheduler.plan(nowMs());

  // All those tokens in one pass through the model. Their KV is in the pool afterwards, and for each request whose
  // tokens are all computed now, one more token is chosen. A step may have no tokens at all and only move KV.
  const computing = plan === undefined ? undefined : executor.execute(plan);

  // ggml's threads compute, so this one is free: sockets and timers get their turn, and what the last step brought
  // becomes text and goes to whoever waits for it.
  if (computing !== undefined) await turnBeside(computing);
  outbox.deliver();
  if (plan === undefined || computing === undefined) return false;
  const result = await computing;

  // The one place where a result becomes state: blocks become valid and can be shared, tokens are appended, requests
  // end. Blocks that failed to load are not valid, and what depended on them is computed again: that is all of recovery.
  outbox.put(scheduler.apply(plan, result, nowMs()));
  return true;
}

/** Lets the event loop go round once. If `computing` rejects meanwhile, that waits until it is asked for. */
async function turnBeside(computing: Promise<unknown>): Promise<void> {
  computing.catch(() => undefined);
  await nextTurn();
}
