import { type AdmissionParts, admitWaiting } from './admit.ts';
import type { RequestState } from './request-state.ts';
import { costLeft, costOf, type ShortFirst } from './short-first.ts';
import type { StepDraft } from './step-draft.ts';

/** The first running request whose prompt is in progress; undefined: no prompt is in progress. */
export function promptInProgress({ running, kv }: AdmissionParts): RequestState | undefined {
  for (let i = 0; i < running.size; i++) {
    const state = running.at(i);
    if (!state.inFlight && state.kv.tokensLeft() > 1 && !kv.awaitsOthers(state.kv)) return state;
  }
  return undefined;
}

interface Passing {
  readonly long: RequestState;
  readonly shortFirst: ShortFirst;
  /** Whether waiting requests may be admitted in this step. */
  readonly mayAdmit: boolean;
}

/** Schedules the prompts that pass the `long` prompt: running ones, then waiting ones. See `short-first.ts`. */
export function planShortPrompts(
  parts: AdmissionParts,
  draft: StepDraft,
  { long, shortFirst, mayAdmit }: Passing,
): void {
  const { running, waiting } = parts;
  const costMax = shortFirst.costMax(long.kv);
  if (costMax === 0) return;
  for (let i = 0; i < running.size && draft.tokensLeft > 0; i++) {
    const state = running.at(i);
    if (state === long || state.inFlight || costLeft(state.kv) > costMax || !mayPass(parts, state, long)) continue;
    draft.add(state);
    if (state.inFlight) shortFirst.passed(state);
  }
  if (!mayAdmit || waiting.size === 0) return;
  let admitted: RequestState | undefined;
  const next = (): RequestState | undefined => {
    if (admitted?.inFlight === true) shortFirst.passed(admitted);
    admitted = undefined;
    if (draft.tokensLeft === 0) return undefined;
    const first = waiting.peek() ?? long;
    admitted = waiting.find(
      (state) =>
        parts.shares.hasSlot(state) &&
        mayPass(parts, state, long) &&
        mayPass(parts, state, first) &&
        waitingCost(parts, state) <= costMax,
    );
    return admitted;
  };
  admitWaiting(parts, draft, next);
  if (admitted?.inFlight === true) shortFirst.passed(admitted);
}

/** No request passes a request with a higher priority. */
const mayPass = ({ options }: AdmissionParts, state: RequestState, other: RequestState): boolean =>
  options.policy === 'fcfs' || state.request.priority <= other.request.priority;

/** The cost of the tokens that the pool does not have, estimated once while the request waits. */
function waitingCost({ kv }: AdmissionParts, state: RequestState): number {
  state.waitingCost ??= kv
    .preview(state.kv, nothingFound)
    .spans.reduce((sum, { start, end }) => sum + costOf(start, end), 0);
  return state.waitingCost;
}

const nothingFound: readonly never[] = [];
