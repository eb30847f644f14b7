import { type ChildProcess, fork } from 'node:child_process';
import { assert, assertDefined } from '../base/assert.ts';
import { trackChild } from '../base/child-processes.ts';
import { leaveRemovedFolder } from '../base/working-folder.ts';
import type { TierOrder, TierOrderAnswer } from '../connector/tier-orders.ts';
import type { DraftRequest } from '../core/step.ts';
import type { AdapterSource } from '../ggml/lora-adapter.ts';
import { decodeError } from './error-codec.ts';
import { inheritedFlags } from './node-flags.ts';
import type { RankTimings, UpstreamOutput } from './rank.ts';
import type { StepMessage } from './step-codec.ts';
import type { FromWorker, OutputMessage, RankFacts, ToWorker } from './worker-messages.ts';
import { type StepDeadlines, WorkerWatch } from './worker-watch.ts';

export interface WorkerOptions<Setup> {
  /** For people, also in the process list: `rank 1 of 2`. */
  readonly name: string;
  /** The built file whose process serves the rank. */
  readonly entry: string;
  /** A worker that does not answer for this time is killed; Infinity: never. */
  readonly timeoutMs: number;
  /** Plain data from which the worker opens its rank. */
  readonly setup: Setup;
  readonly onProgress?: ((loadedBytes: number, totalBytes: number) => void) | undefined;
  /** Transfers have ended outside a step. */
  readonly onWake: () => void;
  /** Receives events of the process for the operator. */
  readonly onEvent?: (message: string) => void;
}

/** How a worker process ended. */
export interface WorkerEnd {
  /** The predicate of a sentence: `died of SIGKILL`. */
  readonly reason: string;
  /** The error that the process reported before its end. */
  readonly error?: Error;
}

/** After its close timeout and this time, a worker is killed. */
const closeGraceMs = 2_000;

/**
 * A worker process, which opens a rank, serves steps, and ends. The engine's process can exit at any time at which no
 * answer is awaited.
 */
export class WorkerProcess<Setup> {
  readonly processId: number;
  /** Rejects with the worker's error if it cannot open its rank. Then the process has ended or will end. */
  readonly ready: Promise<RankFacts>;
  /** Resolves when the process has ended; never rejects. */
  readonly gone: Promise<WorkerEnd>;
  timings: RankTimings | undefined;
  readonly #child: ChildProcess;
  readonly #options: WorkerOptions<Setup>;
  readonly #opened = new Settlement<RankFacts>();
  #step: Settlement<OutputMessage | undefined> | undefined;
  /** By digest. */
  readonly #adapterLoads = new Map<string, Settlement<boolean>>();
  /** By id. */
  readonly #orders = new Map<number, Settlement<TierOrderAnswer | undefined>>();
  #lastOrder = 0;
  #drafts: Settlement<readonly Int32Array[] | undefined> | undefined;
  readonly #watched: WorkerWatch;
  #reportedError: Error | undefined;
  /** Why this process killed the worker. */
  #killedBecause: string | undefined;
  #isReady: boolean = false;
  #isGone: boolean = false;
  #isClosing: boolean = false;
  #waiters = 0;

  constructor(options: WorkerOptions<Setup>, deadlines: StepDeadlines) {
    this.#options = options;
    leaveRemovedFolder();
    // Output of connectors and native libraries goes to standard error, because programs may read the standard output.
    this.#child = fork(options.entry, [options.name], {
      serialization: 'advanced',
      stdio: ['ignore', 2, 2, 'ipc'],
      execArgv: inheritedFlags(),
    });
    trackChild(this.#child);
    this.processId = this.#child.pid ?? 0;
    this.ready = this.#opened.promise;
    this.ready.catch(() => undefined);
    this.#wait();
    this.#watched = new WorkerWatch({
      timeoutMs: options.timeoutMs,
      deadlines,
      ping: () => this.#send({ kind: 'ping' }),
      onStuck: (reason) => {
        this.#killedBecause = reason;
        this.kill();
      },
    });
    this.gone = this.#watch();
    this.#send({ kind: 'open', setup: options.setup });
  }

  /** How long the worker has not answered, if that is unusually long. */
  unansweredMs(): number | undefined {
    return this.#isGone ? undefined : this.#watched.unansweredMs();
  }

  /**
   * The worker's answer to a step; undefined if the process ends before it. The step is sent before this returns. Rejects
   * if `upstream` rejects. `cost`: from `stepCost`.
   */
  run(
    step: StepMessage,
    upstream: Promise<UpstreamOutput> | undefined,
    cost: number,
  ): Promise<OutputMessage | undefined> {
    if (this.#isGone) return Promise.resolve(undefined);
    const { name } = this.#options;
    assert(this.#isReady && !this.#isClosing, `step ${step.stepId} for ${name}, which does not serve`);
    assert(this.#step === undefined, `step ${step.stepId} for ${name}, which computes another step`);
    const answer = new Settlement<OutputMessage | undefined>();
    this.#step = answer;
    this.#watched.stepBegins(cost);
    this.#wait();
    this.#send({ kind: 'step', step, hasUpstream: upstream !== undefined });
    upstream?.then(
      ({ hidden, leftOut }) => {
        this.#send({ kind: 'upstream', output: { leftOut, ...(hidden === undefined ? {} : { hidden }) } });
      },
      (error: unknown) => {
        this.#send({ kind: 'upstreamFailed' });
        answer.reject(error);
      },
    );
    return answer.promise.finally(() => this.#waited());
  }

  /** Whether the worker has loaded the adapter; false if the process ends before. Rejects with the worker's error. */
  async loadAdapter(source: AdapterSource): Promise<boolean> {
    if (this.#isGone) return false;
    const { digest } = source;
    const known = this.#adapterLoads.get(digest);
    if (known !== undefined) return known.promise;
    const load = new Settlement<boolean>();
    this.#adapterLoads.set(digest, load);
    this.#wait();
    this.#send({ kind: 'loadAdapter', source });
    try {
      return await load.promise;
    } finally {
      this.#waited();
      this.#adapterLoads.delete(digest);
    }
  }

  unloadAdapter(digest: string): void {
    this.#send({ kind: 'unloadAdapter', digest });
  }

  /** The worker's answer; undefined if the process ends before. Rejects with the worker's error. */
  async administer(order: TierOrder): Promise<TierOrderAnswer | undefined> {
    if (this.#isGone) return undefined;
    const id = ++this.#lastOrder;
    const answer = new Settlement<TierOrderAnswer | undefined>();
    this.#orders.set(id, answer);
    this.#wait();
    this.#send({ kind: 'administer', id, order });
    try {
      return await answer.promise;
    } finally {
      this.#waited();
      this.#orders.delete(id);
    }
  }

  /** The worker's drafts; undefined if the process ends before them. `cost`: in tokens, as of `stepCost`. */
  draft(requests: readonly DraftRequest[], count: number, cost: number): Promise<readonly Int32Array[] | undefined> {
    if (this.#isGone) return Promise.resolve(undefined);
    assert(this.#isReady && !this.#isClosing, `drafts of ${this.#options.name}, which does not serve`);
    assert(this.#step === undefined && this.#drafts === undefined, `${this.#options.name} drafts between steps`);
    const answer = new Settlement<readonly Int32Array[] | undefined>();
    this.#drafts = answer;
    this.#watched.stepBegins(cost);
    this.#wait();
    this.#send({ kind: 'draft', requests, count });
    return answer.promise.finally(() => this.#waited());
  }

  /** Saves get `timeoutMs` to finish. The process has ended afterwards in any case. */
  async close(timeoutMs: number): Promise<void> {
    assert(!this.#isClosing, `${this.#options.name} is closed twice`);
    this.#isClosing = true;
    this.#wait();
    if (this.#isReady && this.unansweredMs() === undefined) this.#send({ kind: 'close', timeoutMs });
    else this.kill();
    const timer = setTimeout(() => this.kill(), timeoutMs + closeGraceMs);
    await this.gone;
    clearTimeout(timer);
    this.#waited();
  }

  kill(): void {
    this.#child.kill('SIGKILL');
  }

  #watch(): Promise<WorkerEnd> {
    const child = this.#child;
    child.on('message', (message) => this.#receive(message as FromWorker));
    return new Promise((resolve) => {
      const end = (found: string): void => {
        if (this.#isGone) return;
        this.#isGone = true;
        this.#watched.stop();
        const how = this.#killedBecause ?? found;
        const error = this.#reportedError;
        const reason = error === undefined ? how : `${how} (${error.message})`;
        this.#opened.reject(error ?? new Error(how));
        resolve({ reason, ...(error === undefined ? {} : { error }) });
        this.#step?.resolve(undefined);
        for (const load of this.#adapterLoads.values()) load.resolve(false);
        for (const order of this.#orders.values()) order.resolve(undefined);
        this.#drafts?.resolve(undefined);
      };
      child.once('exit', (code, signal) => {
        end(signal === null ? `exited with code ${code}` : `died of ${signal}`);
      });
      child.on('error', (error) => {
        if (child.pid === undefined) end(`could not be started: ${error.message}`);
      });
      // Without the channel, the worker is of no use.
      child.once('disconnect', () => {
        if (!this.#isClosing) this.kill();
      });
    });
  }

  #receive(message: FromWorker): void {
    // Messages may arrive after the end of the process is known. They are too late.
    if (this.#isGone) return;
    this.#watched.messageReceived();
    switch (message.kind) {
      case 'progress':
        this.#options.onProgress?.(message.loadedBytes, message.totalBytes);
        break;
      case 'notice':
        this.#options.onEvent?.(message.message);
        break;
      case 'ready':
        assert(!this.#isReady, `${this.#options.name} is ready twice`);
        this.#isReady = true;
        this.#watched.started();
        this.#opened.resolve(message.facts);
        this.#waited();
        break;
      case 'openFailed':
      case 'broken':
        this.#reportedError = decodeError(message.error);
        this.#opened.reject(this.#reportedError);
        break;
      case 'output':
        this.timings = message.timings;
        this.#watched.stepEnded();
        this.#stepInFlight(message).resolve(message.output);
        this.#step = undefined;
        break;
      case 'adapterLoaded': {
        const load = this.#adapterLoads.get(message.digest);
        if (message.error === undefined) load?.resolve(true);
        else load?.reject(decodeError(message.error));
        break;
      }
      case 'administered': {
        const order = this.#orders.get(message.id);
        if (message.error === undefined) order?.resolve(message.answer);
        else order?.reject(decodeError(message.error));
        break;
      }
      case 'drafts':
        this.#watched.stepEnded();
        this.#drafts?.resolve(message.drafts);
        this.#drafts = undefined;
        break;
      case 'pong':
        this.#watched.answered(message.isComputing);
        break;
      case 'wake':
        this.#options.onWake();
        break;
    }
  }

  #stepInFlight({ output }: Extract<FromWorker, { kind: 'output' }>): Settlement<OutputMessage | undefined> {
    return assertDefined(
      this.#step,
      `${this.#options.name} answers step ${output.result.stepId}, which is not in flight`,
    );
  }

  /** Errors are ignored: a worker that cannot be reached has ended or will end. */
  #send(message: ToWorker<Setup>): void {
    if (this.#child.connected) this.#child.send(message, () => undefined);
  }

  /** An answer is awaited: the engine's process must not exit. */
  #wait(): void {
    if (this.#waiters++ > 0) return;
    this.#child.ref();
    this.#child.channel?.ref();
  }

  #waited(): void {
    assert(this.#waiters > 0, `a wait for ${this.#options.name} ends twice`);
    if (--this.#waiters > 0) return;
    this.#child.unref();
    this.#child.channel?.unref();
  }
}

/** A promise with its `resolve` and `reject`; only the first call counts. */
class Settlement<T> {
  readonly promise: Promise<T>;
  resolve!: (value: T) => void;
  reject!: (error: unknown) => void;

  constructor() {
    this.promise = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
  }
}
