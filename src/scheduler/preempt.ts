import type { AdmissionParts } from './admit.ts';
import type { RequestState } from './request-state.ts';
import type { StepDraft } from './step-draft.ts';

/**
 * Adds the request's next rows to the step, if need be at the cost of the last running requests, at worst of itself.
 * Returns the victims; they keep no pages, but what they had published can be found again when they come back.
 *
 * A request that the step serves already is never its victim: then this one waits for the next step.
 */
export function serve(
  state: RequestState,
  draft: StepDraft,
  { running, kv, external }: Pick<AdmissionParts, 'running' | 'kv' | 'external'>,
): readonly RequestState[] {
  if (draft.add(state)) return noVictims;
  if (external?.dropUnstartedSaves() === true && draft.add(state)) return noVictims;
  const victims: RequestState[] = [];
  do {
    if (running.last().inFlight) break;
    // Alone, it waits for pages that only transfers hold: coming back later it would have to do it all again.
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
