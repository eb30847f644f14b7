import { assert } from '../src/base/assert.ts';
import { Prng } from '../src/base/prng.ts';
import { sha256 } from '../src/base/sha256.ts';
import type { BlockId, RequestId } from '../src/core/ids.ts';
import type { KvCacheSpec } from '../src/core/kv-spec.ts';
import type { RequestUpdate } from '../src/core/request.ts';
import type { ExecutedStep, ScheduledStep, SchedulerOptions } from '../src/scheduler/contract.ts';
import { requestFits } from '../src/scheduler/request-fits.ts';
import { Scheduler } from '../src/scheduler/scheduler.ts';
import type { Speculator } from '../src/scheduler/speculation/speculator.ts';
import { Administration, pinShare } from './administration.ts';
import { EventChecker } from './event-checker.ts';
import type { WrongRead } from './fake-runner.ts';
import { FaultTier } from './fault-tier.ts';
import { noFaults, randomFaults, type TierFaults, withoutFaults } from './faults.ts';
import { storeForeign } from './foreign-blocks.ts';
import { HitChecker } from './hit-checker.ts';
import { MinimalRepair } from './minimal-repair.ts';
import { notLoaded } from './not-loaded.ts';
import { onAllocation } from './on-allocation.ts';
import { OutputChecker } from './output-checker.ts';
import { PrefixChecker } from './prefix-checker.ts';
import { ProbeChecker } from './probe-checker.ts';
import { RandomDrafts } from './random-drafts.ts';
import { dearLoads, RandomPrices } from './random-prices.ts';
import { RandomSlices } from './random-slices.ts';
import { randomSpec, spanSpec } from './random-spec.ts';
import { ResumeChecker } from './resume-checker.ts';
import { type SampleFaults, withSampleFaults } from './sample-faults.ts';
import { SimulatedRanks } from './simulated-ranks.ts';
import { randomCacheShape, SuffixDrafts } from './suffix-drafts.ts';
import { checkWatched } from './watch-checker.ts';
import { Workload } from './workload.ts';

const vocabSize = 24;
/** The largest number of live requests: a longer queue would only make the calm longer. */
const liveMax = 24;
/** In worlds whose loads take too long: how many requests find blocks of a place until some are loaded. */
const probeAfter = 3;

/**
 * `local`: no connector; `tiers`: always one; `crash`: workers that die; `storm`: many requests and far too few blocks; `offload`: a
 * storm with a tier that keeps the KV of preempted requests; `spans`: few blocks become invalid at a time, so that requests
 * have several spans, which they compute in small steps.
 */
export const scenarios = ['mixed', 'local', 'tiers', 'crash', 'storm', 'offload', 'spans'] as const;
export type Scenario = (typeof scenarios)[number];

export interface WorldOptions {
  /** False: only texts and finish reasons are compared, which shows what a bug does to users without assertions. Default true. */
  readonly checks?: boolean;
  readonly scenario?: Scenario;
  /** These faults instead of random faults, and always a connector. */
  readonly faults?: TierFaults;
  /** For a failure that was shrunk: faults that are off, and requests that are not sent. */
  readonly off?: ReadonlySet<string>;
  readonly without?: ReadonlySet<string>;
}

/** The faults outside of stores; `off` can name them. */
export const worldFaultNames = ['aborts', 'invalidBlocks', 'deaths', 'sampleFaults', 'administration'] as const;

/** People look at the pool and the requests in one step of so many, while it is in flight and after it. */
const WATCHED_STEPS = 32;

/**
 * One run of the simulator: the real scheduler, KV cache and pipeline of ranks, fake runners, random requests. The chaos has a number of turns
 * (arrivals, aborts before and during a step, invalid blocks, dying workers, a store with every kind of fault). In the calm after
 * it, all requests must end. After each step all invariants are checked, and each token and each read is compared with the naive
 * reference. The seed decides everything.
 */
export class World {
  readonly seed: number;
  readonly #checks: boolean;
  readonly #prng: Prng;
  readonly #spec: KvCacheSpec;
  readonly #options: SchedulerOptions;
  readonly #scheduler: Scheduler;
  readonly #ranks: SimulatedRanks;
  readonly #checker: OutputChecker;
  readonly #repair: MinimalRepair;
  readonly #events: EventChecker | undefined;
  readonly #workload: Workload;
  readonly #tier: FaultTier | undefined;
  readonly #tierPrng: Prng;
  readonly #resumes: ResumeChecker | undefined;
  readonly #prefixes: PrefixChecker | undefined;
  readonly #administration: Administration | undefined;
  /** Blocks that the pool has allocated since the last step: they lose their content after flushed saves have read it. */
  #allocated: BlockId[] = [];
  readonly #without: ReadonlySet<string>;
  readonly #arrivalRate: number;
  readonly #abortRate: number;
  readonly #invalidRate: number;
  readonly #deathRate: number;
  readonly #sampleFaults: SampleFaults;
  readonly #foreignRate: number;
  readonly #allBlocks: readonly BlockId[];
  #nowMs = 0;
  #isStepInFlight: boolean = false;
  #invalidatedInFlight: BlockId[] = [];
  /** Requests that were sent, in order. */
  readonly sent: string[] = [];
  steps = 0;
  #turns = 0;

  constructor(seed: number, options: WorldOptions = {}) {
    const { checks = true, scenario = 'mixed', faults, off = new Set(), without = new Set() } = options;
    this.seed = seed;
    this.#checks = checks;
    this.#without = without;
    const prng = new Prng(seed);
    this.#prng = prng;
    const isStorm = prng.chance(0.1) || scenario === 'storm' || scenario === 'offload';
    // A crowd: many requests with one long prefix, in small chunks, so that requests share many blocks that are being computed.
    const isCrowd = prng.chance(0.3);
    const promptTokensMax = isCrowd ? 40 : prng.pick(scenario === 'spans' ? [30, 60] : [8, 30, 60]);
    const outputTokensMax = isStorm ? 30 : prng.pick([2, 10, 30]);
    const isSpans = scenario === 'spans';
    const tokensMax = promptTokensMax + outputTokensMax;
    const spec = isSpans ? spanSpec(prng, tokensMax) : randomSpec(prng, tokensMax, isStorm);
    const slicePrng = new Prng(seed + 2 ** 47);
    const rankCount = new Prng(seed + 2 ** 51).pick([1, 1, 2, 3]);
    const maySlice = rankCount === 1 && spec.groups.every(({ kind }) => kind !== 'state') && slicePrng.chance(0.7);
    this.#spec = maySlice ? { ...spec, sliceableLayers: slicePrng.pick([1, 2, 5]) } : spec;
    this.#allBlocks = Array.from({ length: this.#spec.blockCount - 1 }, (_, i) => (i + 1) as BlockId);
    this.#options = {
      maxNumBatchedTokens: isCrowd || isSpans ? 64 : prng.pick([1, 3, 7, 16, 64, 512]),
      ...(isCrowd || isSpans || prng.chance(0.5) ? { longPrefillTokenThreshold: prng.pick([1, 5, 20]) } : {}),
      maxNumSeqs: isCrowd || isStorm ? prng.pick([2, 16, 16]) : prng.pick([1, 2, 4, 16]),
      maxModelLen: prng.chance(0.2)
        ? prng.pick([promptTokensMax, 2 * promptTokensMax]) / 2 + 1
        : promptTokensMax + outputTokensMax,
      enablePrefixCaching: prng.chance(0.85),
      ...(prng.chance(0.1) ? { kvLoadFailurePolicy: 'fail' } : {}),
      policy: prng.pick(['fcfs', 'priority'] as const),
      targetInterTokenLatency: new Prng(seed + 2 ** 41).pick([0, 0, 'auto', 3, 20] as const),
      pinShare,
    };
    this.#checker = new OutputChecker(this.#spec, vocabSize, this.#options.maxModelLen, rankCount);
    // A separate generator, so that changes here do not change worlds without a connector.
    const tierPrng = new Prng(seed + 2 ** 40);
    const hasTier = tierPrng.chance(0.7);
    const isComplete = scenario === 'offload' && faults === undefined && tierPrng.chance(0.5);
    const arrivalPrng = new Prng(seed + 2 ** 44);
    const mayLackTier = scenario === 'mixed' || scenario === 'storm' || isSpans;
    if (faults !== undefined || (mayLackTier ? hasTier : scenario !== 'local'))
      this.#tier = new FaultTier(tierPrng, {
        rankCount,
        faults: isComplete ? noFaults : withoutFaults(faults ?? randomFaults(tierPrng), off),
        isComplete,
        blocksMax: scenario === 'offload' && !isComplete ? tierPrng.pick([4, 16, Infinity]) : Infinity,
        ...(arrivalPrng.chance(0.5) ? { arrivals: arrivalPrng } : {}),
      });
    this.#tierPrng = tierPrng;
    const tier = this.#tier;
    this.#ranks = new SimulatedRanks({
      rankCount,
      spec: this.#spec,
      vocabSize,
      referenceOf: this.#checker.referenceOf,
      openWorker: tier === undefined ? undefined : (rank, runner, flushed) => tier.workerOf(rank, runner, flushed),
    });
    this.#repair = new MinimalRepair(this.#ranks, this.#checker.referenceOf, this.#checker.neededFrom);
    // With a complete tier and no invalid blocks, a request computes no full block twice.
    if (isComplete && this.#options.enablePrefixCaching) {
      this.#resumes = new ResumeChecker(this.#spec);
      this.#prefixes = new PrefixChecker(this.#ranks, this.#checker.referenceOf, this.#checker.neededFrom);
      if (this.#tier !== undefined) this.#tier.prefixes = this.#prefixes;
    }
    const rate = (name: string, drawn: number): number =>
      off.has(name) || (isComplete && name !== 'aborts') ? 0 : drawn;
    this.#deathRate = rate('deaths', scenario === 'crash' ? 0.3 : isSpans ? 0 : tierPrng.pick([0, 0.05, 0.2]));
    const limits = { loadTimeoutMs: () => tierPrng.pick([40, 400, 4000]), askLaterMaxMs: 150 };
    const isLimited = tierPrng.chance(0.9);
    const pricePrng = new Prng(seed + 2 ** 42);
    const loading = isComplete ? 'always' : pricePrng.pick(['always', 'measured', 'random'] as const);
    const isDear = loading === 'random' && new Prng(seed + 2 ** 43).chance(0.25);
    const prices =
      loading !== 'random'
        ? {}
        : isDear
          ? { loadPrices: dearLoads, probeAfter }
          : { loadPrices: new RandomPrices(pricePrng) };
    const loadPolicy = loading === 'always' ? 'always' : 'auto';
    const draftPrng = new Prng(seed + 2 ** 44);
    const mayDraft = this.#spec.groups.every(({ kind }) => kind !== 'state') && draftPrng.chance(0.5);
    const suffixPrng = new Prng(seed + 2 ** 45);
    const drafts = (): Speculator =>
      suffixPrng.chance(0.3)
        ? new SuffixDrafts(suffixPrng, randomCacheShape(suffixPrng))
        : new RandomDrafts(draftPrng, vocabSize, this.#checker.nextTokens);
    const speculator = mayDraft ? drafts() : undefined;
    this.#scheduler = new Scheduler(
      this.#spec,
      this.#options,
      sha256,
      // Some worlds have the default, long deadlines. No world polls every 100 ms for I/O that hangs for minutes.
      {
        ...(isLimited ? limits : {}),
        ...prices,
        loadPolicy,
        connector: this.#tier,
        speculator,
        sliceChoice: new RandomSlices(slicePrng),
        pollMs: 5000,
      },
    );
    if (this.#checks && seed % 4 === 0) this.#events = new EventChecker(this.#scheduler);
    if (this.#tier !== undefined) {
      this.#tier.wake = () => this.#scheduler.notifyTransfers();
      const { enablePrefixCaching, kvLoadFailurePolicy } = this.#options;
      const isAsked = enablePrefixCaching && kvLoadFailurePolicy !== 'fail';
      const available = (): number => {
        const { free, cached } = this.#scheduler.stats().blocks;
        return free + cached;
      };
      if (checks) {
        this.#tier.hits = new HitChecker(this.#spec, isLimited ? 150 : 30_000, isAsked, available);
        this.#tier.hits.computesAnyway = (id) => this.#checker.neededFrom(id) !== Infinity;
      }
      const [group] = this.#spec.groups;
      if (this.#tier.hits !== undefined && isDear && this.#spec.groups.length === 1 && group!.kind === 'full')
        this.#tier.hits.probes = new ProbeChecker(group!.blockSize, probeAfter);
    }
    const promptPrng = new Prng(seed + 2 ** 46);
    const promptResults = promptPrng.chance(0.3) ? promptPrng : undefined;
    const tenantPrng = new Prng(seed + 2 ** 48);
    const tenants = tenantPrng.chance(0.2) ? tenantPrng : undefined;
    const workload = { vocabSize, promptTokensMax, outputTokensMax, isCrowd, promptResults, tenants };
    this.#workload = new Workload(prng.fork(), workload);
    this.#arrivalRate = isCrowd || isStorm ? 1 : prng.pick([0.05, 0.3, 1]);
    this.#abortRate = rate('aborts', prng.pick([0, 0.02, 0.2]));
    this.#invalidRate = rate('invalidBlocks', isSpans ? prng.pick([0.1, 0.3]) : prng.pick([0, 0.02, 0.3]));
    const chunkPrng = new Prng(seed + 2 ** 50);
    this.#sampleFaults = {
      rate: rate('sampleFaults', prng.pick([0, 0, 0.01, 0.05])),
      samples: tierPrng,
      chunks: chunkPrng.chance(0.25) ? chunkPrng : undefined,
    };
    this.#foreignRate = prng.pick([0, 0, 0.3]);
    const isLossless = this.#invalidRate + this.#deathRate === 0 && this.#tier?.hasFaults !== true;
    if (this.#checks && !off.has('administration'))
      this.#administration = Administration.inSome(new Prng(seed + 2 ** 49), {
        scheduler: this.#scheduler,
        spec: this.#spec,
        mayRemove: !isComplete,
        isFaultless: this.#options.enablePrefixCaching && isLossless,
        clearStores: () => this.#tier?.clearStores(),
      });
  }

  /** Blocks that loads have filled, and promised blocks that failed. */
  get loads(): { readonly arrived: number; readonly failed: number } {
    return { arrived: this.#tier?.loadedBlocks ?? 0, failed: this.#tier?.failedBlocks ?? 0 };
  }

  get finished(): number {
    return this.#checker.finished;
  }

  /** Saves that a step flushed, because it overwrote their blocks. */
  get flushedSaves(): number {
    return this.#tier?.flushedSaves ?? 0;
  }

  /** Runs `chaosTurns` turns of chaos, then calm to the end. Throws at the first failed check. */
  async run(chaosTurns: number): Promise<void> {
    await onAllocation(
      (block) => this.#allocated.push(block),
      () => this.#run(chaosTurns),
    );
  }

  async #run(chaosTurns: number): Promise<void> {
    try {
      while (this.#turns < chaosTurns) await this.#turn(true);
      this.#tier?.calm();
      let calmSteps = 0;
      const bound = this.#stepsBound();
      while (this.#scheduler.hasWork() || this.#scheduler.stats().transfers.open > 0) {
        await this.#turn(false);
        if (++calmSteps > bound)
          assert(false, `I8: ${this.#checker.liveCount} requests have not ended after ${bound} calm steps`);
      }
      assert(
        this.#checker.liveCount === 0,
        `I8: ${this.#checker.liveCount} requests have no work left and have not ended`,
      );
      const { blocks, transfers } = this.#scheduler.stats();
      assert(transfers.open === 0, `I5: ${transfers.open} transfers are open at the end`);
      assert(blocks.referenced === 0, `I7: ${blocks.referenced} blocks are still referenced at the end`);
      this.#administration?.checkEnd(this.#nowMs);
      this.#events?.checkReset();
    } catch (error) {
      const details = [String(error), JSON.stringify(this.#options), JSON.stringify(this.#spec)].join('\n');
      throw new Error(`seed ${this.seed}, turn ${this.#turns}: ${details}`, { cause: error });
    }
  }

  async #turn(chaos: boolean): Promise<void> {
    this.#turns++;
    if (chaos) {
      if (this.#prng.chance(this.#arrivalRate)) this.#add();
      this.#abortSome();
      this.#invalidateMemory();
      this.#administration?.act(this.#nowMs);
    }
    if (this.#tier !== undefined) this.#passTime(this.#tierPrng.between(0, 20));
    this.#tier?.hits?.planning();
    this.#administration?.planning(this.#nowMs);
    const plan = this.#scheduler.plan(this.#nowMs);
    this.#administration?.planned(plan);
    if (plan === undefined) {
      this.#sleep();
      return;
    }
    this.#tier?.hits?.planned(plan);
    this.#resumes?.planned(plan);
    this.#prefixes?.planned(plan, this.#allocated, this.#scheduler.stats().preemptions);
    const allocated = this.#allocated.splice(0);
    this.steps++;
    assert(plan.tokenCount <= this.#options.maxNumBatchedTokens, 'the step exceeds its token budget');
    this.#isStepInFlight = true;
    if (this.#checks && this.steps % WATCHED_STEPS === 1) checkWatched(this.#scheduler);
    if (this.#checks) this.#checker.checkTables(plan);
    this.#repair.checkPlan(plan, allocated);
    const invalid = chaos ? this.#pickInvalidBlocks() : nothing;
    const died = chaos && this.#tier !== undefined && this.#tierPrng.chance(this.#deathRate);
    if (died) this.#ranks.dies(this.#tierPrng);
    const lost = died ? this.#allBlocks : invalid;
    this.#tier?.hits?.blocksInvalidated(lost);
    // With a target for the inter-token latency, a step takes a fixed time and a time for each token.
    if (this.#options.targetInterTokenLatency !== 0) this.#passTime(2 + plan.tokenCount / 10);
    const executed = await this.#execute(plan, allocated, invalid);
    const result = chaos ? withSampleFaults(plan, executed, this.#sampleFaults) : executed;
    if (died) this.#tier?.memoryInvalidated(lost);
    if (chaos) {
      if (this.#prng.chance(this.#arrivalRate / 4)) this.#add();
      this.#abortSome();
      this.#invalidateMemory();
      this.#administration?.act(this.#nowMs);
    }
    const allInvalid = this.#invalidatedInFlight.length === 0 ? lost : [...lost, ...this.#invalidatedInFlight];
    this.#repair.stepDone(plan, result, allInvalid, notLoaded(plan, result));
    const unaffected = this.#unaffected(allInvalid);
    this.#invalidatedInFlight = [];
    this.#isStepInFlight = false;
    this.#checkUpdates(this.#scheduler.apply(plan, result, this.#nowMs), unaffected, plan, result);
    if (this.#options.kvLoadFailurePolicy === 'fail') this.#checkFailedLoaders();
    if (this.#checks) this.#scheduler.checkInvariants();
    if (this.#checks && this.steps % WATCHED_STEPS === 0) checkWatched(this.#scheduler);
    if (this.steps % WATCHED_STEPS === 0) this.#events?.check();
  }

  /** `allocated` and `invalid`: blocks that lose their content before the step computes. The result names the invalid ones. */
  async #execute(
    plan: ScheduledStep,
    allocated: readonly BlockId[],
    invalid: readonly BlockId[],
  ): Promise<ExecutedStep> {
    const tier = this.#tier;
    if (tier !== undefined) {
      assert(plan.connectorMetadata !== undefined, 'a step without metadata');
      tier.checkOrders(plan.connectorMetadata);
      tier.reportsAtMs = this.#nowMs + this.#tierPrng.between(0, 20);
    }
    const result = await this.#ranks.execute(plan, [...allocated, ...invalid], () => tier?.memoryInvalidated(invalid));
    if (tier !== undefined) this.#passTime(tier.reportsAtMs - this.#nowMs);
    if (invalid.length === 0) return result;
    return { ...result, invalidBlocks: [...(result.invalidBlocks ?? nothing), ...invalid] };
  }

  /**
   * Requests that these invalid blocks and failed loads may not end. A request that shares the failed load of another loads or computes
   * the blocks itself. Called before the scheduler receives the report.
   */
  #unaffected(invalid: readonly BlockId[]): ReadonlySet<RequestId> | undefined {
    if (this.#options.kvLoadFailurePolicy !== 'fail') return undefined;
    return this.#checker.requestsWithout(new Set(invalid), this.#tier?.loaders ?? noRequest);
  }

  /** Policy `fail`: a request ends if its own load fails, also if it no longer needs the failed blocks. A preempted one is queued. */
  #checkFailedLoaders(): void {
    for (const id of this.#tier?.failedLoaders ?? noRequest) {
      const isEnded = [undefined, 'queued'].includes(this.#scheduler.inspector.phaseOf(id));
      assert(isEnded, `policy fail: the load of ${id} has failed, but the request goes on`);
    }
  }

  #checkUpdates(
    updates: readonly RequestUpdate[],
    unaffected: ReadonlySet<RequestId> | undefined,
    plan?: ScheduledStep,
    result?: ExecutedStep,
  ): void {
    if (updates.length === 0) return;
    const wrongRead = new Map<RequestId, WrongRead>();
    for (const { requestId } of plan?.sequences ?? nothing) {
      const read = this.#ranks.wrongReadOf(requestId);
      if (read !== undefined) wrongRead.set(requestId, read);
    }
    const allowedErrors = {
      ownFaults:
        result?.failures === undefined
          ? noRequest
          : new Set(result.failures.map(({ sequence }) => plan!.sequences[sequence]!.requestId)),
      unaffected,
    };
    for (const update of updates) {
      const { requestId, stats } = update;
      const sequence = plan?.sequences.find((candidate) => candidate.requestId === requestId);
      if (sequence !== undefined) this.#repair.draftsKept(sequence, update.newTokens.length - 1);
      const computed = this.#repair.computedTokens(requestId);
      if (stats.computedTokens !== computed)
        assert(
          false,
          `I3: ${requestId} reports ${stats.computedTokens} computed tokens, but its steps had ${computed}`,
        );
      this.#checker.check(update, wrongRead.get(requestId), allowedErrors);
      this.#administration?.updated(update);
      this.#prefixes?.updated(update);
    }
  }

  /** Lets time pass until the next event. Without transfers and deadlines no event follows. */
  #sleep(): void {
    if (!this.#scheduler.hasWork() && this.#scheduler.stats().transfers.open === 0) return;
    const wakeMs = this.#scheduler.nextWakeMs();
    const expiryMs = this.#tier?.nextExpiryMs() ?? Infinity;
    if ((wakeMs ?? Infinity) > Math.max(expiryMs, this.#nowMs))
      assert(false, `I8: a load expires at ${expiryMs} ms, and the engine wakes at ${wakeMs} ms`);
    const wakes = [wakeMs, this.#tier?.nextEventMs()].filter((at) => at !== undefined);
    assert(wakes.length > 0, 'I8: there is work, but no plan, and no event will wake the engine');
    this.#passTime(Math.max(Math.min(...wakes) - this.#nowMs, 1));
    if (this.#tierPrng.chance(0.5)) this.#scheduler.notifyTransfers();
  }

  #passTime(ms: number): void {
    this.#nowMs += ms;
    if (this.#tier !== undefined) this.#tier.nowMs = this.#nowMs;
  }

  #add(): void {
    const drawn = this.#workload.next();
    const request = this.#administration?.arrives(drawn) ?? drawn;
    if (this.#without.has(request.id) || this.#checker.liveCount >= liveMax) return;
    if (!requestFits(this.#spec, this.#options, request.promptTokens.length, request.params.maxTokens)) return;
    this.sent.push(request.id);
    this.#checker.add(request);
    this.#prefixes?.added(request);
    this.#scheduler.add(request);
    if (this.#prng.chance(this.#foreignRate) && this.#tier !== undefined)
      storeForeign(this.#tier.stores, this.#spec, request);
  }

  #abortSome(): void {
    if (this.#checker.liveCount === 0 || !this.#prng.chance(this.#abortRate)) return;
    const id = this.#prng.pick(this.#checker.liveIds);
    this.#checker.aborted(id);
    this.#prefixes?.fillerLost();
    this.#administration?.aborted();
    assert(this.#scheduler.abort(id) !== undefined, `request ${id} was unknown to the scheduler`);
    assert(this.#scheduler.abort(id) === undefined, `request ${id} was aborted twice`);
  }

  /** Blocks become invalid between two steps, or while a step is in flight. */
  #invalidateMemory(): void {
    const blocks = this.#pickInvalidBlocks();
    if (blocks.length === 0) return;
    for (const block of blocks) this.#ranks.overwrite(block);
    this.#tier?.memoryInvalidated(blocks);
    this.#tier?.hits?.blocksInvalidated(blocks);
    if (this.#isStepInFlight) this.#invalidatedInFlight.push(...blocks);
    const unaffected = this.#unaffected(blocks);
    this.#checkUpdates(this.#scheduler.invalidate(blocks), unaffected);
  }

  #pickInvalidBlocks(): readonly BlockId[] {
    if (!this.#prng.chance(this.#invalidRate)) return nothing;
    if (this.#prng.chance(0.05)) return this.#allBlocks;
    const share = this.#prng.pick([0.02, 0.2]);
    return this.#allBlocks.filter(() => this.#prng.chance(share));
  }

  /** A generous bound: each request alone, token by token, preempted by every other request. */
  #stepsBound(): number {
    const tokens = this.#checker.liveTokens;
    // A transfer takes steps to begin, to be reported, to reach its deadline and to drain, and polling takes steps, too.
    const transfers = this.#tier === undefined ? 0 : 40 + 20 * this.#scheduler.stats().transfers.open + 2 * tokens;
    return tokens * (this.#checker.liveCount + 1) + 10 + transfers;
  }
}

const nothing: readonly never[] = [];
const noRequest: ReadonlySet<RequestId> = new Set();
