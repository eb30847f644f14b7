import { setTimeout as delay } from 'node:timers/promises';
import { assert, assertDefined } from '../base/assert.ts';
import type { Clock } from '../base/clock.ts';
import { KvasirError } from '../base/errors.ts';
import { checkFreeFiles } from '../base/free-files.ts';
import type { KvIdentity } from '../connector/connector.ts';
import type { TierOrder, TierOrderAnswer } from '../connector/tier-orders.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { DraftRequest } from '../core/step.ts';
import type { AdapterSource } from '../ggml/lora-adapter.ts';
import type { ScheduledStep } from '../scheduler/contract.ts';
import { orderLost, workerChanged, workerGone, workerStartFailed } from './errors.ts';
import { outputAfterDeath } from './output-after-death.ts';
import type { OpenedRank, RankOutput, RankTimings, RankTrouble, UpstreamOutput } from './rank.ts';
import { RestartBudget, type RestartPolicy } from './restart-budget.ts';
import { StepEncoder } from './step-codec.ts';
import { decodeOutput, type OutputMessage, type RankFacts } from './worker-messages.ts';
import { type WorkerEnd, type WorkerOptions, WorkerProcess } from './worker-process.ts';
import { StepDeadlines, stepCost } from './worker-watch.ts';

export interface ProcessRankOptions<Setup> extends WorkerOptions<Setup> {
  readonly clock: Clock;
  readonly restarts: RestartPolicy;
  /** A worker has died. A new one is started unless `isGivenUp`. */
  readonly onDeath: (death: WorkerDeath) => void;
}

export interface WorkerDeath {
  readonly rank: string;
  readonly processId: number;
  /** The predicate of a sentence: `died of SIGKILL`. */
  readonly reason: string;
  /** The whole sentence. */
  readonly message: string;
  readonly isGivenUp: boolean;
}

/**
 * A rank in its own process. The process may die of a signal or of a bug in native code, or it hangs and is killed
 * (`worker-watch.ts`). Then the step in flight, or the next step, reports that every block of this rank is invalid and
 * that its transfers have failed. A new process starts. The KV is computed again, and the text is the same.
 */
export class ProcessRank<Setup> implements OpenedRank {
  readonly kvCacheSpec: KvCacheSpec;
  readonly identity: KvIdentity;
  readonly attentionDescription: string;
  readonly #options: ProcessRankOptions<Setup>;
  readonly #budget: RestartBudget;
  readonly #deadlines: StepDeadlines;
  /** The process that serves; undefined while the next one starts. */
  #serving: WorkerProcess<Setup> | undefined;
  #starting: Promise<WorkerProcess<Setup>> | undefined;
  /** The last process that was started. */
  #latest: WorkerProcess<Setup>;
  #encoder = new StepEncoder();
  /** A process has died, and no step has reported its blocks as invalid yet. */
  #isDeathUnreported: boolean = false;
  /** Why no process serves. */
  #workerFailure: Omit<RankTrouble, 'rank' | 'processId'> | undefined;
  #timings = noTimings;
  /** Those that each new process loads. */
  readonly #adapters = new Map<string, AdapterSource>();
  /** The last order to attach or detach each tier, which each new process carries out too. */
  readonly #lastingOrders = new Map<string, TierOrder>();
  #isExecuting: boolean = false;
  #closing: Promise<void> | undefined;

  /** @throws the error of the worker that could not open its rank, or `workerStartFailed`. */
  static async open<Setup>(options: ProcessRankOptions<Setup>): Promise<ProcessRank<Setup>> {
    const deadlines = new StepDeadlines(options.timeoutMs);
    const worker = new WorkerProcess(options, deadlines);
    try {
      return new ProcessRank(options, worker, deadlines, await worker.ready);
    } catch (error) {
      const { reason } = await worker.gone;
      throw error instanceof KvasirError ? error : workerStartFailed({ rank: options.name, reason }, error);
    }
  }

  private constructor(
    options: ProcessRankOptions<Setup>,
    worker: WorkerProcess<Setup>,
    deadlines: StepDeadlines,
    facts: RankFacts,
  ) {
    this.kvCacheSpec = facts.kvCacheSpec;
    this.identity = facts.identity;
    this.attentionDescription = facts.attentionDescription;
    this.#options = options;
    this.#deadlines = deadlines;
    this.#budget = new RestartBudget(options.restarts);
    this.#latest = worker;
    this.#serve(worker);
  }

  get processId(): number {
    return this.#latest.processId;
  }

  timings(): RankTimings {
    return added(this.#timings, this.#latest.timings);
  }

  trouble(): RankTrouble | undefined {
    const { name: rank } = this.#options;
    const { processId } = this.#latest;
    const silentMs = this.#latest.unansweredMs();
    if (this.#workerFailure !== undefined) return { rank, processId, ...this.#workerFailure };
    if (silentMs === undefined) return undefined;
    const message = `The worker process of ${rank} has not answered for ${Math.round(silentMs / 1000)} s.`;
    return { rank, processId, state: 'silent', message };
  }

  async execute(step: ScheduledStep, upstream: Promise<UpstreamOutput> | undefined): Promise<RankOutput> {
    assert(!this.#isExecuting, `step ${step.stepId} begins on ${this.#options.name} while another step is in flight`);
    this.#isExecuting = true;
    try {
      return await this.#execute(step, upstream);
    } finally {
      this.#isExecuting = false;
    }
  }

  async #execute(step: ScheduledStep, upstream: Promise<UpstreamOutput> | undefined): Promise<RankOutput> {
    if (!this.#isDeathUnreported) {
      // If a worker serves, the step is sent without an await before it.
      const worker = this.#serving ?? (await this.#next());
      const answer = this.#isDeathUnreported ? undefined : await this.#run(worker, step, upstream);
      if (answer !== undefined) return decodeOutput(answer);
    }
    const hasDied = this.#isDeathUnreported || this.#closing !== undefined;
    assert(hasDied, `step ${step.stepId} has no answer of ${this.#options.name}, whose process has not died`);
    this.#isDeathUnreported = false;
    return outputAfterDeath(step, this.kvCacheSpec);
  }

  async #run(
    worker: WorkerProcess<Setup>,
    step: ScheduledStep,
    upstream: Promise<UpstreamOutput> | undefined,
  ): Promise<OutputMessage | undefined> {
    const cost = stepCost(step);
    const before = worker.timings?.computeMs ?? 0;
    const answer = await worker.run(this.#encoder.encode(step), upstream, cost);
    if (answer !== undefined) this.#deadlines.learn(cost, (worker.timings?.computeMs ?? 0) - before);
    return answer;
  }

  async loadAdapter(source: AdapterSource): Promise<void> {
    this.#adapters.set(source.digest, source);
    try {
      // A process that dies meanwhile is replaced.
      while (this.#closing === undefined) {
        const worker = this.#serving ?? (await this.#next());
        if (await worker.loadAdapter(source)) return;
      }
    } catch (error) {
      this.#adapters.delete(source.digest);
      throw error;
    }
  }

  async unloadAdapter(digest: string): Promise<void> {
    this.#adapters.delete(digest);
    this.#latest.unloadAdapter(digest);
  }

  async administer(order: TierOrder): Promise<TierOrderAnswer> {
    const worker = this.#serving ?? (await this.#next());
    const answer = await worker.administer(order);
    if (order.kind === 'attach' || order.kind === 'detach') this.#lastingOrders.set(order.tier, order);
    // The memory of a process that has died is gone. What is in its tiers is not removed, so the caller must ask again.
    if (answer === undefined) throw orderLost({ rank: this.#options.name });
    return answer;
  }

  /** Without drafts if no process serves: the next step reports its death. */
  async draft(requests: readonly DraftRequest[], count: number): Promise<readonly Int32Array[]> {
    const drafts = await this.#serving?.draft(requests, count, requests.length * (count + 1));
    return drafts ?? requests.map(() => new Int32Array(0));
  }

  close({ timeoutMs }: { readonly timeoutMs: number }): Promise<void> {
    this.#closing ??= this.#latest.close(timeoutMs);
    return this.#closing;
  }

  #next(): Promise<WorkerProcess<Setup>> {
    return assertDefined(this.#starting, 'a worker serves, or one starts');
  }

  #serve(worker: WorkerProcess<Setup>): void {
    assert(
      this.#serving === undefined && worker === this.#latest,
      `${this.#options.name} has two processes that serve`,
    );
    this.#serving = worker;
    this.#workerFailure = undefined;
    const readyMs = this.#options.clock.nowMs();
    void worker.gone.then((end) => {
      if (this.#closing !== undefined) return;
      assert(this.#serving === worker, `the process of ${this.#options.name} that died did not serve`);
      this.#serving = undefined;
      this.#isDeathUnreported = true;
      this.#timings = this.timings();
      worker.timings = undefined;
      this.#encoder = new StepEncoder();
      this.#starting = this.#startAgain(worker, end, this.#options.clock.nowMs() - readyMs);
      // If there is no further step, the rejection needs no handler.
      this.#starting.catch(() => undefined);
      // Transfers of the dead process have ended.
      this.#options.onWake();
    });
  }

  async #startAgain(exited: WorkerProcess<Setup>, how: WorkerEnd, servedMs: number): Promise<WorkerProcess<Setup>> {
    const { name: rank, onDeath } = this.#options;
    const next = this.#budget.ended(servedMs);
    const isGivenUp = !('delayMs' in next);
    const what = `The worker process of ${rank} ${how.reason}`;
    this.#workerFailure = isGivenUp
      ? { state: 'gone', message: `${what}, and is not started again.` }
      : { state: 'restarting', message: `${what}. It is started again, and its KV is computed again.` };
    onDeath({ rank, processId: exited.processId, reason: how.reason, isGivenUp, message: this.#workerFailure.message });
    if (isGivenUp) throw workerGone({ rank, reason: how.reason, ...next }, how.error);
    if (next.delayMs > 0) await delay(next.delayMs);
    await this.#untilFilesAreFree(what);
    if (this.#closing !== undefined) throw workerGone({ rank, reason: how.reason, starts: 1, seconds: 0 });
    const worker = new WorkerProcess({ ...this.#options, onProgress: undefined }, this.#deadlines);
    this.#latest = worker;
    try {
      this.#checkSame(await worker.ready);
      await this.#loadAdaptersAgain(worker);
      await this.#carryOutAgain(worker);
    } catch (error) {
      worker.kill();
      const end = await worker.gone;
      if (isFinal(error)) this.#workerFailure = { state: 'gone', message: (error as Error).message };
      if (this.#closing !== undefined || isFinal(error)) throw error;
      return this.#startAgain(worker, end, 0);
    }
    this.#serve(worker);
    return worker;
  }

  /** Requests with an adapter whose file is gone end with an error, and others go on. */
  async #loadAdaptersAgain(worker: WorkerProcess<Setup>): Promise<void> {
    for (const source of [...this.#adapters.values()]) {
      await worker.loadAdapter(source).catch((error: unknown) => this.#options.onEvent?.((error as Error).message));
    }
  }

  /** A tier that cannot be opened again is missing on this rank, so its blocks are computed. */
  async #carryOutAgain(worker: WorkerProcess<Setup>): Promise<void> {
    for (const order of [...this.#lastingOrders.values()])
      await worker.administer(order).catch((error: unknown) => this.#options.onEvent?.((error as Error).message));
  }

  /** Without free file descriptors, a start would fail and count as a crash of the worker. */
  async #untilFilesAreFree(what: string): Promise<void> {
    while (this.#closing === undefined) {
      try {
        checkFreeFiles(filesOfStart);
        return;
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException;
        const message = `${what}, and cannot be started again yet: this process has no free file descriptor (${code}).`;
        this.#workerFailure = { state: 'restarting', message };
        await delay(freeFilesMs);
      }
    }
  }

  #checkSame({ kvCacheSpec }: RankFacts): void {
    const { fingerprint, numerics, blockCount, blockBytes } = this.kvCacheSpec;
    const isSame =
      kvCacheSpec.fingerprint === fingerprint &&
      kvCacheSpec.numerics === numerics &&
      kvCacheSpec.blockCount === blockCount &&
      kvCacheSpec.blockBytes === blockBytes;
    if (!isSame) throw workerChanged({ rank: this.#options.name });
  }
}

/** Pipes and sockets between the two processes, and more than that. */
const filesOfStart = 16;
const freeFilesMs = 500;

const isFinal = (error: unknown): boolean =>
  error instanceof KvasirError && error.code === workerChanged.definition.code;

const noTimings: RankTimings = { steps: 0, prepareMs: 0, computeMs: 0, sampleMs: 0 };

const added = (a: RankTimings, b: RankTimings = noTimings): RankTimings => ({
  steps: a.steps + b.steps,
  prepareMs: a.prepareMs + b.prepareMs,
  computeMs: a.computeMs + b.computeMs,
  sampleMs: a.sampleMs + b.sampleMs,
});
