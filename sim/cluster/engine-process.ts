import { assert } from '../../src/base/assert.ts';
import type { Prng } from '../../src/base/prng.ts';
import { sha256 } from '../../src/base/sha256.ts';
import {
  type ConnectorContext,
  emptyMetadata,
  type KvIdentity,
  type KvLoadPolicy,
  type WorkerConnector,
} from '../../src/connector/connector.ts';
import { stepWithConnector } from '../../src/connector/transfer/worker-step.ts';
import type { RequestId } from '../../src/core/ids.ts';
import type { KvCacheSpec } from '../../src/core/kv-spec.ts';
import type { EngineRequest, RequestStats } from '../../src/core/request.ts';
import type { StepResult } from '../../src/core/step.ts';
import type { ExecutedStep, ScheduledStep, SchedulerOptions } from '../../src/scheduler/contract.ts';
import { Scheduler } from '../../src/scheduler/scheduler.ts';
import type { StepTimes } from './costs.ts';
import { LinearRunner } from './linear-runner.ts';
import { Operator } from './operator.ts';
import { ProcessLife } from './process-life.ts';
import type { SharedTier } from './shared-tier.ts';
import { directShelf, type Shelf } from './shelf.ts';
import type { SimulatedTime } from './simulated-time.ts';
import { type StackShape, StackShelf } from './stack-shelf.ts';

export interface EngineProcessOptions {
  readonly spec: KvCacheSpec;
  readonly identity: KvIdentity;
  readonly scheduler: SchedulerOptions;
  readonly loadPolicy: KvLoadPolicy;
  /** Undefined: no host memory; each tier has a connector of its own. */
  readonly stack: StackShape | undefined;
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

const closeTimeoutMs = 10_000;

/**
 * One life of a replica, from its start to its end: the real scheduler and KV cache, both sides of the real connector on the
 * tiers, and a fake runner. Its loop is that of `engine/step.ts`, in simulated time.
 */
export class EngineProcess {
  readonly #time: SimulatedTime;
  readonly #options: EngineProcessOptions;
  readonly #events: EngineProcessEvents;
  readonly #runner: LinearRunner;
  readonly #scheduler: Scheduler;
  readonly #life: ProcessLife;
  readonly #shelf: Shelf;
  /** Undefined: there is no stack. */
  readonly #operator: Operator | undefined;
  #worker: WorkerConnector | undefined;
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
    this.#life = new ProcessLife(time);
    const life = this.#life;
    const context: ConnectorContext = { clock: life, timers: life, wake: () => this.#notify() };
    const stack = options.stack && new StackShelf(tiers, life, context, { identity, shape: options.stack });
    this.#shelf = stack ?? directShelf(tiers, life, context, identity);
    const connector = this.#shelf.scheduler;
    this.#scheduler = new Scheduler(spec, options.scheduler, sha256, { connector, loadPolicy });
    this.#operator = stack && new Operator(life, this.#scheduler, stack);
    this.#run().catch((error: unknown) => time.fail(error));
  }

  add(request: EngineRequest): void {
    this.#operator?.saw(request);
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
    this.#life.end();
    this.#wakeUp();
  }

  /** Ends the process after its last request. */
  close(): void {
    this.#isClosing = true;
    this.#wakeUp();
  }

  /** An order of an administrator, by chance. False: there is nothing to order. */
  order(prng: Prng): boolean {
    if (this.#worker === undefined || this.#operator === undefined) return false;
    const ordered = this.#operator.order(this.#worker, prng);
    ordered.catch((error: unknown) => this.#time.fail(error));
    return true;
  }

  /** Of a stack: nothing is being written. */
  get isSettled(): boolean {
    return this.#worker === undefined || this.#shelf.isWriting !== true;
  }

  get hasWrittenAll(): boolean {
    return this.#worker === undefined || !(this.#shelf instanceof StackShelf) || this.#shelf.hasWrittenAll;
  }

  checkWritten(): void {
    if (this.#worker !== undefined && this.#shelf instanceof StackShelf) this.#shelf.checkWritten();
  }

  async #run(): Promise<void> {
    this.#worker = await this.#shelf.openWorker();
    this.#worker?.registerKvCaches(this.#runner);
    for (;;) {
      await this.#whilePaused();
      if (this.#life.isOver) return;
      const plan = this.#scheduler.plan(this.#time.nowMs());
      if (plan !== undefined) await this.#step(plan);
      else if (this.#isClosing && !this.#scheduler.hasWork()) break;
      else await this.#idle();
    }
    this.#time.needTurns(closingTurns);
    await this.#worker?.shutdown({ timeoutMs: closeTimeoutMs });
    if (this.#life.isOver) return;
    this.#life.end();
    this.#events.closed();
  }

  async #step(plan: ScheduledStep): Promise<void> {
    const { checkEvery } = this.#options;
    const result = await this.#execute(plan);
    if (this.#life.isOver) return;
    const replies = this.#scheduler
      .apply(plan, result, this.#time.nowMs())
      .map(({ requestId, newTokens, finish, stats }): Reply => {
        if (finish?.reason === 'error') assert(false, `I9: ${requestId} ended with an error: ${finish.error?.message}`);
        const tokens = newTokens.map(({ token }) => token);
        return { id: requestId, tokens, ...(finish === undefined ? {} : { end: { ...stats } }) };
      });
    if (++this.steps % checkEvery === 0) {
      this.#scheduler.checkInvariants();
      this.#shelf.check?.();
    }
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
      if (leftMs <= 0 || this.#life.isOver) return;
      await this.#time.sleep(leftMs);
    }
  }

  #notify(): void {
    if (this.#life.isOver) return;
    this.#scheduler.notifyTransfers(this.#time.nowMs());
    this.#wakeUp();
  }
}

/** Turns of Node's event loop in which the worker's shutdown copies the rest of the saves and ends. */
const closingTurns = 20;
/** Rounding must not wake the scheduler before its time. */
const leastIdleMs = 0.01;
