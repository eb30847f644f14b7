import type { BlockPlace } from '../core/block-place.ts';
import type { Span } from '../core/step.ts';
import type { KvCache } from '../kv/kv-cache.ts';
import type { SchedulerOptions } from './contract.ts';
import { type ExternalKv, type Match, nothingFound } from './external-kv.ts';
import type { RequestState } from './request-state.ts';
import type { RunningList } from './running-list.ts';
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
 * Admits waiting requests in queue order while rows, seats and pages last. A request takes the pages for all its tokens
 * at once, so a prompt never runs out of pages half way, and those that wait for loads cannot lock each other out. The
 * head of the queue is never passed by: big requests would starve.
 */
export function admitWaiting(parts: AdmissionParts, draft: StepDraft): void {
  const { waiting, running, waitingForRemoteKv, kv, options, external } = parts;
  while (running.size < options.maxNumSeqs) {
    // Loading costs no rows: it is begun beside a step that is full.
    if (draft.tokensLeft === 0 && external === undefined) return;
    const next = waiting.peek();
    if (next === undefined) return;
    // A page for each that has some already: without it, a request that has just been preempted would come back, take the
    // last pages, and be preempted again by the next decode that needs one, a prefill each time.
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
      next.status = 'loading';
      waitingForRemoteKv.push(next);
      continue;
    }
    next.status = 'running';
    running.insert(next);
    draft.add(next);
  }
}

/**
 * Rows for those that compute at once, a place for those that wait for a load. There are as many places as seats, so that
 * loads fill the next batch while this one runs, and do not fill the pool with requests that nobody will run for long.
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

/** What is to be counted on from outside; the proposal that is drawn last is the one for it. */
function findExternal(kv: KvCache, next: RequestState, headroom: number, external: ExternalKv): Match | undefined {
  const match = external.match(next);
  if (match === undefined) return undefined;
  if (kv.canAdmit(next.kv, headroom, match.blocks)) return match;
  // In window and state groups loads take more pages at once than computing does.
  kv.canAdmit(next.kv, headroom);
  return nothingFound;
}

/** The tokens of these blocks in any group, ascending and disjoint. */
export function spansOf({ parts: { spec } }: KvCache, blocks: readonly BlockPlace[]): Span[] {
  const spans: { start: number; end: number }[] = [];
  const ranges = blocks.map(({ group, index }) => {
    const { blockSize } = spec.groups[group]!;
    return { start: index * blockSize, end: (index + 1) * blockSize };
  });
  for (const range of ranges.sort((a, b) => a.start - b.start)) {
    const last = spans[spans.length - 1];
    if (last !== undefined && range.start <= last.end) last.end = Math.max(last.end, range.end);
    else spans.push(range);
  }
  return spans as Span[];
}
