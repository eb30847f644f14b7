import type { KvCache } from '../kv/kv-cache.ts';
import type { SchedulerOptions } from './contract.ts';
import type { RunningList } from './running-list.ts';
import type { StepDraft } from './step-draft.ts';
import type { WaitingQueue } from './waiting-queue.ts';

/**
 * Admits waiting requests in queue order while rows, seats and pages last. A request takes the pages for all its tokens
 * at once, so a prompt never runs out of pages half way. The head of the queue is never passed by: big requests would
 * starve.
 */
export function admitWaiting(
  waiting: WaitingQueue,
  running: RunningList,
  draft: StepDraft,
  kv: KvCache,
  options: SchedulerOptions,
): void {
  while (draft.rowsLeft > 0 && running.size < options.maxNumSeqs) {
    const next = waiting.peek();
    if (next === undefined) return;
    // A page for each that runs already: without it, a request that has just been preempted would come back, take the last
    // pages, and be preempted again by the next decode that needs one, a prefill each time.
    if (!kv.canAdmit(next.kv, running.size)) return;
    waiting.remove(next);
    kv.admit(next.kv);
    next.admitted();
    running.insert(next);
    draft.add(next);
  }
}
