import { setImmediate as nextTurn } from 'node:timers/promises';
import type { SchedulerInterface } from '../scheduler/scheduler-interface.ts';
import type { Executor } from '../worker/executor.ts';
import type { DraftModel } from './engine-parts.ts';
import type { Outbox } from './outbox.ts';

/** The components of a step. */
export interface StepParts {
  /** Has the state of all requests and blocks, and decides what to compute. Synchronous. */
  readonly scheduler: Pick<SchedulerInterface, 'orderDrafts' | 'takeDrafts' | 'plan' | 'apply'>;
  /** Computes tokens and transfers KV, in this process or in worker processes. Executes one plan at a time. */
  readonly executor: Pick<Executor, 'execute'>;
  /** Delivers new tokens to the requests. Synchronous. */
  readonly outbox: Pick<Outbox, 'put' | 'deliver'>;
  /** Absent: the scheduler orders no drafts. */
  readonly draftModel?: Pick<DraftModel, 'draft'> | undefined;
  /** Any monotonic clock; loads have deadlines. */
  nowMs(): number;
}

/**
 * One step of the engine, which does nothing else. Returns false if there was nothing to do.
 *
 *   requests --> plan --> execute --> apply --> deliver --> text
 *                 ^                     |
 *                 +------ blocks -------+
 *
 * Requests can be added and aborted at any time, also while a step is in flight. They change the *next* plan; the blocks
 * of an aborted request stay pinned until the step in flight is applied. If `step` rejects, the engine breaks: errors of
 * single requests are part of a result.
 */
export async function step(parts: StepParts): Promise<boolean> {
  const { scheduler, executor, outbox, nowMs } = parts;
  // Only with `--speculative-config`: a draft model drafts the next tokens. The step verifies those that are worth their time.
  if (parts.draftModel !== undefined) await draftNext(parts, parts.draftModel);

  // The plan says which tokens of which requests are computed, and in which blocks. Running requests come first, then
  // waiting requests are admitted. If no block is free, the request admitted last is preempted and computed again later.
  // Requests whose KV a connector promised wait for their loads; the other requests continue.
  const plan = scheduler.plan(nowMs());

  // The workers compute all scheduled tokens in one pass through the model and write their KV to the pool. Each request
  // whose tokens are then all computed gets one sampled token. A step can also have only transfers and no tokens.
  const computing = plan === undefined ? undefined : executor.execute(plan);

  // Other threads compute, so this thread serves sockets and timers, and turns the last step's tokens into text.
  if (computing !== undefined) await turnBeside(computing);
  outbox.deliver();
  if (plan === undefined || computing === undefined) return false;
  const result = await computing;

  // Only `apply` changes state after a result: blocks become valid and cached, tokens are appended, requests end.
  // Recovery happens here too: blocks whose load failed are invalid, and later plans compute their tokens again.
  outbox.put(scheduler.apply(plan, result, nowMs()));
  return true;
}

/** Gives the event loop one turn. The caller handles a rejection of `computing`; here it must only not be unhandled. */
async function turnBeside(computing: Promise<unknown>): Promise<void> {
  computing.catch(() => undefined);
  await nextTurn();
}

/** The other model's step comes first, because both need the same cores. */
async function draftNext({ scheduler, nowMs }: StepParts, draftModel: Pick<DraftModel, 'draft'>): Promise<void> {
  const order = scheduler.orderDrafts();
  if (order === undefined) return;
  const startedMs = nowMs();
  const drafts = await draftModel.draft(order);
  scheduler.takeDrafts(drafts, nowMs() - startedMs);
}
