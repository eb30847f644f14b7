import { besideSteps } from '../connector/connector.ts';
import type { BlockForecast } from '../kv/block-forecast.ts';
import type { KvCache } from '../kv/kv-cache.ts';
import type { SchedulerOptions } from './contract.ts';
import { type ExternalKv, type Match, nothingFound } from './external-kv.ts';
import type { LoadChoice, Overlap } from './load-choice.ts';
import { mayRace, withoutBlocks } from './race.ts';
import type { RequestState } from './request-state.ts';
import type { RunningList } from './running-list.ts';
import { spansOf } from './spans-of.ts';
import type { StepDraft } from './step-draft.ts';
import type { TenantShares, TenantTurns } from './tenant-turns.ts';
import type { WaitingQueue } from './waiting-queue.ts';

export interface AdmissionParts {
  readonly waiting: WaitingQueue;
  readonly running: RunningList;
  /** Admitted requests that wait for a load, in order of admission. */
  readonly waitingForRemoteKv: RequestState[];
  readonly kv: KvCache;
  readonly options: SchedulerOptions;
  readonly turns: TenantTurns;
  readonly shares: TenantShares;
  readonly external: ExternalKv | undefined;
  /** Undefined: all promised blocks are loaded. */
  readonly loadChoice: LoadChoice | undefined;
  /** Scratch memory of the admissions. */
  readonly forecast: BlockForecast;
}

/** So many requests may wait for loads even if fewer may run, as far as their blocks are not needed otherwise. */
const LOADS_MIN = 16;

/**
 * Admits waiting requests in queue order while there are tokens in the budget, running slots and blocks. A request gets
 * blocks for all its tokens at once. So a prompt never runs out of blocks, and requests that wait for loads cannot
 * cause a deadlock. No request is admitted before the first of the queue, because large requests would starve. There are two exceptions:
 * requests whose tenant has its share wait (`TenantShares`), and `nextOf`: short prompts that pass a long prompt in progress
 * (`short-first.ts`).
 *
 * After an admission, the pool has blocks for the next output tokens of all requests (`BlockForecast`). Otherwise a
 * preempted request takes the last blocks, and the next decode that needs one preempts it again: a prefill each time.
 */
export function admitWaiting(
  parts: AdmissionParts,
  draft: StepDraft,
  nextOf: () => RequestState | undefined = () => firstWithSlot(parts),
): void {
  const { waiting, running, waitingForRemoteKv, kv, options, external, forecast, shares } = parts;
  let isForecast = false;
  shares.begin();
  while (running.size < options.maxNumSeqs) {
    // A load needs no scheduled tokens, so it also begins in a step whose budget is used up.
    if (draft.tokensLeft === 0 && external === undefined) return;
    const next = nextOf();
    if (next === undefined) return;
    if (options.wholePrompts === true && next.request.promptTokens.length > draft.tokensLeft) return;
    if (!isForecast) forecastAdmitted(parts);
    isForecast = true;
    const tokensMax = next.outputTokensLeft(options.maxModelLen);
    forecast.addGrowth(next.kv, tokensMax, 1);
    const leftToOthers = shares.blocksLeft(next);
    const hits = findHits(parts, draft, next, forecast.peak() + leftToOthers);
    if (hits === 'askLater' || (hits === 'noRoom' && leftToOthers > 0)) {
      forecast.addGrowth(next.kv, tokensMax, -1);
      if (hits === 'askLater') waiting.defer(next);
      else shares.isFull(next);
      continue;
    }
    if (hits === 'noRoom') return;
    const { found, match, overlap } = hits;
    if (external !== undefined && !hasRoom(parts, draft, next, match)) return;
    waiting.remove(next);
    const loads = kv.admit(next.kv);
    next.admitted(spansOf(kv, loads));
    parts.turns.began(next);
    shares.admitted(next);
    external?.admitted(next, match, loads);
    parts.loadChoice?.admitted(found, loads);
    if (overlap === 'race' && kv.canBegin(next.kv)) next.race = withoutBlocks(found, match);
    else if (next.request.loadOnly === true || (external !== undefined && kv.awaitsLoad(next.kv))) {
      next.status = 'waitingForRemoteKv';
      waitingForRemoteKv.push(next);
      continue;
    }
    next.status = 'running';
    running.insert(next);
    draft.add(next);
  }
}

interface Hits {
  readonly found: Match;
  /** The found blocks that are faster to load than to compute. */
  readonly match: Match;
  readonly overlap: Overlap;
}

/**
 * The blocks that a connector promises for the next request, if the pool has room for the request with its hits. If it has room
 * only without them, the request waits until other requests end: loading costs less than computing.
 */
function findHits(
  parts: AdmissionParts,
  draft: StepDraft,
  next: RequestState,
  headroom: number,
): Hits | 'askLater' | 'noRoom' {
  const { kv, external, loadChoice, waiting, running } = parts;
  if (!kv.canAdmit(next.kv, headroom)) return 'noRoom';
  if (external === undefined) return noHits;
  const found = external.match(next);
  if (found === undefined) return 'askLater';
  const isLoadOnly = next.request.loadOnly === true;
  const isAlone = draft.isEmpty && waiting.size === 1 && running.size === 0 && !isLoadOnly;
  const overlap = isAlone && found.mode !== 'sync' && mayRace(parts) ? 'race' : 'none';
  // A request that only loads has no step that could wait for a load, and nothing to compute instead.
  const match: Match = isLoadOnly
    ? { ...found, mode: besideSteps }
    : (loadChoice?.choose(next, found, overlap) ?? found);
  return kv.canAdmit(next.kv, headroom, match.blocks) ? { found, match, overlap } : 'noRoom';
}

const noHits: Hits = { found: nothingFound, match: nothingFound, overlap: 'none' };

/** The first request whose tenant has less than its share. O(1) unless the share of the first one is used up. */
function firstWithSlot({ waiting, shares }: AdmissionParts): RequestState | undefined {
  const first = waiting.peek();
  return first === undefined || shares.hasSlot(first) ? first : waiting.find(shares.hasSlot);
}

/** The blocks that the requests with blocks will need. O(requests). */
function forecastAdmitted({ running, waitingForRemoteKv, options, forecast }: AdmissionParts): void {
  forecast.clear();
  for (let i = 0; i < running.size; i++) {
    const state = running.at(i);
    forecast.add(state.kv, state.outputTokensLeft(options.maxModelLen));
  }
  for (const state of waitingForRemoteKv) forecast.addGrowth(state.kv, state.outputTokensLeft(options.maxModelLen), 1);
}

/**
 * A request that computes at once needs tokens in the budget. A request that waits for a load needs none, but the number
 * of these requests is limited. Loads prepare the next batch while this batch runs. They must not fill the pool with
 * requests that must wait long for a running slot.
 */
function hasRoom(parts: AdmissionParts, draft: StepDraft, next: RequestState, match: Match): boolean {
  const { kv, waitingForRemoteKv, options } = parts;
  if (draft.tokensLeft > 0 && waitingForRemoteKv.length < options.maxNumSeqs) return true;
  return kv.wouldAwaitLoad(next.kv, match.mode !== 'sync') ? mayLoad(parts, next) : draft.tokensLeft > 0;
}

/**
 * `maxNumSeqs` requests may wait for loads, and more if that takes no block that requests with blocks may need before
 * they end. With few running slots, one batch would else end before the next one is loaded.
 */
function mayLoad({ kv, waitingForRemoteKv, options, forecast }: AdmissionParts, next: RequestState): boolean {
  if (waitingForRemoteKv.length < options.maxNumSeqs) return true;
  return waitingForRemoteKv.length < LOADS_MIN && kv.leaves(next.kv, forecast.toEnd);
}
