import { assert } from '../src/base/assert.ts';
import { Prng } from '../src/base/prng.ts';
import type { BlockCount, BlockId, RequestId, TokenCount } from '../src/core/ids.ts';
import type { KvCacheSpec, KvGroupSpec } from '../src/core/kv-spec.ts';
import type { EngineRequest, RequestUpdate } from '../src/core/request.ts';
import { pagesMax } from '../src/kv/create-group.ts';
import type { ExecutedStep, ScheduledStep, SchedulerOptions } from '../src/scheduler/contract.ts';
import { requestFits } from '../src/scheduler/request-fits.ts';
import { Scheduler } from '../src/scheduler/scheduler.ts';
import { FakeRunner, type Truth } from './fake-runner.ts';
import { FaultTier, noFaults, type TierFaults } from './fault-tier.ts';
import { sha256 } from './hash.ts';
import { type ReferenceOutput, referenceOutput } from './reference.ts';
import { Workload } from './workload.ts';

const vocabSize = 24;

/** `local`: no connector; `tiers`: always one; `crash`: with workers that die. */
export const scenarios = ['mixed', 'local', 'tiers', 'crash'] as const;
export type Scenario = (typeof scenarios)[number];

export interface WorldOptions {
  readonly checks?: boolean;
  readonly scenario?: Scenario;
  /** Just these faults instead of random ones, and always a connector. */
  readonly faults?: TierFaults;
}

/**
 * One small universe: the real scheduler and KV cache, a fake runner, random requests. Chaos for a number of steps
 * (arrivals, aborts before and during a step), then calm, in which everything must end. After each step all
 * invariants are checked, and each token is compared with the naive reference. The seed decides everything.
 */
export class World {
  readonly seed: number;
  readonly #checks: boolean;
  readonly #prng: Prng;
  readonly #spec: KvCacheSpec;
  readonly #options: SchedulerOptions;
  readonly #scheduler: Scheduler;
  readonly #runner: FakeRunner;
  readonly #workload: Workload;
  readonly #tier: FaultTier | undefined;
  readonly #tierPrng: Prng;
  readonly #deathRate: number;
  #nowMs = 0;
  readonly #live = new Map<RequestId, { request: EngineRequest; expected: ReferenceOutput; output: number[] }>();
  readonly #arrivalRate: number;
  readonly #abortRate: number;
  readonly #lossRate: number;
  steps = 0;
  /** Blocks that a connector has brought, and that it had promised in vain. */
  get loads(): { readonly arrived: number; readonly failed: number } {
    return { arrived: this.#tier?.loadedBlocks ?? 0, failed: this.#tier?.failedBlocks ?? 0 };
  }
  finished = 0;

  /** Without `checks`, only texts and ends are compared: what a bug does to users when no assertion sees it. */
  constructor(seed: number, { checks = true, scenario = 'mixed', faults }: WorldOptions = {}) {
    this.seed = seed;
    this.#checks = checks;
    const prng = new Prng(seed);
    this.#prng = prng;
    // A crowd: many requests with one long prefix, cut into small chunks, so that much is shared while it is computed.
    const isCrowd = prng.chance(0.3);
    const promptTokensMax = isCrowd ? 40 : prng.pick([8, 30, 60]);
    const outputTokensMax = prng.pick([2, 10, 30]);
    this.#spec = randomSpec(prng, promptTokensMax + outputTokensMax);
    this.#options = {
      maxNumBatchedTokens: isCrowd ? 64 : prng.pick([1, 3, 7, 16, 64, 512]),
      ...(isCrowd || prng.chance(0.5) ? { longPrefillTokenThreshold: prng.pick([1, 5, 20]) } : {}),
      maxNumSeqs: isCrowd ? 16 : prng.pick([1, 2, 4, 16]),
      maxModelLen: prng.chance(0.2) ? promptTokensMax + 1 : promptTokensMax + outputTokensMax,
      enablePrefixCaching: prng.chance(0.85),
      kvLoadFailurePolicy: prng.chance(0.1) ? 'fail' : 'recompute',
      policy: prng.pick(['fcfs', 'priority'] as const),
    };
    this.#runner = new FakeRunner(this.#spec, vocabSize);
    // A generator of its own, so that worlds without a connector are what they are whatever is added here.
    const tierPrng = new Prng(seed + 2 ** 40);
    const hasTier = tierPrng.chance(0.6);
    if (faults !== undefined || (scenario === 'mixed' ? hasTier : scenario !== 'local'))
      this.#tier = new FaultTier(tierPrng, this.#runner, faults ?? randomFaults(tierPrng));
    this.#tierPrng = tierPrng;
    this.#deathRate = scenario === 'crash' ? 0.3 : tierPrng.pick([0, 0.05, 0.2]);
    this.#scheduler = new Scheduler(this.#spec, this.#options, sha256, this.#tier, {
      loadTimeoutMs: () => tierPrng.pick([40, 400, 4000]),
      askLaterMaxMs: 150,
      pollMs: 5000,
    });
    if (this.#tier !== undefined) this.#tier.isOpen = (id) => this.#scheduler.isOpenTransfer(id);
    this.#workload = new Workload(prng.fork(), {
      vocabSize,
      promptTokensMax,
      outputTokensMax,
      isCrowd,
    });
    this.#arrivalRate = isCrowd ? 1 : prng.pick([0.05, 0.3, 1]);
    this.#abortRate = prng.pick([0, 0.02, 0.2]);
    this.#lossRate = prng.pick([0, 0.02, 0.3]);
  }

  /** `chaosSteps` of chaos, then calm to the end. Throws when anything is not as it must be. */
  run(chaosSteps: number): void {
    try {
      while (this.steps < chaosSteps) this.#step(true);
      this.#tier?.calm();
      let calmSteps = 0;
      const bound = this.#stepsBound();
      while (this.#scheduler.hasWork() || this.#scheduler.stats().transfers.open > 0) {
        this.#step(false);
        assert(++calmSteps <= bound, `I8: ${this.#live.size} requests have not ended after ${bound} calm steps`);
      }
      assert(this.#live.size === 0, `${this.#live.size} requests were forgotten`);
      const { blocks, transfers } = this.#scheduler.stats();
      assert(transfers.open === 0, `I5: ${transfers.open} transfers are open when all is over`);
      assert(blocks.referenced === 0, `I7: ${blocks.referenced} pages are still referenced when all is over`);
    } catch (error) {
      throw new Error(
        `seed ${this.seed}, step ${this.steps}: ${String(error)}\n${JSON.stringify(this.#options)}\n${JSON.stringify(this.#spec)}`,
        {
          cause: error,
        },
      );
    }
  }

  #step(chaos: boolean): void {
    this.steps++;
    if (chaos) {
      if (this.#prng.chance(this.#arrivalRate)) this.#add();
      this.#abortSome();
      this.#loseMemory();
    }
    if (this.#tier !== undefined) this.#passTime(this.#tierPrng.between(0, 20));
    const plan = this.#scheduler.plan(this.#nowMs);
    if (plan === undefined) {
      this.#sleep();
      return;
    }
    assert(plan.tokenCount <= this.#options.maxNumBatchedTokens, 'the step is over its budget');
    const lost = chaos ? this.#lostPages() : [];
    for (const page of lost) this.#runner.scribble(page);
    const result = this.#execute(plan, lost);
    if (chaos) {
      if (this.#prng.chance(this.#arrivalRate / 4)) this.#add();
      this.#abortSome();
      this.#loseMemory();
    }
    for (const update of this.#scheduler.apply(plan, result, this.#nowMs)) {
      const sequence = plan.sequences.findIndex(({ requestId }) => requestId === update.requestId);
      const untrue = this.#runner.untrueReads[sequence];
      assert(
        update.newTokens.length === 0 || untrue === undefined,
        `I1: a token counts that read ${JSON.stringify(untrue)}`,
      );
      this.#check(update);
    }
    if (this.#checks) this.#scheduler.checkInvariants();
  }

  readonly #truthOf = (id: RequestId): Truth | undefined => this.#live.get(id)?.expected.entries;

  #execute(plan: ScheduledStep, lost: readonly BlockId[]): ExecutedStep {
    if (this.#tier === undefined) return { ...this.#runner.execute(plan, [], this.#truthOf), invalidBlocks: lost };
    const metadata = plan.connectorMetadata;
    assert(metadata !== undefined, 'a step without metadata');
    const failed = this.#tier.begin(metadata, plan.sequences.length > 0, lost);
    // A worker may leave out whoever has one of the pages that failed, or compute it for nothing.
    const leftOut = this.#tierPrng.chance(0.5)
      ? plan.sequences.flatMap(({ blockTables }, i) =>
          blockTables.some(({ ids, length }) => ids.subarray(0, length).some((page) => failed.has(page as BlockId)))
            ? [i]
            : [],
        )
      : [];
    const result = this.#runner.execute(plan, leftOut, this.#truthOf);
    this.#passTime(this.#tierPrng.between(0, 20));
    return { ...result, invalidBlocks: lost, leftOut, connectorOutput: this.#tier.finish() };
  }

  /** The engine sleeps until something happens. Without transfers and deadlines nothing ever will. */
  #sleep(): void {
    if (!this.#scheduler.hasWork() && this.#scheduler.stats().transfers.open === 0) return;
    const wakes = [this.#scheduler.nextWakeMs(), this.#tier?.nextEventMs()].filter((at) => at !== undefined);
    assert(wakes.length > 0, 'I8: there is work, but nothing was planned, and nobody will wake the engine');
    this.#passTime(Math.max(Math.min(...wakes) - this.#nowMs, 1));
    if (this.#tierPrng.chance(0.5)) this.#scheduler.ringTransfers();
  }

  #passTime(ms: number): void {
    this.#nowMs += ms;
    if (this.#tier !== undefined) this.#tier.nowMs = this.#nowMs;
  }

  #add(): void {
    const request = this.#workload.next();
    if (!requestFits(this.#spec, this.#options, request.promptTokens.length, request.params.maxTokens)) return;
    const expected = referenceOutput(request, this.#spec, vocabSize, this.#options.maxModelLen);
    this.#live.set(request.id, { request, expected, output: [] });
    this.#scheduler.add(request);
  }

  #abortSome(): void {
    if (this.#live.size === 0 || !this.#prng.chance(this.#abortRate)) return;
    const id = this.#prng.pick([...this.#live.keys()]);
    this.#live.delete(id);
    assert(this.#scheduler.abort(id) !== undefined, `request ${id} was unknown to the scheduler`);
    assert(this.#scheduler.abort(id) === undefined, `request ${id} was aborted twice`);
  }

  /** Content is lost between two steps: a worker has died and comes back empty, or a few pages are found corrupt. */
  #loseMemory(): void {
    // With a store to load from, a worker that comes back empty is what makes everybody load at once.
    const died = this.#tier !== undefined && this.#tierPrng.chance(this.#deathRate);
    const pages = died ? this.#allPages() : this.#lostPages();
    for (const page of pages) this.#runner.scribble(page);
    this.#tier?.memoryLost(pages);
    if (pages.length === this.#spec.pageCount - 1) this.#tier?.workerDied();
    for (const update of this.#scheduler.invalidate(pages)) this.#check(update);
  }

  #allPages(): BlockId[] {
    return Array.from({ length: this.#spec.pageCount - 1 }, (_, i) => (i + 1) as BlockId);
  }

  #lostPages(): BlockId[] {
    if (!this.#prng.chance(this.#lossRate)) return [];
    const all = this.#allPages();
    if (this.#prng.chance(0.05)) return all;
    const share = this.#prng.pick([0.02, 0.2]);
    return all.filter(() => this.#prng.chance(share));
  }

  #check(update: RequestUpdate): void {
    const live = this.#live.get(update.requestId);
    assert(live !== undefined, `an update for ${update.requestId}, which is gone`);
    for (const { token } of update.newTokens) {
      const wanted = live.expected.tokens[live.output.length];
      assert(token === wanted, `I2: token ${live.output.length} of ${update.requestId} is ${token}, must be ${wanted}`);
      live.output.push(token);
    }
    assert(update.stats.outputTokens === live.output.length, `wrong output count for ${update.requestId}`);
    if (update.finish === undefined) return;
    if (update.finish.reason === 'error') {
      assert(this.#options.kvLoadFailurePolicy === 'fail', `${update.requestId} failed under the policy to recompute`);
      this.#live.delete(update.requestId);
      return;
    }
    assert(live.output.length === live.expected.tokens.length, `${update.requestId} ended early`);
    assert(update.finish.reason === live.expected.reason, `${update.requestId} ended by ${update.finish.reason}`);
    this.#live.delete(update.requestId);
    this.finished++;
  }

  /** Generous: each request alone, row by row, each preempted by each other one. */
  #stepsBound(): number {
    let tokens = 0;
    for (const { request } of this.#live.values()) tokens += request.promptTokens.length + request.params.maxTokens;
    // A transfer takes an order, a report, a deadline and a drain; and looking for them takes steps, too.
    const transfers = this.#tier === undefined ? 0 : 40 + 20 * this.#scheduler.stats().transfers.open + 2 * tokens;
    return tokens * (this.#live.size + 1) + 10 + transfers;
  }
}

/** Each world has its own bad luck: most have little of many faults, some much of one. */
function randomFaults(prng: Prng): TierFaults {
  if (prng.chance(0.2)) return noFaults;
  const rate = (): number => prng.pick([0, 0, 0.02, 0.2, prng.chance(0.2) ? 0.8 : 0.05]);
  return {
    askLater: rate(),
    lies: rate(),
    corrupt: rate(),
    slow: rate(),
    hung: rate(),
    silent: rate(),
    twice: rate(),
    unknown: rate(),
    saveFails: rate(),
  };
}

/** One full-attention group mostly, else any mix of groups, block sizes and windows; pools from just enough to plenty. */
function randomSpec(prng: Prng, tokensMax: number): KvCacheSpec {
  const sizes = [1, 2, 4, 8, 16] as TokenCount[];
  const one = prng.pick(sizes);
  const group = (): KvGroupSpec => {
    const blockSize = prng.chance(0.5) ? one : prng.pick(sizes);
    const kind = prng.pick(['full', 'full', 'window', 'state'] as const);
    if (kind !== 'window') return { kind, blockSize, layers: [0] };
    return { kind, blockSize, layers: [0], window: prng.pick([2, 3, 5, 16, 40]) as TokenCount };
  };
  const groups: KvGroupSpec[] = prng.chance(0.4)
    ? [{ kind: 'full', blockSize: one, layers: [0] }]
    : Array.from({ length: prng.between(1, 3) }, group);
  const spec = { groups, pageBytes: 64, pageCount: 2 as BlockCount, fingerprint: 'simulated' };
  const tight = pagesMax(spec, tokensMax - 1) + 1;
  return { ...spec, pageCount: prng.pick([tight, tight + 3, tight * 2, tight * 8]) as BlockCount };
}
