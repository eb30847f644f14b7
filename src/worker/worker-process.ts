import { type ChildProcess, fork } from 'node:child_process';
import { trackChild } from '../base/child-processes.ts';
import { decodeError } from './error-codec.ts';
import { inheritedFlags } from './node-flags.ts';
import type { HandedOn, RankTimings } from './rank.ts';
import type { StepMessage } from './step-codec.ts';
import type { FromWorker, OutputMessage, RankFacts, ToWorker } from './worker-messages.ts';
import { type StepDeadlines, WorkerWatch } from './worker-watch.ts';

export interface WorkerOptions<Setup> {
  /** For people, also in their lists of processes: `rank 1 of 2`. */
  readonly name: string;
  /** The built file whose process serves the rank. */
  readonly entry: string;
  /** A worker that does not answer for so long is killed; Infinity: never. */
  readonly timeoutMs: number;
  /** What the worker opens its rank by: plain data. */
  readonly setup: Setup;
  readonly onProgress?: ((loadedBytes: number, totalBytes: number) => void) | undefined;
  /** Transfers have ended outside a step. */
  readonly onWake: () => void;
  /** For what an operator should know of the process. */
  readonly onEvent?: (message: string) => void;
}

/** How a worker process ended. */
export interface WorkerEnd {
  /** Half a sentence: `died of SIGKILL`. */
  readonly reason: string;
  /** What it said, if it could still say something. */
  readonly error?: Error;
}

/** How much longer than it was given a worker may take to close. */
const closeGraceMs = 2_000;

/**
 * One life of a worker process: it opens a rank, serves steps, and ends. It keeps the engine's process from exiting only
 * while an answer is awaited.
 */
export class WorkerProcess<Setup> {
  readonly processId: number;
  /** Rejects with what the worker said, when it could not open its rank. The process is gone then, or will be. */
  readonly ready: Promise<RankFacts>;
  /** Resolves when the process is no more; never rejects. */
  readonly gone: Promise<WorkerEnd>;
  timings: RankTimings | undefined;
  readonly #child: ChildProcess;
  readonly #options: WorkerOptions<Setup>;
  readonly #opened = new Settlement<RankFacts>();
  #step: Settlement<OutputMessage | undefined> | undefined;
  readonly #watched: WorkerWatch;
  #said: Error | undefined;
  /** Why this process has killed it. */
  #killedBecause: string | undefined;
  #isReady: boolean = false;
  #isGone: boolean = false;
  #isClosing: boolean = false;
  #waiters = 0;

  constructor(options: WorkerOptions<Setup>, deadlines: StepDeadlines) {
    this.#options = options;
    // What a connector or a native library prints is for people: the engine's standard output may be for programs.
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

  /** How long it has not answered, if that is too long for a live process. */
  unansweredMs(): number | undefined {
    return this.#isGone ? undefined : this.#watched.unansweredMs();
  }

  /**
   * The worker's answer to a step; undefined when the process has ended without one. The step is sent before this returns.
   * Rejects when `upstream` does. `cost`: as the deadlines count it.
   */
  run(step: StepMessage, upstream: Promise<HandedOn> | undefined, cost: number): Promise<OutputMessage | undefined> {
    if (this.#isGone) return Promise.resolve(undefined);
    const answer = new Settlement<OutputMessage | undefined>();
    this.#step = answer;
    this.#watched.stepBegins(cost);
    this.#wait();
    this.#send({ kind: 'step', step, hasUpstream: upstream !== undefined });
    upstream?.then(
      ({ hidden, leftOut }) => {
        this.#send({ kind: 'upstream', handedOn: { leftOut, ...(hidden === undefined ? {} : { hidden }) } });
      },
      (error: unknown) => {
        this.#send({ kind: 'upstreamFailed' });
        answer.reject(error);
      },
    );
    return answer.promise.finally(() => this.#waited());
  }

  /** Saves get `timeoutMs` to finish; whatever happens, the process is gone afterwards. */
  async close(timeoutMs: number): Promise<void> {
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
        const error = this.#said;
        const reason = error === undefined ? how : `${how} (${error.message})`;
        this.#opened.reject(error ?? new Error(how));
        resolve({ reason, ...(error === undefined ? {} : { error }) });
        this.#step?.resolve(undefined);
      };
      child.once('exit', (code, signal) => {
        end(signal === null ? `exited with code ${code}` : `died of ${signal}`);
      });
      child.on('error', (error) => {
        if (child.pid === undefined) end(`could not be started: ${error.message}`);
      });
      // Nobody can talk to it any more.
      child.once('disconnect', () => {
        if (!this.#isClosing) this.kill();
      });
    });
  }

  #receive(message: FromWorker): void {
    // What it sent before it died arrives perhaps after its end is known: that is too late.
    if (this.#isGone) return;
    this.#watched.heard();
    switch (message.kind) {
      case 'progress':
        this.#options.onProgress?.(message.loadedBytes, message.totalBytes);
        break;
      case 'notice':
        this.#options.onEvent?.(message.message);
        break;
      case 'ready':
        this.#isReady = true;
        this.#watched.started();
        this.#opened.resolve(message.facts);
        this.#waited();
        break;
      case 'openFailed':
      case 'broken':
        this.#said = decodeError(message.error);
        this.#opened.reject(this.#said);
        break;
      case 'output':
        this.timings = message.timings;
        this.#watched.stepEnded();
        this.#step?.resolve(message.output);
        break;
      case 'pong':
        this.#watched.answered(message.isComputing);
        break;
      case 'wake':
        this.#options.onWake();
        break;
    }
  }

  /** Errors are not of interest here: whoever cannot be reached has ended or will. */
  #send(message: ToWorker<Setup>): void {
    this.#child.send(message, () => undefined);
  }

  /** Somebody waits: the process of the engine stays. */
  #wait(): void {
    if (this.#waiters++ > 0) return;
    this.#child.ref();
    this.#child.channel?.ref();
  }

  #waited(): void {
    if (--this.#waiters > 0) return;
    this.#child.unref();
    this.#child.channel?.unref();
  }
}

/** A promise that is settled from elsewhere; only the first time counts. */
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
