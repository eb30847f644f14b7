import type { KvCache } from '../kv/kv-cache.ts';
import type { RequestState } from './request-state.ts';
import type { RunningList } from './running-list.ts';

/**
 * Makes room for the next token of `state`, at the cost of the last running requests, at worst of itself. Returns the
 * victims; they keep no pages, but what they had published can be found again when they come back.
 *
 * Requests are served in running order, so a victim has never been served in the step that is being planned.
 */
export function makeRoom(state: RequestState, running: RunningList, kv: KvCache): readonly RequestState[] {
  if (kv.canGrow(state.kv)) return nobody;
  const victims: RequestState[] = [];
  while (!kv.canGrow(state.kv)) {
    const victim = running.popLast();
    kv.release(victim.kv);
    victim.preempted();
    victims.push(victim);
    if (victim === state) break;
  }
  return victims;
}

const nobody: readonly RequestState[] = [];
