import type { AdmissionParts } from './admit.ts';
import type { RequestState } from './request-state.ts';
import type { StepDraft } from './step-draft.ts';

/**
 * Adds the request's next tokens to the step. If the pool has no block, preempts running requests from the last one on,
 * and finally the request itself. Returns the victims. They have no blocks, but their cached blocks stay cached.
 *
 * A request that is in the step already is never preempted; then this request waits for the next step.
 */
export function addOrPreempt(
  state: RequestState,
  draft: StepDraft,
  { running, kv, external }: Pick<AdmissionParts, 'running' | 'kv' | 'external'>,
): readonly RequestState[] {
  if (draft.add(state)) return noVictims;
  const victims: RequestState[] = [];
  do {
    if (running.last().inFlight) break;
    // No other request can be preempted, but loads will unpin blocks. Waiting costs less than computing again.
    if (running.last() === state && external?.hasPinnedUnused() === true) break;
    const victim = running.popLast();
    kv.release(victim.kv);
    victim.preempted();
    victims.push(victim);
    if (victim === state) break;
  } while (!draft.add(state));
  return victims;
}

const noVictims: readonly RequestState[] = [];
