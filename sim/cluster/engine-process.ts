import { assert } from '../../src/base/assert.ts';
import { sha256 } from '../../src/base/sha256.ts';
import {
  type ConnectorContext,
  emptyMetadata,
  type KvIdentity,
  type KvLoadPolicy,
  type WorkerConnector,
} from '../../src/connector/connector.ts';
import { MultiScheduler } from '../../src/connector/multi/multi-scheduler.ts';
import { MultiWorker } from '../../src/connector/multi/multi-worker.ts';
import { TierScheduler } from '../../src/connector/places/tier-scheduler.ts';
import { TierWorker } from '../../src/connector/tier/tier-worker.ts';
import { stepWithConnector } from '../../src/connector/transfer/worker-step.ts';
import type { RequestId } from '../../src/core/ids.ts';
import type { KvCacheSpec } from '../../src/core/kv-spec.ts';
import type { EngineRequest, RequestStats } from '../../src/core/request.ts';
import type { StepResult } from '../../src/core/step.ts';
import type { ExecutedStep, ScheduledStep, SchedulerOptions } from '../../src/scheduler/contract.ts';
import { Scheduler } from '../../src/scheduler/scheduler.ts';
import type { StepTimes } from './costs.ts';
import { LinearRunner } from './linear-runner.ts';
import { type SharedTier, TierConnection } from './shared-tier.ts';
import type { SimulatedTime } from './simulated-time.ts';

export interface EngineProcessOptions {
  readonly spec: KvCacheSpec;
  readonly identity: KvIdentity;
  readonly scheduler: SchedulerOptions;
  readonly loadPolicy: KvLoadPolicy;
  readonly stepTimes: StepTimes;
  /** All invariants of the scheduler are checked after one in so many steps. */
  readonly checkEvery: number;
}

export interface Surroundings {
  readonly time: SimulatedTime;
  /** Each is the store of a connector, in the order in which they load. None: replicas share nothing. */
  readonly tiers: readonly SharedTier[];
}

/** What one step has done for one request. */
export interface Reply {
  readonly id: string;
  readonly tokens: readonly number[];
  /** The request has ended. */
  readonly end?: RequestStats;
}

export interface EngineProcessEvents {
  replied(replies: readonly Reply[]): void;
  /** After `close`: all requests have ended, and all saves are stored. */
  closed(): void;
}

/** Limits of the real connector (`shared-storage-connector.ts`, `offloading-settings.ts`). */
const tierLimits = { loadsAtOnce: 8, savesAtOnce: 4, saveTimeoutMs: 30_000, lookupTimeoutMs: 1000 };
/** Blocks that wait to be stored; further blocks are not saved. */
const saveBufferBlocks = 256;
const closeTimeoutMs = 10_000;

/**
 * One life of a replica, from its start to its end: the real scheduler and KV cache, both sides of the real connector (`connector/tier`) on
 * each tier, and
 * a fake runner. Its loop is that of `engine/step.ts`, in simulated time.
 */
export class EngineProcess {
  readonly #time: SimulatedTime;
  readonly #options: EngineProcessOptions;
  readonly #events: EngineProcessEvents;
  readonly #runner: LinearRunner;
  readonly #scheduler: Scheduler;
  readonly #worker: WorkerConnector | undefined;
  #isDead: boolean = false;
  #isClosing: boolean = false;
  #pausedUntilMs = 0;
  #wakeUp: () => void = () => undefined;
  steps = 0;
  computedTokens = 0;

  /** `garbage`: what its memory has at first. */
  constructor(
    { time, tiers }: Surroundings,
    options: EngineProcessOptions,
    events: EngineProcessEvents,
    garbage: number,
  ) {
    this.#time = time;
    this.#options = options;
    this.#events = events;
    const { spec, identity, loadPolicy } = options;
    this.#runner = new LinearRunner(spec.blockCount, spec.groups[0]!.blockSize, garbage);
    const context: ConnectorContext = { clock: time, timers: time, wake: () => this.#notify() };
    const sides = tiers.map((tier) => sidesOf(tier, context, identity));
    const schedulers = sides.map(({ scheduler }) => scheduler);
    const workers = sides.map(({ worker }) => worker);
    const connector = sides.length > 1 ? new MultiScheduler(schedulers, time) : schedulers[0];
    this.#worker = sides.length > 1 ? new MultiWorker(workers) : workers[0];
    this.#worker?.registerKvCaches(this.#runner);
    this.#scheduler = new Scheduler(spec, options.scheduler, sha256, { connector, loadPolicy });
    this.#run().catch((error: unknown) => time.fail(error));
  }

  add(request: EngineRequest): void {
    this.#scheduler.add(request);
    this.#wakeUp();
  }

  abort(id: RequestId): void {
    this.#scheduler.abort(id);
    this.#wakeUp();
  }

  /** The process does nothing until then. */
  pause(untilMs: number): void {
    this.#pausedUntilMs = Math.max(this.#pausedUntilMs, untilMs);
  }

  /** The process ends at once, and its memory is lost. */
  kill(): void {
    this.#isDead = true;
    this.#wakeUp();
  }

  /** Ends the process after its last request. */
  close(): void {
    this.#isClosing = true;
    this.#wakeUp();
  }

  async #run(): Promise<void> {
    for (;;) {
      await this.#whilePaused();
      if (this.#isDead) return;
      const plan = this.#scheduler.plan(this.#time.nowMs());
      if (plan !== undefined) await this.#step(plan);
      else if (this.#isClosing && !this.#scheduler.hasWork()) break;
      else await this.#idle();
    }
    this.#time.needTurns(closingTurns);
    await this.#worker?.shutdown({ timeoutMs: closeTimeoutMs });
    if (this.#isDead) return;
    this.#isDead = true;
    this.#events.closed();
  }

  async #step(plan: ScheduledStep): Promise<void> {
    const { checkEvery } = this.#options;
    const result = await this.#execute(plan);
    if (this.#isDead) return;
    const replies = this.#scheduler
      .apply(plan, result, this.#time.nowMs())
      .map(({ requestId, newTokens, finish, stats }): Reply => {
        if (finish?.reason === 'error') assert(false, `I9: ${requestId} ended with an error: ${finish.error?.message}`);
        const tokens = newTokens.map(({ token }) => token);
        return { id: requestId, tokens, ...(finish === undefined ? {} : { end: { ...stats } }) };
      });
    if (++this.steps % checkEvery === 0) this.#scheduler.checkInvariants();
    this.computedTokens += plan.tokenCount;
    if (replies.length > 0) this.#events.replied(replies);
  }

  async #execute(plan: ScheduledStep): Promise<ExecutedStep> {
    const ms = this.#options.stepTimes.stepMs(plan.sequences);
    const forward = async (): Promise<StepResult> => {
      await this.#time.sleep(ms);
      await this.#whilePaused();
      return this.#runner.execute(plan);
    };
    if (this.#worker === undefined) return forward();
    const metadata = plan.connectorMetadata ?? emptyMetadata;
    this.#time.needTurns(2 + metadata.saves.reduce((sum, { blocks }) => sum + blocks.length, 0));
    const hasTokens = plan.sequences.length > 0;
    const { result, output } = await stepWithConnector(this.#worker, metadata, 1, hasTokens ? forward : undefined);
    if (result === undefined) await this.#time.sleep(ms);
    return { stepId: plan.stepId, sampled: [], ...result, connectorOutputs: [output] };
  }

  /** Until the scheduler has something to do. */
  #idle(): Promise<void> {
    return new Promise((resolve) => {
      const atMs = this.#scheduler.nextWakeMs();
      const timer =
        atMs === undefined ? undefined : this.#time.after(Math.max(atMs - this.#time.nowMs(), leastIdleMs), resolve);
      this.#wakeUp = () => {
        timer?.cancel();
        resolve();
      };
    });
  }

  async #whilePaused(): Promise<void> {
    for (;;) {
      const leftMs = this.#pausedUntilMs - this.#time.nowMs();
      if (leftMs <= 0 || this.#isDead) return;
      await this.#time.sleep(leftMs);
    }
  }

  #notify(): void {
    if (this.#isDead) return;
    this.#scheduler.notifyTransfers(this.#time.nowMs());
    this.#wakeUp();
  }
}

/** Both sides of a connector on the tier. */
function sidesOf(tier: SharedTier, context: ConnectorContext, identity: KvIdentity) {
  const connection = new TierConnection(tier);
  const { lookupTimeoutMs, ...ofWorker } = tierLimits;
  const ofScheduler = { role: 'kv_both', mode: 'async', lookupTimeoutMs } as const;
  const saveBufferBytes = saveBufferBlocks * identity.blockBytes;
  return {
    scheduler: new TierScheduler([connection], { ...context, identities: [identity] }, ofScheduler),
    worker: new TierWorker(connection, { ...context, identity }, { ...ofWorker, saveBufferBytes }),
  };
}

/** Turns of Node's event loop in which the worker's shutdown copies the rest of the saves and ends. */
const closingTurns = 20;
/** Rounding must not wake the scheduler before its time. */
const leastIdleMs = 0.01;
