import { assert } from '../../src/base/assert.ts';
import { Prng } from '../../src/base/prng.ts';
import type { KvIdentity, KvLoadPolicy } from '../../src/connector/connector.ts';
import type { BlockCount, TokenCount } from '../../src/core/ids.ts';
import type { KvCacheSpec } from '../../src/core/kv-spec.ts';
import type { RequestStats } from '../../src/core/request.ts';
import { ClientChecker, type ClientTotals } from './client-checker.ts';
import type { ClusterFaults } from './cluster-faults.ts';
import { type Conversation, createConversations, longestText, type WorkloadOptions } from './conversations.ts';
import { type Costs, StepTimes } from './costs.ts';
import type { EngineProcessOptions } from './engine-process.ts';
import { type FaultCounts, FaultTimes } from './fault-times.ts';
import { Link } from './link.ts';
import { Replica, type RouterPort } from './replica.ts';
import { Router, type RouterOptions } from './router.ts';
import { SharedTier, type SharedTierOptions } from './shared-tier.ts';
import { SimulatedTime } from './simulated-time.ts';
import type { StackShape } from './stack-shelf.ts';

export interface TierOptions {
  /** For all replicas together, in each direction. */
  readonly gigabitsPerSecond: number;
  readonly latencyMs: number;
  readonly tokensMax: number;
}

export interface ClusterOptions {
  readonly replicas: number;
  readonly blockSize: number;
  readonly poolTokens: number;
  readonly maxNumBatchedTokens: number;
  readonly maxNumSeqs: number;
  readonly costs: Costs;
  /** Undefined: the replicas share nothing. */
  readonly tier: TierOptions | undefined;
  /** So many such tiers, with faults of their own. Without a stack, replicas have a list of connectors with one tier each. Default: one. */
  readonly tierCount?: number;
  /** Replicas have one connector with host memory and all tiers below it. Default: none. */
  readonly stack?: StackShape | undefined;
  readonly loadPolicy: KvLoadPolicy;
  readonly routing: RouterOptions['routing'];
  /** The network of a replica. */
  readonly replicaGigabitsPerSecond: number;
  readonly networkDelayMs: number;
  readonly startMs: number;
  readonly workload: WorkloadOptions;
  readonly faults: ClusterFaults;
  /** How long a pause, a partition or an outage lasts at most. */
  readonly faultMsMax: number;
  /** Faults end after this time, and then all requests must end. */
  readonly calmAfterMs: number;
  readonly checkEvery: number;
}

export interface ClusterReport extends ClientTotals {
  readonly replicas: number;
  readonly simulatedSeconds: number;
  readonly steps: number;
  /** Tokens that all steps have computed, of prompts and outputs. */
  readonly computedTokens: number;
  readonly left: number;
  readonly retries: number;
  readonly faults: FaultCounts;
  readonly tier: { readonly loads: number; readonly loadFailures: number; readonly stores: number };
}

const bytesPerMsOfGigabit = 125_000;
/** In the calm, a cluster that delivers no token for so long has lost its requests. */
const stalledMs = 180_000;
const watchMs = 20_000;
/** For writes that wait for tiers, and for leases. */
const settleMs = 120_000;

/**
 * A cluster in simulated time: clients, a router, replicas that come and go, and a shared tier. The replicas have the real scheduler, KV cache and
 * connector. The seed decides everything.
 */
export class Cluster {
  readonly #options: ClusterOptions;
  readonly #time = new SimulatedTime();
  readonly #checker = new ClientChecker();
  readonly #conversations: readonly Conversation[];
  /** By turn. */
  readonly #talking = new Map<string, Conversation>();
  readonly #tiers: readonly SharedTier[];
  readonly #replicas: readonly Replica[];
  readonly #router: Router;
  readonly #faultTimes: FaultTimes;
  #overCount = 0;
  #progressMs = 0;
  #left = 0;

  constructor(seed: number, options: ClusterOptions) {
    this.#options = options;
    const prng = new Prng(seed);
    this.#conversations = createConversations(prng.fork().uint32(), options.workload);
    const engine = engineOptions(options);
    const time = this.#time;
    // Clusters with and without a tier have the same faults.
    const [tierPrng, faultPrng] = [prng.fork(), prng.fork()];
    this.#tiers = tierOptions(options, engine.identity).map(
      (tier, i) =>
        // The first tier is the same with and without others.
        new SharedTier(time, i === 0 ? tierPrng : tierPrng.fork(), tier),
    );
    const surroundings = { time, tiers: this.#tiers };
    const newLink = (): Link => new Link(time, prng.fork(), options.networkDelayMs);
    this.#replicas = Array.from({ length: options.replicas }, (_, index) => {
      const links = { toRouter: newLink(), fromRouter: newLink() };
      const router = (): RouterPort => this.#router;
      return new Replica(index, { ...links, router }, surroundings, { engine, startMs: options.startMs });
    });
    const { routing, poolTokens } = options;
    this.#router = new Router(
      time,
      this.#replicas,
      { routing, poolTokens },
      {
        token: (id, token) => this.#received(id, token),
        ended: (id, stats) => this.#ended(id, stats),
      },
    );
    this.#faultTimes = new FaultTimes(time, faultPrng, options, {
      replicas: this.#replicas,
      tiers: this.#tiers,
      leave: (pick) => this.#leave(pick),
    });
  }

  /** Runs until all conversations are over. Rejects at the first failed check, and with the signal's reason at an abort. */
  async run(signal?: AbortSignal): Promise<ClusterReport> {
    const time = this.#time;
    for (const conversation of this.#conversations) time.after(conversation.beginsMs, () => this.#talk(conversation));
    const { calmAfterMs } = this.#options;
    if (calmAfterMs < Infinity) time.after(calmAfterMs, () => this.#faultTimes.calm());
    this.#watch();
    await time.run(() => this.#overCount === this.#conversations.length || signal?.aborted === true);
    signal?.throwIfAborted();
    if (this.#options.stack !== undefined) await this.#settle();
    const sum = (of: (replica: Replica) => number): number =>
      this.#replicas.reduce((total, replica) => total + of(replica), 0);
    return {
      ...this.#checker.totals,
      replicas: this.#options.replicas,
      simulatedSeconds: time.nowMs() / 1000,
      steps: sum(({ steps }) => steps),
      computedTokens: sum(({ computedTokens }) => computedTokens),
      left: this.#left,
      retries: this.#router.retries,
      faults: this.#faultTimes.counts,
      tier: {
        loads: sumOf(this.#tiers, 'loads'),
        loadFailures: sumOf(this.#tiers, 'loadFailures'),
        stores: sumOf(this.#tiers, 'stores'),
      },
    };
  }

  /** No requests are left: all blocks that wait are written, and none stays pinned for it. */
  async #settle(): Promise<void> {
    const time = this.#time;
    this.#faultTimes.calm();
    const untilMs = this.#faultTimes.calmMs + settleMs;
    const areSettled = (): boolean => this.#replicas.every(({ isSettled }) => isSettled);
    await time.run(() => areSettled() || time.nowMs() > Math.max(untilMs, this.#progressMs + settleMs));
    assert(areSettled(), 'I8: blocks wait to be written, or stay pinned in host memory, without an end');
    const { crashes, drains, orders } = this.#faultTimes.counts;
    const isLossless = crashes + drains + orders === 0 && this.#tiers.every((tier) => tier.isLossless);
    if (isLossless && this.#replicas.every(({ hasWrittenAll }) => hasWrittenAll))
      for (const replica of this.#replicas) replica.checkWritten();
  }

  #talk(conversation: Conversation): void {
    const turn = conversation.next();
    if (turn === undefined) {
      this.#overCount++;
      return;
    }
    this.#talking.set(turn.id, conversation);
    this.#checker.sent(turn, this.#time.nowMs());
    this.#progressMs = this.#time.nowMs();
    this.#router.submit(turn);
  }

  #received(id: string, token: number): void {
    this.#progressMs = this.#time.nowMs();
    this.#checker.token(id, token, this.#time.nowMs());
  }

  #ended(id: string, stats: RequestStats): void {
    const { thinkMs } = this.#checker.ended(id, stats);
    const conversation = this.#talking.get(id)!;
    this.#talking.delete(id);
    this.#time.after(thinkMs, () => this.#talk(conversation));
  }

  /** A client closes its connection, and its conversation is over. */
  #leave(pick: (ids: readonly string[]) => string): boolean {
    const ids = this.#checker.openIds;
    if (ids.length === 0) return false;
    const id = pick(ids);
    this.#talking.delete(id);
    this.#checker.left(id);
    this.#router.cancel(id);
    this.#left++;
    this.#overCount++;
    return true;
  }

  #watch(): void {
    const { openIds } = this.#checker;
    const sinceMs = Math.max(this.#progressMs, this.#faultTimes.calmMs);
    if (openIds.length > 0 && this.#time.nowMs() - sinceMs > stalledMs)
      this.#time.fail(new Error(`I8: ${openIds.length} requests are lost: ${openIds.slice(0, 5).join(', ')}`));
    this.#time.after(watchMs, () => this.#watch());
  }
}

const sumOf = (tiers: readonly SharedTier[], count: keyof SharedTier['counts']): number =>
  tiers.reduce((sum, { counts }) => sum + counts[count], 0);

/** One for each tier. */
function tierOptions(options: ClusterOptions, identity: KvIdentity): readonly SharedTierOptions[] {
  const { tier, tierCount = 1, blockSize } = options;
  if (tier === undefined) return [];
  return Array.from({ length: tierCount }, () => ({
    bytesPerMs: tier.gigabitsPerSecond * bytesPerMsOfGigabit,
    replicaBytesPerMs: options.replicaGigabitsPerSecond * bytesPerMsOfGigabit,
    latencyMs: tier.latencyMs,
    blocksMax: Math.max(Math.floor(tier.tokensMax / blockSize), 1),
    blockBytes: blockSize * options.costs.kvBytesPerToken,
    identity,
    faults: options.faults,
  }));
}

function engineOptions(options: ClusterOptions): EngineProcessOptions {
  const { blockSize, poolTokens, workload, costs } = options;
  const longest = longestText(workload);
  assert(poolTokens >= longest, `a pool of ${poolTokens} tokens is too small for texts of ${longest} tokens`);
  const blockBytes = blockSize * 4;
  const spec: KvCacheSpec = {
    groups: [{ kind: 'full', blockSize: blockSize as TokenCount, layers: [0] }],
    blockBytes,
    blockCount: (Math.floor(poolTokens / blockSize) + 2) as BlockCount,
    fingerprint: 'cluster',
  };
  const identity: KvIdentity = {
    fingerprint: spec.fingerprint,
    modelName: 'cluster',
    dtype: 'f16',
    rank: 0,
    worldSize: 1,
    blockBytes,
    groups: [{ blockSize, layers: [0] }],
  };
  return {
    spec,
    identity,
    scheduler: {
      maxNumBatchedTokens: options.maxNumBatchedTokens,
      maxNumSeqs: options.maxNumSeqs,
      maxModelLen: longest + 1,
      enablePrefixCaching: true,
      policy: 'fcfs',
      targetInterTokenLatency: 'auto',
    },
    loadPolicy: options.loadPolicy,
    stack: options.tier === undefined ? undefined : options.stack,
    stepTimes: new StepTimes(costs),
    checkEvery: options.checkEvery,
  };
}
