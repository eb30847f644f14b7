import type { KvCache } from '../kv/kv-cache.ts';
import type { SchedulerOptions } from './contract.ts';
import { type ExternalKv, type Match, nothingFound } from './external-kv.ts';
import type { RequestState } from './request-state.ts';
import type { RunningList } from './running-list.ts';
import { spansOf } from './spans-of.ts';
import type { StepDraft } from './step-draft.ts';
import type { WaitingQueue } from './waiting-queue.ts';

export interface AdmissionParts {
  readonly waiting: WaitingQueue;
  readonly running: RunningList;
  /** Admitted requests that wait for a load, in order of admission. */
  readonly waitingForRemoteKv: RequestState[];
  readonly kv: KvCache;
  readonly options: SchedulerOptions;
  readonly external: ExternalKv | undefined;
}

/**
 * Admits waiting requests in queue order while there are tokens in the budget, running slots and blocks. A request gets
 * blocks for all its tokens at once. So a prompt never runs out of blocks, and requests that wait for loads cannot
 * cause a deadlock. No request is admitted before the first of the queue, because large requests would starve.
 */
export function admitWaiting(parts: AdmissionParts, draft: StepDraft): void {
  const { waiting, running, waitingForRemoteKv, kv, options, external } = parts;
  while (running.size < options.maxNumSeqs) {
    // A load needs no scheduled tokens, so it also begins in a step whose budget is used up.
    if (draft.tokensLeft === 0 && external === undefined) return;
    const next = waiting.peek();
    if (next === undefined) return;
    // One available block for each request that has blocks. Otherwise a preempted request takes the last blocks, and
    // the next decode that needs one preempts it again: a prefill each time.
    const headroom = running.size + waitingForRemoteKv.length;
    if (!kv.canAdmit(next.kv, headroom)) {
      external?.hasPinnedUnused();
      if (external?.dropUnstartedSaves() === true) continue;
      return;
    }
    const match = external === undefined ? nothingFound : findExternal(kv, next, headroom, external);
    if (match !== undefined && external !== undefined && !hasRoom(parts, draft, next, match)) return;
    if (match === undefined) {
      waiting.defer(next);
      continue;
    }
    waiting.remove(next);
    const loads = kv.admit(next.kv);
    next.admitted(spansOf(kv, loads));
    external?.admitted(next, match, loads);
    if (external !== undefined && kv.awaitsLoad(next.kv)) {
      next.status = 'waitingForRemoteKv';
      waitingForRemoteKv.push(next);
      continue;
    }
    next.status = 'running';
    running.insert(next);
    draft.add(next);
  }
}

/**
 * A request that computes at once needs tokens in the budget. A request that waits for a load needs none, but at most
 * `maxNumSeqs` requests wait for loads. So loads prepare the next batch while this batch runs, and do not fill the pool
 * with requests that must wait long for a running slot.
 */
function hasRoom(
  { kv, waitingForRemoteKv, options }: AdmissionParts,
  draft: StepDraft,
  next: RequestState,
  match: Match,
): boolean {
  if (draft.tokensLeft > 0 && waitingForRemoteKv.length < options.maxNumSeqs) return true;
  return kv.wouldAwaitLoad(next.kv, match.mode !== 'sync')
    ? waitingForRemoteKv.length < options.maxNumSeqs
    : draft.tokensLeft > 0;
}

/**
 * The blocks that a connector promises and the pool has room for. The last call of `canAdmit` is for the same blocks.
 */
function findExternal(kv: KvCache, next: RequestState, headroom: number, external: ExternalKv): Match | undefined {
  const match = external.match(next);
  if (match === undefined) return undefined;
  if (kv.canAdmit(next.kv, headroom, match.blocks)) return match;
  // In window and state groups, loading needs more blocks at one time than computing.
  kv.canAdmit(next.kv, headroom);
  return nothingFound;
}
