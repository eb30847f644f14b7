import { assert } from '../base/assert.ts';
import type { JsonObject } from '../base/json.ts';
import { type BlockId, type RequestId, stepId } from '../core/ids.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { EngineRequest, RequestUpdate } from '../core/request.ts';
import { TokenBuffer } from '../core/tokens.ts';
import { BlockForecast } from '../kv/block-forecast.ts';
import type { HashFunction } from '../kv/block-hash.ts';
import type { CacheEventLog } from '../kv/cache-events.ts';
import { KvCache } from '../kv/kv-cache.ts';
import { type AdmissionParts, admitWaiting } from './admit.ts';
import { appendSamples, commitStep, type StepInFlight } from './apply-result.ts';
import type { AbortedRequest, ExecutedStep, ScheduledStep, SchedulerOptions, SchedulerStats } from './contract.ts';
import { type ConnectorPort, ExternalKv, type ExternalKvOptions } from './external-kv.ts';
import { Inspector } from './inspector.ts';
import { LayeredPrefill, type SliceChoice } from './layered-prefill.ts';
import { LoadChoice } from './load-choice.ts';
import { LoadCost } from './load-cost.ts';
import { endLoaded, hasLoaded } from './load-only.ts';
import { Pace } from './pace.ts';
import { planShortPrompts, promptInProgress } from './plan-short.ts';
import { addOrPreempt } from './preempt.ts';
import { Prefixes } from './prefixes.ts';
import { promoteLoaded } from './promote.ts';
import { continueRaces } from './race.ts';
import { Recovery } from './recovery.ts';
import { byPriority, byTurn, RequestState } from './request-state.ts';
import { RunningList } from './running-list.ts';
import type { InvariantDepth, SchedulerInterface } from './scheduler-interface.ts';
import { ShortFirst } from './short-first.ts';
import type { DraftOrder, Speculator } from './speculation/speculator.ts';
import { StepDraft } from './step-draft.ts';
import type { StepLoad } from './step-load.ts';
import { TenantShares, TenantTurns } from './tenant-turns.ts';
import { WaitingQueue } from './waiting-queue.ts';

/**
 * Decides what each step computes: decodes first, then prompts in progress, then new requests, all in running order and
 * within one token budget. A prompt that exceeds the budget is computed in chunks, and shorter prompts pass it.
 */
export class Scheduler implements SchedulerInterface {
  readonly #options: SchedulerOptions;
  readonly #kv: KvCache;
  readonly #waiting: WaitingQueue;
  readonly #running: RunningList;
  /** Shows the state of the pool and the requests to people. */
  readonly inspector: Inspector;
  /** The cached prefixes of prompts, for people who administer them. */
  readonly prefixes: Prefixes;
  /** Every request that has not ended. */
  readonly #requests = new Map<RequestId, RequestState>();
  #released: RequestId[] = [];
  /** In order of admission. */
  readonly #waitingForRemoteKv: RequestState[] = [];
  /** What `admit.ts`, `promote.ts` and `preempt.ts` use. */
  readonly #parts: AdmissionParts;
  readonly #turns = new TenantTurns();
  readonly #external: ExternalKv | undefined;
  readonly #recovery: Recovery;
  readonly #pace: Pace | undefined;
  /** Undefined: steps are not limited by time, or the runner computes all layers of a token in one step. */
  readonly #layered: LayeredPrefill | undefined;
  readonly #shortFirst = new ShortFirst();
  /** Undefined: all promised blocks are loaded. */
  readonly #loadCost: LoadCost | undefined;
  readonly #draft: StepDraft;
  readonly #speculator: Speculator | undefined;
  #inFlight: TimedStep | undefined;
  /** Written again at each step, see `StepInFlight` and `SchedulerInterface.apply`. */
  readonly #valid: number[] = [];
  readonly #updates: RequestUpdate[] = [];
  #steps = 0;
  #arrivals = 0;
  #preemptions = 0;

  /**
   * `hash`: sha256; a parameter because `src/scheduler` imports nothing from Node. With a `connector` or a `speculator`,
   * `plan` and `apply` need the time; with a connector, steps have its metadata.
   */
  constructor(
    spec: KvCacheSpec,
    options: SchedulerOptions,
    hash: HashFunction,
    { connector, speculator, sliceChoice, ...external }: SchedulerParts = {},
  ) {
    assert(options.maxNumBatchedTokens > 0, 'maxNumBatchedTokens must be positive');
    assert(options.maxNumSeqs > 0, 'maxNumSeqs must be positive');
    this.#options = options;
    const { enablePrefixCaching, pinShare } = options;
    this.#kv = new KvCache(spec, { enablePrefixCaching, pinShare, hash });
    this.#speculator = speculator;
    this.inspector = new Inspector(this.#kv, this.#requests);
    const isAuto = connector !== undefined && (external.loadPolicy ?? connector.loadPolicy) === 'auto';
    const { maxNumBatchedTokens, longPrefillTokenThreshold = Infinity } = options;
    this.#loadCost = isAuto ? new LoadCost(Math.min(maxNumBatchedTokens, longPrefillTokenThreshold)) : undefined;
    this.#external =
      connector === undefined ? undefined : new ExternalKv(this.#kv, connector, external, this.#loadCost);
    this.prefixes = new Prefixes(this.#kv, {
      isSaving: (key) => this.#external?.isSaving(key) === true,
      removed: (blocks) => this.#external?.removed(blocks),
    });
    this.#recovery = new Recovery({
      kv: this.#kv,
      external: this.#external,
      policy: options.kvLoadFailurePolicy ?? 'recompute',
      requests: this.#requests,
      end: (states) => this.#endAll(states),
    });
    const { targetInterTokenLatency: target = 0 } = options;
    this.#pace = target === 0 ? undefined : new Pace(target);
    const { sliceableLayers } = spec;
    if (this.#pace !== undefined && sliceableLayers !== undefined) {
      this.#layered = new LayeredPrefill(sliceableLayers, sliceChoice ?? this.#pace);
    }
    this.#draft = new StepDraft(this.#kv, options, this.#pace, isAuto || speculator !== undefined, this.#layered);
    const order = options.policy === 'priority' ? byPriority : byTurn;
    this.#waiting = new WaitingQueue(order);
    this.#running = new RunningList(options.policy === 'priority' ? order : undefined);
    const admitted = { running: this.#running, waitingForRemoteKv: this.#waitingForRemoteKv, options };
    this.#parts = {
      ...admitted,
      waiting: this.#waiting,
      kv: this.#kv,
      turns: this.#turns,
      shares: new TenantShares(admitted, spec.blockCount - 1),
      external: this.#external,
      loadChoice:
        this.#loadCost === undefined
          ? undefined
          : new LoadChoice(this.#kv, external.loadPrices ?? this.#loadCost, external.probeAfter),
      forecast: new BlockForecast(this.#kv.parts),
    };
  }

  add(request: EngineRequest): void {
    assert(!this.#requests.has(request.id), `request ${request.id} was added before`);
    assert(request.promptTokens.length > 0, `request ${request.id} has no tokens`);
    const prompt = request.promptTokens;
    const outputMax = Math.min(request.params.maxTokens, this.#options.maxModelLen - prompt.length);
    // Room for many output tokens from the start: requests that begin together would otherwise all grow in one step.
    const tokens = new TokenBuffer(prompt, prompt.length + Math.min(Math.max(outputMax, 1), RESERVED_TOKENS));
    const kv = this.#kv.open(tokens, request.cacheSalt, request.adapter);
    const state = new RequestState(request, tokens, kv, this.#arrivals++);
    state.turn = this.#turns.arrived(request.tenant);
    if (state.promptOutput !== undefined) this.#kv.computeFrom(kv, state.promptOutput.computeFrom);
    this.#requests.set(request.id, state);
    this.#external?.added(state);
    this.#waiting.push(state);
    const { size, deferred } = this.#waiting;
    if (this.#running.size + size + deferred.length <= this.#options.maxNumSeqs) this.#external?.arrived(state);
  }

  abort(id: RequestId): AbortedRequest | undefined {
    const state = this.#requests.get(id);
    if (state === undefined) return undefined;
    if (state.status === 'waiting') this.#waiting.remove(state);
    else if (state.status === 'waitingForRemoteKv')
      this.#waitingForRemoteKv.splice(this.#waitingForRemoteKv.indexOf(state), 1);
    state.status = 'ended';
    this.#forget(state);
    this.#running.dropEnded();
    const kvTransferParams = this.#external?.ended(state);
    // The step in flight may still write its blocks: `apply` releases them.
    if (!state.inFlight) this.#close(state);
    return { stats: state.stats(), ...(kvTransferParams === undefined ? {} : { kvTransferParams }) };
  }

  notifyTransfers(nowMs?: number): void {
    this.#external?.notify(nowMs);
  }

  nextWakeMs(): number | undefined {
    let next = this.#external?.nextWakeMs();
    for (const { queryDeadlineMs } of [
      ...this.#waiting.deferred,
      ...this.#waitingForRemoteKv.filter(({ isQueryingConnector }) => isQueryingConnector),
    ])
      if (queryDeadlineMs !== undefined && (next === undefined || queryDeadlineMs < next)) next = queryDeadlineMs;
    return next;
  }

  orderDrafts(): DraftOrder | undefined {
    if (this.#speculator?.orderDrafts === undefined || this.#running.size === 0) return undefined;
    const decodes: RequestState[] = [];
    for (let i = 0; i < this.#running.size; i++) {
      const state = this.#running.at(i);
      // A step with prompts has no drafts.
      if (!this.#kv.isDecode(state.kv)) return undefined;
      decodes.push(state);
    }
    return this.#speculator.orderDrafts(decodes);
  }

  takeDrafts(drafts: readonly Int32Array[], ms: number): void {
    this.#speculator?.takeDrafts?.(drafts, ms);
  }

  plan(nowMs?: number): ScheduledStep | undefined {
    assert(this.#inFlight === undefined, 'a step is in flight: apply its result first');
    this.#setTime(nowMs);
    if (this.#external !== undefined) this.#waiting.requeueDeferred(this.#external);
    this.#recovery.queryAgain(this.#running, this.#waitingForRemoteKv);
    if (this.#loadCost !== undefined) continueRaces(this.#parts);
    const draft = this.#draft;
    draft.begin();
    const preemptionsAtStart = this.#preemptions;
    let preemptionsBefore: number;
    let promoted: number;
    let long: RequestState | undefined;
    let rounds = 0;
    do {
      assert(rounds++ <= 2 * this.#requests.size, 'I8: a plan preempts and admits the same requests again and again');
      preemptionsBefore = this.#preemptions;
      this.#planDecodes(draft);
      draft.beginPrompts();
      long = promptInProgress(this.#parts);
      // Else the next round would preempt the admitted request again.
      const mayAdmit = this.#preemptions === preemptionsAtStart;
      if (long !== undefined && draft.tokensLeft > 0)
        planShortPrompts(this.#parts, draft, { long, shortFirst: this.#shortFirst, mayAdmit });
      if (!this.#shortFirst.isAlone(draft)) this.#planPrompts(draft);
      promoted = promoteLoaded(this.#parts, draft, this.#recovery, (victim) => this.#preempt(victim));
      // All other requests may have waited for a victim. Now another request owns its blocks, so they can start.
    } while (draft.isEmpty && (this.#preemptions > preemptionsBefore || promoted > 0));
    // Running requests need the blocks of a victim.
    if (this.#preemptions === preemptionsBefore && !this.#shortFirst.isAlone(draft)) admitWaiting(this.#parts, draft);
    this.#shortFirst.continued(long, draft.load.layerShare);
    if (this.#speculator !== undefined) draft.addDrafts(this.#speculator);
    // Only a step has updates, so it is also needed for the end of a request that computes nothing.
    if (draft.isEmpty && this.#external?.needsStep() !== true && !hasLoaded(this.#parts)) return undefined;
    const bare = draft.finish(stepId(++this.#steps), this.#released);
    const plan: ScheduledStep =
      this.#external === undefined ? bare : { ...bare, connectorMetadata: this.#external.compose(bare.stepId) };
    if (this.#layered !== undefined)
      for (const { blocks } of plan.connectorMetadata?.loads ?? nothing)
        this.#layered.changed(blocks.map(({ block }) => block));
    this.#released = [];
    this.#inFlight = { plan, states: draft.states, valid: this.#valid, load: draft.load, plannedMs: nowMs };
    return plan;
  }

  apply(plan: ScheduledStep, result: ExecutedStep, nowMs?: number): readonly RequestUpdate[] {
    assert(this.#inFlight?.plan === plan, `step ${plan.stepId} is not the step in flight`);
    assert(result.stepId === plan.stepId, `the result of step ${result.stepId} is not for step ${plan.stepId}`);
    const inFlight = this.#inFlight;
    const { states } = inFlight;
    this.#measure(inFlight, result, nowMs);
    assert(
      result.sampled.length === states.length,
      `the result has ${result.sampled.length} samples for ${states.length} sequences`,
    );
    this.#setTime(nowMs);
    this.#inFlight = undefined;
    const failures = this.#recovery.apply(plan, result, (unavailable) => {
      commitStep(this.#kv, inFlight, unavailable, result);
      this.#layersComputed(inFlight, result, unavailable);
    });
    const { maxModelLen } = this.#options;
    const ends = {
      finish: (state: RequestState) => this.#finish(state),
      close: (state: RequestState) => this.#close(state),
    };
    const updates = this.#updates;
    appendSamples(this.#kv, inFlight, result, { updates, maxModelLen, ends, nowMs, speculator: this.#speculator });
    endLoaded(this.#parts, updates, (state) => this.#finish(state));
    for (let i = 0; i < updates.length; i++) {
      const { finish, requestId } = updates[i]!;
      if (finish !== undefined) this.#forget(this.#requests.get(requestId)!);
    }
    this.#running.dropEnded();
    return failures.length === 0 ? updates : [...failures, ...updates];
  }

  resetPrefixCache(): number {
    return this.#kv.resetPrefixCache(this.#external === undefined);
  }

  /** The changes of the prefix cache from now on. Called once, before the first request. */
  recordCacheEvents(): CacheEventLog {
    return this.#kv.recordEvents();
  }

  invalidate(blocks: readonly BlockId[]): readonly RequestUpdate[] {
    this.#layered?.changed(blocks);
    if (this.#inFlight === undefined) return this.#recovery.invalidate(blocks);
    this.#recovery.reportInvalid(blocks);
    return nothing;
  }

  hasWork(): boolean {
    return this.#requests.size > 0 || this.#inFlight !== undefined || this.#external?.needsStep() === true;
  }

  stats(): SchedulerStats {
    const { pool } = this.#kv.parts;
    const total = pool.blockCount - 1;
    const external = this.#external;
    return {
      running: this.#running.size,
      waiting: this.#waiting.size + this.#waiting.deferred.length,
      waitingForRemoteKv: this.#waitingForRemoteKv.length,
      blocks: {
        total,
        free: pool.available - pool.cached,
        cached: pool.cached,
        referenced: total - pool.available,
      },
      preemptions: this.#preemptions,
      transfers: {
        open: external?.ledger.openCount ?? 0,
        ignored: external?.ledger.ignoredCount ?? 0,
        flushedSaves: external?.ledger.flushedSaves ?? 0,
        ...this.#recovery.stats,
        // A getter, because the engine asks for the other numbers after each step, and there may be hundreds of counters.
        get counters() {
          return external?.counters ?? {};
        },
        get connector() {
          return external?.stats ?? {};
        },
      },
    };
  }

  checkInvariants(depth: InvariantDepth = 'all'): void {
    if (depth === 'all') {
      this.#kv.checkInvariants(this.#inFlight !== undefined);
      this.#waiting.checkInvariants();
      this.#running.checkInvariants();
      this.#pace?.checkInvariants();
      this.#loadCost?.checkInvariants();
      if (this.#inFlight === undefined) this.#external?.checkInvariants();
    }
    if (this.#requests.size === 0 && this.#inFlight === undefined && this.#external?.hasPins !== true)
      this.#kv.checkUnused();
    for (const state of this.#waitingForRemoteKv)
      assert(
        state.status === 'waitingForRemoteKv' && state.kv.admitted,
        `request ${state.request.id} waits for remote KV, but is ${state.status}`,
      );
    const { size, deferred } = this.#waiting;
    const known = size + deferred.length + this.#running.size + this.#waitingForRemoteKv.length;
    assert(known === this.#requests.size, `${known} requests wait or run, but ${this.#requests.size} have not ended`);
  }

  #planDecodes(draft: StepDraft): void {
    // Preemptions in this loop remove requests from the end of the list.
    for (let i = 0; i < this.#running.size && draft.tokensLeft > 0; i++) {
      const state = this.#running.at(i);
      if (this.#kv.isDecode(state.kv)) this.#addOrPreempt(state, draft);
    }
  }

  #planPrompts(draft: StepDraft): void {
    for (let i = 0; i < this.#running.size && draft.tokensLeft > 0; i++) {
      const state = this.#running.at(i);
      if (!state.inFlight) this.#addOrPreempt(state, draft);
    }
  }

  #addOrPreempt(state: RequestState, draft: StepDraft): void {
    const victims = addOrPreempt(state, draft, this.#parts);
    for (let i = 0; i < victims.length; i++) this.#requeue(victims[i]!);
  }

  /** The pace and the cost of loads learn the duration of the step, unless the step waited for a load or left sequences out. */
  #measure({ plan, load, plannedMs }: TimedStep, result: ExecutedStep, nowMs: number | undefined): void {
    if (this.#pace === undefined && this.#loadCost === undefined && this.#speculator === undefined) return;
    assert(plannedMs !== undefined && nowMs !== undefined, 'the durations of steps are measured: pass the time');
    const hasWaited = plan.connectorMetadata?.loads.some(({ mode }) => mode === 'sync') === true;
    const isComplete = !hasWaited && (result.leftOut ?? nothing).length === 0;
    const ms = isComplete ? nowMs - plannedMs : undefined;
    this.#pace?.observe(load, ms);
    const msOfWhole = load.layerShare === 1 ? ms : undefined;
    this.#loadCost?.observeStep(load, msOfWhole);
    this.#speculator?.observe(load, msOfWhole);
  }

  /** A chunk by layers goes on, unless the step left it out or blocks of it are not valid. */
  #layersComputed(
    { plan, states }: StepInFlight,
    { leftOut = nothing }: ExecutedStep,
    unavailable: readonly BlockId[],
  ): void {
    const layered = this.#layered;
    if (layered === undefined) return;
    const last = states.length - 1;
    if (last >= 0 && plan.sequences[last]!.layers !== undefined)
      layered.applied(states[last]!, !leftOut.includes(last));
    layered.changed(unavailable);
  }

  #setTime(nowMs: number | undefined): void {
    this.#recovery.setTime(nowMs);
    if (nowMs !== undefined) this.#kv.parts.pins.setTime(nowMs);
    if (this.#external === undefined) return;
    assert(nowMs !== undefined, 'a connector needs the time for its deadlines: pass the time');
    this.#external.setTime(nowMs);
  }

  /** Ends requests with invalid KV, while no step is in flight. */
  #endAll(states: readonly RequestState[]) {
    const answers = states.map((state) => {
      this.#forget(state);
      return this.#finish(state) ?? {};
    });
    this.#running.dropEnded();
    const kept = this.#waitingForRemoteKv.filter(({ status }) => status !== 'ended');
    this.#waitingForRemoteKv.splice(0, this.#waitingForRemoteKv.length, ...kept);
    return answers;
  }

  /** A request ends because of the result of a step. Returns the connector's answer to the client, if there is one. */
  #finish(state: RequestState): { readonly kvTransferParams?: JsonObject } | undefined {
    state.status = 'ended';
    const kvTransferParams = this.#external?.ended(state);
    this.#close(state);
    return kvTransferParams === undefined ? undefined : { kvTransferParams };
  }

  /** Releases the blocks of a request that has ended. */
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
    this.#turns.ended(state);
    this.#speculator?.ended?.(state);
  }

  #release(state: RequestState): void {
    this.#layered?.released(state);
    if (state.knownToRunner) this.#released.push(state.request.id);
    state.knownToRunner = false;
  }
}

export interface SchedulerParts extends ExternalKvOptions {
  readonly connector?: ConnectorPort | undefined;
  /** Proposes draft tokens; not for models with recurrent states. */
  readonly speculator?: Speculator | undefined;
  /** Instead of the pace's choice, for the simulator. */
  readonly sliceChoice?: SliceChoice | undefined;
}

/** The step in flight, with its work and start time for the pace. */
interface TimedStep extends StepInFlight {
  readonly plan: ScheduledStep;
  readonly load: StepLoad;
  readonly plannedMs: number | undefined;
}

/** Output tokens for which a request has room from the start; then the buffer doubles. */
const RESERVED_TOKENS = 4096;

const nothing: readonly never[] = [];
