import { queueFull } from '../core/errors.ts';
import { isWithinShare } from '../scheduler/tenant-turns.ts';
import type { RequestHandle } from './request-handle.ts';

export interface EngineQueue {
  /** Completions that have not ended. */
  readonly live: ReadonlyMap<unknown, Pick<RequestHandle, 'request'>>;
  /** Completions whose texts are being tokenized. */
  readonly preparing: number;
  readonly maxNumSeqs: number;
  readonly maxWaiting: number;
}

/**
 * The limit applies to accepted requests, not to waiting ones: an idle engine accepts a burst that arrives before its next step. If no
 * other request is there, a request may have more completions than the limit. A tenant leaves a part of the queue to others.
 * @throws queueFull
 */
export function checkRoom(
  { live, preparing, maxNumSeqs, maxWaiting }: EngineQueue,
  completions: number,
  tenant: string | undefined,
): void {
  const accepted = live.size + preparing;
  if (accepted === 0) return;
  const free = maxNumSeqs + maxWaiting - accepted - completions;
  let held = 0;
  if (tenant !== undefined) for (const { request } of live.values()) if (request.tenant === tenant) held++;
  if (free >= 0 && isWithinShare(held, completions, free)) return;
  throw queueFull({ waiting: Math.max(0, accepted - maxNumSeqs), limit: maxWaiting });
}
