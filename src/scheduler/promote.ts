import type { AdmissionParts } from './admit.ts';
import type { Recovery } from './recovery.ts';
import type { RequestState } from './request-state.ts';
import type { StepDraft } from './step-draft.ts';

/**
 * Gives running slots to requests whose loads are decided, before new requests are admitted. Returns how many. Calls
 * `preempt` for each running request that loses its slot.
 */
export function promoteLoaded(
  { waitingForRemoteKv, running, kv, options }: AdmissionParts,
  draft: StepDraft,
  recovery: Recovery,
  preempt: (victim: RequestState) => void,
): number {
  let promoted = 0;
  let kept = 0;
  for (let i = 0; i < waitingForRemoteKv.length; i++) {
    const state = waitingForRemoteKv[i]!;
    const isFull = running.size >= options.maxNumSeqs;
    // If no running request can be scheduled, they may all wait for blocks of this request.
    const isWaiting = recovery.isQueryingConnector(state) || kv.awaitsLoad(state.kv);
    if (isWaiting || state.request.loadOnly === true || (isFull && !draft.isEmpty)) {
      waitingForRemoteKv[kept++] = state;
      continue;
    }
    if (isFull) preempt(running.popLast());
    state.status = 'running';
    running.insert(state);
    promoted++;
    if (draft.tokensLeft > 0) draft.add(state);
  }
  waitingForRemoteKv.length = kept;
  return promoted;
}
