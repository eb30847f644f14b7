import { assert } from '../base/assert.ts';
import type { KvRequest } from '../kv/kv-request.ts';
import type { RequestState } from './request-state.ts';

/**
 * Whether short prompts go ahead of a long prompt in progress. Without this, a prompt of 50 tokens waits until a prompt of 4,096
 * tokens is computed.
 *
 * A prompt may pass another prompt if it costs at most a quarter of the rest of the other. The long prompt does not starve:
 * while the short prompts are ahead by more than a quarter of its rest, the long prompt comes first. So the
 * prompts that pass it cost at most 1.25 times as much as itself, and one step more.
 *
 *   step         1     2     3     4     5     6     7     8
 *   long       #####       ##### #####       ##### ##### #####
 *   short             ==== ==                ====                   arrive before steps 2 and 5
 *
 * A chunk of the long prompt may take seconds. So the prompts that pass have a step for themselves, and get their first
 * token without such a chunk. The next step has the long prompt again. While streams run, chunks are small, and they share
 * the step.
 *
 * Costs are relative, because only their ratios matter: 1 for each token, and a part for its context.
 */
export class ShortFirst {
  /** The cost of the short prompts that went ahead, without what the long prompt has computed since. */
  #aheadBy = 0;
  /** Whether a prompt passes in the step that is planned now. */
  #isPassing: boolean = false;
  /** Whether the last step had only prompts that passed. */
  #wasAlone: boolean = false;

  /** The largest cost of a prompt that may pass the long prompt in this step; 0: none may pass it. */
  costMax(long: KvRequest): number {
    const limit = costLeft(long) / PASSED_PER_PASSING;
    return this.#aheadBy > limit ? 0 : limit;
  }

  /** A prompt that passed the long prompt is in the step. */
  passed(state: RequestState): void {
    this.#aheadBy += costScheduled(state.kv);
    this.#isPassing = true;
  }

  /** Whether the prompts that pass have the step for themselves. */
  isAlone({ hasSmallChunks, isEmpty }: { readonly hasSmallChunks: boolean; readonly isEmpty: boolean }): boolean {
    return this.#isPassing && !isEmpty && !this.#wasAlone && !hasSmallChunks;
  }

  /**
   * The step is planned, and has this share of the layers of the long prompt's scheduled tokens. Undefined: no prompt is in
   * progress.
   */
  continued(long: RequestState | undefined, layerShare: number): void {
    if (long === undefined) this.#aheadBy = 0;
    else if (long.inFlight) this.#aheadBy = Math.max(this.#aheadBy - layerShare * costScheduled(long.kv), 0);
    this.#wasAlone = this.#isPassing && long?.inFlight === false;
    this.#isPassing = false;
    assert(Number.isFinite(this.#aheadBy), 'the cost of passing prompts is finite');
  }
}

/** The cost of the tokens that the request must still compute. */
export function costLeft(request: KvRequest): number {
  let cost = 0;
  for (let i = request.nextSpan; i < request.spans.count; i++)
    cost += costOf(Math.max(request.spans.start(i), request.nextToken), request.spans.end(i));
  return cost;
}

function costScheduled({ scheduled }: KvRequest): number {
  let cost = 0;
  for (const { start, end } of scheduled.all) cost += costOf(start, end);
  return cost;
}

/** The cost of tokens [start, end): each attends to the tokens before it. */
export const costOf = (start: number, end: number): number =>
  (end - start) * (1 + (start + end) / 2 / CONTEXT_PER_TOKEN_COST);

/** Attention to this many tokens costs as much as the rest of a token's computation, on a typical machine (`pace.ts`). */
const CONTEXT_PER_TOKEN_COST = 1500;
/** A prompt passes another one whose rest costs at least this many times as much. */
const PASSED_PER_PASSING = 4;
