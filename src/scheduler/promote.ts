import type { AdmissionParts } from './admit.ts';
import type { Recovery } from './recovery.ts';
import type { RequestState } from './request-state.ts';
import type { StepDraft } from './step-draft.ts';

/**
 * Requests whose loads are decided take seats, before new requests are admitted. Returns how many. `preempt` is told of
 * each running request that loses its seat.
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
    // When no request with a seat can do anything, they may be waiting for this very request's pages.
    if (recovery.isQueryingConnector(state) || kv.awaitsLoad(state.kv) || (isFull && !draft.isEmpty)) {
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
