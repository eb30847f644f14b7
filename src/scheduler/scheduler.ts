import { assert } from '../base/assert.ts';
import type { JsonObject } from '../base/json.ts';
import type { TransferId } from '../connector/connector.ts';
import { kvLoadFailed } from '../core/errors.ts';
import { type BlockId, type RequestId, stepId } from '../core/ids.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { EngineRequest, RequestUpdate } from '../core/request.ts';
import { TokenBuffer } from '../core/tokens.ts';
import type { HashFunction } from '../kv/block-hash.ts';
import { PageSet } from '../kv/invalidate.ts';
import { KvCache } from '../kv/kv-cache.ts';
import type { KvRequest } from '../kv/kv-request.ts';
import { type AdmissionParts, admitWaiting, spansOf } from './admit.ts';
import { appendSamples, commitStep } from './apply-result.ts';
import type {
  AbortedRequest,
  ExecutedStep,
  ScheduledStep,
  SchedulerApi,
  SchedulerOptions,
  SchedulerStats,
} from './contract.ts';
import { type ConnectorPort, ExternalKv, type ExternalKvOptions, type OpenLoadOutcome } from './external-kv.ts';
import { LostKv } from './lost-kv.ts';
import { Pace, type StepLoad } from './pace.ts';
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
  /** Admitted, but waiting for a load; in order of admission. */
  #parked: RequestState[] = [];
  /** Waiting for their connector's answer, outside the queue. */
  #deferred: RequestState[] = [];
  readonly #external: ExternalKv | undefined;
  readonly #lostKv: LostKv | undefined;
  readonly #pace: Pace | undefined;
  #failedLoads = 0;
  #recoveries = 0;
  #lostTokens = 0;
  #out: PlanOut | undefined;
  /** Pages that were reported invalid while the plan was out. */
  #invalid: BlockId[] = [];
  #steps = 0;
  #arrivals = 0;
  #preemptions = 0;

  /**
   * `hash`: sha256; passed in because this room imports nothing from outside. With a `connector`, `plan` and `apply`
   * need the time, and steps carry its metadata.
   */
  constructor(
    spec: KvCacheSpec,
    options: SchedulerOptions,
    hash: HashFunction,
    connector?: ConnectorPort,
    external: ExternalKvOptions = {},
  ) {
    assert(options.maxNumBatchedTokens > 0 && options.maxNumSeqs > 0, 'a scheduler without rows or seats');
    this.#options = options;
    this.#kv = new KvCache(spec, { enablePrefixCaching: options.enablePrefixCaching, hash });
    this.#external = connector === undefined ? undefined : new ExternalKv(this.#kv, connector, external);
    this.#lostKv = this.#external === undefined ? undefined : new LostKv(this.#kv, this.#external);
    const { targetInterTokenLatency: target = 0 } = options;
    this.#pace = target === 0 ? undefined : new Pace(target);
    const order = options.policy === 'priority' ? byPriority : byArrival;
    this.#waiting = new WaitingQueue(order);
    this.#running = new RunningList(options.policy === 'priority' ? order : undefined);
  }

  add(request: EngineRequest): void {
    assert(!this.#requests.has(request.id), `request ${request.id} is known already`);
    assert(request.promptTokens.length > 0, `request ${request.id} has no tokens`);
    const prompt = request.promptTokens;
    const outputMax = Math.min(request.params.maxTokens, this.#options.maxModelLen - prompt.length);
    // Room for what is usual at once: many requests that begin together would otherwise grow together, in one step.
    const tokens = new TokenBuffer(prompt, prompt.length + Math.min(Math.max(outputMax, 1), RESERVED_TOKENS));
    const kv = this.#kv.open(tokens, request.cacheSalt);
    const state = new RequestState(request, tokens, kv, this.#arrivals++);
    this.#requests.set(request.id, state);
    this.#external?.added(state);
    this.#waiting.push(state);
  }

  abort(id: RequestId): AbortedRequest | undefined {
    const state = this.#requests.get(id);
    if (state === undefined) return undefined;
    if (state.isDeferred) this.#deferred = this.#deferred.filter((other) => other !== state);
    else if (state.status === 'waiting') this.#waiting.remove(state);
    else if (state.status === 'loading') this.#parked = this.#parked.filter((other) => other !== state);
    state.status = 'ended';
    this.#forget(state);
    this.#running.dropEnded();
    const kvTransferParams = this.#external?.ended(state);
    // In flight, its pages are being written: `apply` gives them back.
    if (!state.inFlight) this.#close(state);
    return { stats: state.stats(), ...(kvTransferParams === undefined ? {} : { kvTransferParams }) };
  }

  isOpenTransfer(id: TransferId): boolean {
    return this.#external?.ledger.isOpen(id) === true;
  }

  ringTransfers(): void {
    this.#external?.ring();
  }

  nextWakeMs(): number | undefined {
    let next = this.#external?.nextWakeMs();
    for (const { askUntilMs } of [...this.#deferred, ...this.#parked.filter(({ isAsking }) => isAsking)])
      if (askUntilMs !== undefined && (next === undefined || askUntilMs < next)) next = askUntilMs;
    return next;
  }

  plan(nowMs?: number): ScheduledStep | undefined {
    assert(this.#out === undefined, 'a plan is out: apply its result first');
    this.#setTime(nowMs);
    this.#askAgain();
    this.#lostKv?.ask(this.#running, this.#parked);
    const draft = new StepDraft(this.#kv, this.#options, this.#pace);
    let preemptionsBefore: number;
    let promoted: number;
    do {
      preemptionsBefore = this.#preemptions;
      this.#planDecodes(draft);
      draft.beginPrompts();
      this.#planPrompts(draft);
      promoted = this.#promote(draft);
      // A victim may have been the one that all others waited for: they have inherited its work, and can start now.
    } while (draft.isEmpty && (this.#preemptions > preemptionsBefore || promoted > 0));
    // What a victim has left is needed by those that run.
    if (this.#preemptions === preemptionsBefore) admitWaiting(this.#admission(), draft);
    if (draft.isEmpty && this.#external?.needsStep() !== true) return undefined;
    const bare = draft.finish(stepId(++this.#steps), this.#released);
    const plan =
      this.#external === undefined ? bare : { ...bare, connectorMetadata: this.#external.compose(bare.stepId) };
    this.#released = [];
    this.#out = { plan, states: draft.states, load: draft.load, plannedMs: nowMs };
    return plan;
  }

  apply(plan: ScheduledStep, result: ExecutedStep, nowMs?: number): readonly RequestUpdate[] {
    assert(this.#out?.plan === plan, `step ${plan.stepId} is not the plan that is out`);
    assert(result.stepId === plan.stepId, `result of step ${result.stepId}, plan of step ${plan.stepId}`);
    const { states } = this.#out;
    this.#measure(this.#out, result, nowMs);
    assert(result.sampled.length === states.length, `${result.sampled.length} samples for ${states.length} sequences`);
    this.#setTime(nowMs);
    const reported = result.invalidBlocks ?? nothing;
    const invalid = this.#invalid.length === 0 ? reported : [...reported, ...this.#invalid];
    this.#out = undefined;
    this.#invalid = [];
    const outcomes = this.#external?.receive(result.connectorOutput) ?? nothing;
    const missing = this.#missingPages(plan, outcomes);
    for (const { decided, placed } of outcomes) {
      const failed = new Set(decided.failed.map(({ page }) => page));
      for (const block of placed) if (!failed.has(block.page)) this.#kv.loadArrived(block);
    }
    const spoiled = missing.length === 0 ? invalid : [...invalid, ...missing];
    const counts = commitStep(plan, states, this.#kv, spoiled, result.leftOut ?? nothing);
    const failures = [...this.#endLoads(plan, outcomes), ...this.invalidate(invalid)];
    const { maxModelLen } = this.#options;
    const ends = {
      finish: (state: RequestState) => this.#finish(state),
      close: (state: RequestState) => this.#close(state),
    };
    const updates = appendSamples(plan, result, states, counts, this.#kv, maxModelLen, ends);
    for (let i = 0; i < updates.length; i++) {
      const { finish, requestId } = updates[i]!;
      if (finish !== undefined) this.#forget(this.#requests.get(requestId)!);
    }
    this.#running.dropEnded();
    return failures.length === 0 ? updates : [...failures, ...updates];
  }

  invalidate(blocks: readonly BlockId[]): readonly RequestUpdate[] {
    if (blocks.length === 0) return nothing;
    if (this.#out !== undefined) {
      this.#invalid.push(...blocks);
      return nothing;
    }
    this.#external?.dropInvalid(blocks);
    this.#countLost(blocks);
    const users = new Set<KvRequest>();
    // What a transfer has written so far is lost too, and nobody can say what it will write: it is not waited for.
    for (const page of blocks) for (const user of this.#kv.loadFailed(page, true)) users.add(user);
    for (const user of this.#kv.invalidate(blocks)) users.add(user);
    this.#lostKv?.pagesLost(users);
    return this.#failUsers(users);
  }

  hasWork(): boolean {
    return this.#requests.size > 0 || this.#out !== undefined || this.#external?.needsStep() === true;
  }

  stats(): SchedulerStats {
    const { pool } = this.#kv.parts;
    const total = pool.pageCount - 1;
    return {
      running: this.#running.size,
      waiting: this.#waiting.size + this.#deferred.length,
      loading: this.#parked.length,
      blocks: {
        total,
        free: pool.available - pool.cached,
        cached: pool.cached,
        referenced: total - pool.available,
      },
      preemptions: this.#preemptions,
      transfers: {
        open: this.#external?.ledger.openCount ?? 0,
        ignored: this.#external?.ledger.ignoredCount ?? 0,
        failedLoads: this.#failedLoads,
        recoveries: this.#recoveries,
        lostTokens: this.#lostTokens,
        counters: this.#external?.counters ?? {},
      },
    };
  }

  checkInvariants(): void {
    this.#kv.checkInvariants(this.#out !== undefined);
    this.#waiting.checkInvariants();
    this.#running.checkInvariants();
    this.#pace?.checkInvariants();
    if (this.#out === undefined) this.#external?.checkInvariants();
    for (const state of this.#parked)
      assert(state.status === 'loading' && state.kv.admitted, `request ${state.request.id} is parked: ${state.status}`);
    const known = this.#waiting.size + this.#running.size + this.#parked.length + this.#deferred.length;
    assert(known === this.#requests.size, `${known} requests wait or run, ${this.#requests.size} are known`);
  }

  #planDecodes(draft: StepDraft): void {
    // The list shrinks from its end while this loop preempts.
    for (let i = 0; i < this.#running.size && draft.rowsLeft > 0; i++) {
      const state = this.#running.at(i);
      if (this.#kv.isDecode(state.kv)) this.#serve(state, draft);
    }
  }

  #planPrompts(draft: StepDraft): void {
    for (let i = 0; i < this.#running.size && draft.rowsLeft > 0; i++) {
      const state = this.#running.at(i);
      if (!state.inFlight) this.#serve(state, draft);
    }
  }

  #serve(state: RequestState, draft: StepDraft): void {
    const victims = serve(state, draft, this.#running, this.#kv, this.#external);
    for (let i = 0; i < victims.length; i++) this.#requeue(victims[i]!);
  }

  /** Requests whose loads are decided take seats, before new ones are admitted. Returns how many. */
  #promote(draft: StepDraft): number {
    let promoted = 0;
    let kept = 0;
    for (let i = 0; i < this.#parked.length; i++) {
      const state = this.#parked[i]!;
      const isFull = this.#running.size >= this.#options.maxNumSeqs;
      // When nobody who has a seat can do anything, they may be waiting for this very request's pages.
      if (this.#lostKv?.isAsking(state) === true || this.#kv.awaitsLoad(state.kv) || (isFull && !draft.isEmpty)) {
        this.#parked[kept++] = state;
        continue;
      }
      if (isFull) this.#preempt(this.#running.popLast());
      state.status = 'running';
      this.#running.insert(state);
      promoted++;
      if (draft.rowsLeft > 0) draft.add(state);
    }
    this.#parked.length = kept;
    return promoted;
  }

  /** Requests that were told to ask later go back to their places in the queue. */
  #askAgain(): void {
    const external = this.#external;
    if (external === undefined || this.#deferred.length === 0) return;
    const asking = this.#deferred.filter(
      ({ askUntilMs }) => external.isRung || askUntilMs === undefined || askUntilMs <= external.nowMs,
    );
    for (const state of asking) {
      state.isDeferred = false;
      this.#waiting.push(state);
    }
    this.#deferred = this.#deferred.filter(({ isDeferred }) => isDeferred);
  }

  #admission(): AdmissionParts {
    return {
      waiting: this.#waiting,
      running: this.#running,
      parked: this.#parked,
      deferred: this.#deferred,
      kv: this.#kv,
      options: this.#options,
      external: this.#external,
    };
  }

  /** The pace learns what the step cost, unless the step waited for storage or left rows out. */
  #measure({ plan, load, plannedMs }: PlanOut, result: ExecutedStep, nowMs: number | undefined): void {
    if (this.#pace === undefined) return;
    assert(plannedMs !== undefined && nowMs !== undefined, 'with a target latency steps are timed: pass the time');
    const hasWaited = plan.connectorMetadata?.loads.some(({ mode }) => mode === 'sync') === true;
    const isComplete = !hasWaited && (result.leftOut ?? nothing).length === 0;
    this.#pace.observe(load, isComplete ? nowMs - plannedMs : undefined);
  }

  #setTime(nowMs: number | undefined): void {
    if (this.#external === undefined) return;
    assert(nowMs !== undefined, 'with a connector every wait has a deadline: say what time it is');
    this.#external.setTime(nowMs);
  }

  /** Pages that rows of this step may have counted on in vain: loads that failed, or are not there yet. */
  #missingPages(plan: ScheduledStep, outcomes: readonly OpenLoadOutcome[]): BlockId[] {
    if (this.#external === undefined) return [];
    const missing = this.#external.lateIn(plan.connectorMetadata);
    for (const { decided } of outcomes) for (const { page } of decided.failed) missing.push(page);
    return missing;
  }

  /** What failed is computed by its owner; what is late is waited for. */
  #endLoads(plan: ScheduledStep, outcomes: readonly OpenLoadOutcome[]): readonly RequestUpdate[] {
    if (this.#external === undefined) return nothing;
    this.#kv.loadLate(this.#external.lateIn(plan.connectorMetadata));
    if (outcomes.length === 0) return nothing;
    this.#countLost(outcomes.flatMap(({ decided }) => decided.failed.map(({ page }) => page)));
    const users = new Set<KvRequest>();
    for (const { decided, state } of outcomes) {
      if (decided.failed.length === 0) continue;
      this.#failedLoads += decided.failed.length;
      state.loadsFailed(decided.failed.length);
      const places = decided.failed.map(({ group, index }) => ({ group, block: index }));
      const affected = new Set<KvRequest>();
      for (const { page, isPageBusy } of decided.failed)
        for (const user of this.#kv.loadFailed(page, isPageBusy)) affected.add(user);
      this.#lostKv?.loadsFailed(affected, places);
      for (const user of affected) users.add(user);
    }
    return this.#failUsers(users);
  }

  /** These pages are about to be said to be not valid: who has them, and of how many tokens. */
  #countLost(pages: readonly BlockId[]): void {
    if (pages.length === 0) return;
    const bad = new PageSet(this.#kv.parts.spec.pageCount, pages);
    for (const { kv } of this.#requests.values()) {
      const lost = kv.admitted ? this.#kv.blocksOn(kv, bad) : nothing;
      if (lost.length === 0) continue;
      this.#recoveries++;
      for (const { start, end } of spansOf(this.#kv, lost)) this.#lostTokens += end - start;
    }
  }

  /** By the policy `fail`, whoever has lost KV ends. */
  #failUsers(users: ReadonlySet<KvRequest>): readonly RequestUpdate[] {
    if (this.#options.kvLoadFailurePolicy !== 'fail' || users.size === 0) return nothing;
    const updates: RequestUpdate[] = [];
    const finish = { reason: 'error', error: kvLoadFailed() } as const;
    for (const state of [...this.#requests.values()]) {
      if (!users.has(state.kv)) continue;
      this.#forget(state);
      const word = this.#finish(state);
      updates.push({
        requestId: state.request.id,
        newTokens: [],
        finish: { ...finish, ...word },
        stats: state.stats(),
      });
    }
    this.#running.dropEnded();
    this.#parked = this.#parked.filter(({ status }) => status !== 'ended');
    return updates;
  }

  /** A request ends by what came of a step. Returns the connector's word to the client, if it has one. */
  #finish(state: RequestState): { readonly kvTransferParams?: JsonObject } | undefined {
    state.status = 'ended';
    const kvTransferParams = this.#external?.ended(state);
    this.#close(state);
    return kvTransferParams === undefined ? undefined : { kvTransferParams };
  }

  /** A request that has ended gives its pages back. */
  #close(state: RequestState): void {
    this.#kv.close(state.kv);
    this.#external?.released(state);
  }

  #preempt(victim: RequestState): void {
    this.#kv.release(victim.kv);
    victim.preempted();
    this.#requeue(victim);
  }

  #requeue(victim: RequestState): void {
    this.#preemptions++;
    this.#external?.released(victim);
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

/** A plan that is out, and what `apply` needs to know of it. */
interface PlanOut {
  readonly plan: ScheduledStep;
  readonly states: readonly RequestState[];
  readonly load: StepLoad;
  readonly plannedMs: number | undefined;
}

/** Output tokens that a request has room for from the start; more by doubling. */
const RESERVED_TOKENS = 4096;

const nothing: readonly never[] = [];
