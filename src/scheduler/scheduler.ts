import { assert } from '../base/assert.ts';
import { type BlockId, type RequestId, stepId } from '../core/ids.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { EngineRequest, RequestStats, RequestUpdate } from '../core/request.ts';
import type { StepPlan, StepResult } from '../core/step.ts';
import { TokenBuffer } from '../core/tokens.ts';
import type { HashFunction } from '../kv/block-hash.ts';
import { KvCache } from '../kv/kv-cache.ts';
import { admitWaiting } from './admit.ts';
import { appendSamples, commitStep } from './apply-result.ts';
import type { SchedulerApi, SchedulerOptions, SchedulerStats } from './contract.ts';
import { serve } from './preempt.ts';
import { byArrival, byPriority, RequestState } from './request-state.ts';
import { RunningList } from './running-list.ts';
import { StepDraft } from './step-draft.ts';
import { WaitingQueue } from './waiting-queue.ts';

/**
 * Decides what each step computes: decodes first, then the prompts that are under way, then new requests. All in
 * running order, within one token budget, cutting prompts into chunks where the budget ends.
 */
export class Scheduler implements SchedulerApi {
  readonly #options: SchedulerOptions;
  readonly #kv: KvCache;
  readonly #waiting: WaitingQueue;
  readonly #running: RunningList;
  /** Every request that has not ended. */
  readonly #requests = new Map<RequestId, RequestState>();
  #released: RequestId[] = [];
  #out: { readonly plan: StepPlan; readonly states: readonly RequestState[] } | undefined;
  /** Pages that were reported invalid while the plan was out. */
  #invalid: BlockId[] = [];
  #steps = 0;
  #arrivals = 0;
  #preemptions = 0;

  /** `hash`: sha256; passed in because this room imports nothing from outside. */
  constructor(spec: KvCacheSpec, options: SchedulerOptions, hash: HashFunction) {
    assert(options.maxNumBatchedTokens > 0 && options.maxNumSeqs > 0, 'a scheduler without rows or seats');
    this.#options = options;
    this.#kv = new KvCache(spec, { enablePrefixCaching: options.enablePrefixCaching, hash });
    const order = options.policy === 'priority' ? byPriority : byArrival;
    this.#waiting = new WaitingQueue(order);
    this.#running = new RunningList(options.policy === 'priority' ? order : undefined);
  }

  add(request: EngineRequest): void {
    assert(!this.#requests.has(request.id), `request ${request.id} is known already`);
    assert(request.promptTokens.length > 0, `request ${request.id} has no tokens`);
    const tokens = new TokenBuffer(request.promptTokens);
    const kv = this.#kv.open(tokens, request.cacheSalt);
    const state = new RequestState(request, tokens, kv, this.#arrivals++);
    this.#requests.set(request.id, state);
    this.#waiting.push(state);
  }

  abort(id: RequestId): RequestStats | undefined {
    const state = this.#requests.get(id);
    if (state === undefined) return undefined;
    if (state.status === 'waiting') this.#waiting.remove(state);
    state.status = 'ended';
    this.#forget(state);
    this.#running.dropEnded();
    // In flight, its pages are being written: `apply` gives them back.
    if (!state.inFlight) this.#kv.close(state.kv);
    return state.stats();
  }

  plan(): StepPlan | undefined {
    assert(this.#out === undefined, 'a plan is out: apply its result first');
    const draft = new StepDraft(this.#kv, this.#options);
    let preemptionsBefore: number;
    do {
      preemptionsBefore = this.#preemptions;
      this.#planDecodes(draft);
      this.#planPrompts(draft);
      // A victim may have been the one that all others waited for: they have inherited its work, and can start now.
    } while (draft.isEmpty && this.#preemptions > preemptionsBefore);
    // What a victim has left is needed by those that run.
    if (this.#preemptions === preemptionsBefore)
      admitWaiting(this.#waiting, this.#running, draft, this.#kv, this.#options);
    if (draft.isEmpty) return undefined;
    const plan = draft.finish(stepId(++this.#steps), this.#released);
    this.#released = [];
    this.#out = { plan, states: draft.states };
    return plan;
  }

  apply(plan: StepPlan, result: StepResult): readonly RequestUpdate[] {
    assert(this.#out?.plan === plan, `step ${plan.stepId} is not the plan that is out`);
    assert(result.stepId === plan.stepId, `result of step ${result.stepId}, plan of step ${plan.stepId}`);
    const { states } = this.#out;
    assert(result.sampled.length === states.length, `${result.sampled.length} samples for ${states.length} sequences`);
    const invalid = [...(result.invalidBlocks ?? nothing), ...this.#invalid];
    this.#out = undefined;
    this.#invalid = [];
    const counts = commitStep(plan, states, this.#kv, invalid);
    const failed = this.invalidate(invalid);
    const updates = appendSamples(plan, result, states, counts, this.#kv, this.#options.maxModelLen);
    for (let i = 0; i < updates.length; i++) {
      const { finish, requestId } = updates[i]!;
      if (finish !== undefined) this.#forget(this.#requests.get(requestId)!);
    }
    this.#running.dropEnded();
    return failed.length === 0 ? updates : [...failed, ...updates];
  }

  invalidate(blocks: readonly BlockId[]): readonly RequestUpdate[] {
    if (blocks.length === 0) return nothing;
    if (this.#out !== undefined) {
      this.#invalid.push(...blocks);
      return nothing;
    }
    const users = new Set(this.#kv.invalidate(blocks));
    if (this.#options.kvLoadFailurePolicy !== 'fail') return nothing;
    const updates: RequestUpdate[] = [];
    for (let i = 0; i < this.#running.size; i++) {
      const state = this.#running.at(i);
      if (!users.has(state.kv)) continue;
      state.status = 'ended';
      this.#forget(state);
      this.#kv.close(state.kv);
      updates.push({ requestId: state.request.id, newTokens: [], finish: { reason: 'error' }, stats: state.stats() });
    }
    this.#running.dropEnded();
    return updates;
  }

  hasWork(): boolean {
    return this.#requests.size > 0 || this.#out !== undefined;
  }

  stats(): SchedulerStats {
    const { pool } = this.#kv.parts;
    const total = pool.pageCount - 1;
    return {
      running: this.#running.size,
      waiting: this.#waiting.size,
      blocks: {
        total,
        free: pool.available - pool.cached,
        cached: pool.cached,
        referenced: total - pool.available,
      },
      preemptions: this.#preemptions,
    };
  }

  checkInvariants(): void {
    this.#kv.checkInvariants(this.#out !== undefined);
    this.#waiting.checkInvariants();
    this.#running.checkInvariants();
    const known = this.#waiting.size + this.#running.size;
    assert(known === this.#requests.size, `${known} requests wait or run, ${this.#requests.size} are known`);
  }

  #planDecodes(draft: StepDraft): void {
    // The list shrinks from its end while this loop preempts.
    for (let i = 0; i < this.#running.size && draft.rowsLeft > 0; i++) {
      const state = this.#running.at(i);
      if (state.kv.isLastRow()) this.#serve(state, draft);
    }
  }

  #planPrompts(draft: StepDraft): void {
    for (let i = 0; i < this.#running.size && draft.rowsLeft > 0; i++) {
      const state = this.#running.at(i);
      if (!state.inFlight) this.#serve(state, draft);
    }
  }

  #serve(state: RequestState, draft: StepDraft): void {
    const victims = serve(state, draft, this.#running, this.#kv);
    for (let i = 0; i < victims.length; i++) this.#requeue(victims[i]!);
  }

  #requeue(victim: RequestState): void {
    this.#preemptions++;
    this.#release(victim);
    this.#waiting.push(victim);
  }

  #forget(state: RequestState): void {
    this.#release(state);
    this.#requests.delete(state.request.id);
  }

  #release(state: RequestState): void {
    if (state.knownToRunner) this.#released.push(state.request.id);
    state.knownToRunner = false;
  }
}

const nothing: readonly never[] = [];
