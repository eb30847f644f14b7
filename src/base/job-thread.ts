import { backgroundTimers } from './background-timers.ts';
import { CallThread } from './call-thread.ts';
import { SpareThreads } from './spare-threads.ts';
import { jobStopped, threadUnavailable } from './thread-errors.ts';
import type { Timer, Timers } from './timers.ts';

export interface JobThreadOptions {
  /** The built file of the thread, which calls `serveCalls`. It keeps nothing of a job that a later job could see. */
  readonly entry: URL;
  /** Shown in lists of threads. */
  readonly name: string;
  /** The beginning of sentences: `Compiling large grammars`. */
  readonly work: string;
  /** Of the objects of one job; the default is ten times what real jobs need. */
  readonly heapMaxMib?: number;
  readonly timers?: Timers;
  /** A thread that has not started by then is replaced. */
  readonly startMaxMs?: number;
}

export interface JobOptions {
  /** The job is stopped when it has run for so long. */
  readonly budgetMs: number;
  readonly signal?: AbortSignal | undefined;
}

/**
 * A thread for work that would block the event loop. Jobs run one at a time, in the order of their calls.
 *
 *     no thread --> starting --> idle <--> busy
 *         ^            |          |         |  the job is over its budget, or was aborted and does not end
 *         |            v          v         v
 *         +------ the thread has ended, or is told to end
 *
 * A thread in an endless loop ends when it is told to; a thread in a native call ends after the call. Its successor does not wait for
 * that. If a thread cannot start, the waiting jobs fail, and later jobs try again.
 */
export class JobThread<Work, Answer> {
  readonly #options: JobThreadOptions;
  readonly #timers: Timers;
  readonly #waiting: Job<Work, Answer>[] = [];
  /** Told to end, and not ended yet. */
  readonly #leaving = new Set<CallThread<Work, Answer>>();
  #thread: CallThread<Work, Answer> | undefined;
  /** On the thread, also if its caller does not wait for it any more. */
  #running: Job<Work, Answer> | undefined;
  #startLimit: Timer | undefined;
  #retry: Timer | undefined;
  #trouble: string | undefined;
  /** The thread is started before there are jobs. */
  #isKept: boolean = false;
  readonly #onStart: (() => void)[] = [];
  #closing: Promise<void> | undefined;

  constructor(options: JobThreadOptions) {
    this.#options = options;
    this.#timers = options.timers ?? backgroundTimers;
  }

  /** A sentence that says why jobs fail; undefined if they can run. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  /**
   * Rejects with the signal's reason, with an error of the job, with `jobStopped`, or with `threadUnavailable`. An aborted job that
   * runs is stopped.
   */
  run(work: Work, { budgetMs, signal }: JobOptions): Promise<Answer> {
    return new Promise((resolve, reject) => {
      if (this.#closing !== undefined) return reject(this.#closedError());
      if (signal?.aborted === true) return reject(signal.reason as Error);
      const onAbort = (): void => this.#abort(job, signal?.reason as Error);
      const job: Job<Work, Answer> = {
        work,
        budgetMs,
        limit: undefined,
        isOverdue: false,
        settle: (settle) => {
          signal?.removeEventListener('abort', onAbort);
          settle(resolve, reject);
        },
      };
      signal?.addEventListener('abort', onAbort, { once: true });
      this.#waiting.push(job);
      this.#pump();
    });
  }

  /**
   * Starts the thread before there are jobs. Resolves when it has started or cannot start. From now on it is started again when it
   * ends, and tried again when it cannot start.
   */
  async keepStarted(): Promise<void> {
    this.#isKept = true;
    this.#pump();
    if (this.#startLimit === undefined) return;
    await new Promise<void>((resolve) => {
      this.#onStart.push(resolve);
    });
  }

  /**
   * Unfinished jobs reject at once. Resolves when no thread runs code of a job: a native call returns before that. Idempotent.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    // The jobs reject in this turn, and `run` already sees that the thread is closed.
    await undefined;
    this.#retry?.cancel();
    const thread = this.#thread;
    const wasBusy = this.#running !== undefined;
    for (const job of [...this.#waiting.splice(0), ...(this.#running === undefined ? [] : [this.#running])])
      job.settle((_, reject) => reject(this.#closedError()));
    if (thread !== undefined && this.#startLimit === undefined && !wasBusy) {
      this.#thread = undefined;
      await spares.keep(this.#kind, thread as CallThread<unknown, unknown>);
    } else if (thread !== undefined) this.#retire(thread);
    await Promise.all([...this.#leaving].map(({ gone }) => gone));
  }

  get #kind(): string {
    return `${this.#options.entry.href} ${this.#heapMaxMib}`;
  }

  get #heapMaxMib(): number {
    return this.#options.heapMaxMib ?? heapMaxMibDefault;
  }

  #closedError(): Error {
    return new Error(`${this.#options.work} is not possible any more: the thread is closed`);
  }

  #pump(): void {
    if (this.#closing !== undefined || this.#running !== undefined) return;
    const isWanted = this.#waiting.length > 0 || (this.#isKept && this.#retry === undefined);
    if (this.#thread === undefined && isWanted) this.#start();
    // Starting, or not possible.
    if (this.#thread === undefined || this.#startLimit !== undefined) return;
    const job = this.#waiting.shift();
    if (job !== undefined) this.#run(this.#thread, job);
  }

  #start(): void {
    if (this.#leaving.size > leavingMax) {
      this.#cannotStart('earlier threads have not ended');
      return;
    }
    const spare = spares.take(this.#kind) as CallThread<Work, Answer> | undefined;
    let thread: CallThread<Work, Answer>;
    try {
      thread = spare ?? new CallThread(this.#options.entry, undefined, this.#options.name, this.#heapMaxMib);
    } catch (error) {
      this.#cannotStart(codeOf(error));
      return;
    }
    this.#thread = thread;
    owners.set(thread, this);
    if (spare !== undefined) {
      this.#hasStarted();
      return;
    }
    // Once for all owners of the thread.
    void thread.gone.then((error) => owners.get(thread)?.ended(thread, error));
    const { startMaxMs = startMaxMsDefault } = this.#options;
    this.#startLimit = this.#timers.after(startMaxMs, () => {
      this.#retire(thread);
      this.#cannotStart(`it has not started for ${startMaxMs / 1000} s`);
    });
    void thread.started.then(() => {
      if (this.#thread === thread && thread.failure === undefined) this.#hasStarted();
    });
  }

  #hasStarted(): void {
    this.#startEnds();
    this.#retry?.cancel();
    this.#retry = undefined;
    this.#trouble = undefined;
    this.#pump();
  }

  #startEnds(): void {
    this.#startLimit?.cancel();
    this.#startLimit = undefined;
    for (const resolve of this.#onStart.splice(0)) resolve();
  }

  #cannotStart(reason: string): void {
    const { work } = this.#options;
    const error = threadUnavailable({ work, reason });
    this.#trouble = `${work} is not possible now: the thread for it cannot start (${reason}).`;
    for (const job of this.#waiting.splice(0)) job.settle((_, reject) => reject(error));
    if (!this.#isKept) return;
    this.#retry?.cancel();
    this.#retry = this.#timers.after(retryMs, () => {
      this.#retry = undefined;
      this.#pump();
    });
  }

  #run(thread: CallThread<Work, Answer>, job: Job<Work, Answer>): void {
    this.#running = job;
    job.limit = this.#timers.after(job.budgetMs, () => this.#overBudget(job));
    thread.call(job.work).then(
      (answer) => this.#returned(job, (resolve) => resolve(answer)),
      (error: Error) => this.#returned(job, (_, reject) => reject(this.#errorOf(error))),
    );
  }

  #returned(job: Job<Work, Answer>, settle: Settle<Answer>): void {
    // Otherwise the thread was replaced.
    if (this.#running !== job) return;
    job.limit?.cancel();
    this.#running = undefined;
    job.settle(settle);
    const { failure } = this.#thread ?? {};
    if (this.#thread !== undefined && failure !== undefined) this.#retire(this.#thread);
    this.#pump();
  }

  #abort(job: Job<Work, Answer>, reason: Error): void {
    const place = this.#waiting.indexOf(job);
    if (place >= 0) this.#waiting.splice(place, 1);
    job.settle((_, reject) => reject(reason));
    if (this.#running !== job) return;
    job.limit?.cancel();
    job.limit = this.#timers.after(graceMs, () => this.#overdue(job));
  }

  #overBudget(job: Job<Work, Answer>): void {
    // The event loop may have been blocked: answers that are there come first.
    setImmediate(() => {
      if (this.#running !== job) return;
      const reason = `it took longer than ${Math.round(job.budgetMs / 100) / 10} s`;
      job.settle((_, reject) => reject(jobStopped({ work: this.#options.work, reason })));
      this.#overdue(job);
    });
  }

  /** Replaces the thread. If too many threads have not ended yet, the next job waits for one of them. */
  #overdue(job: Job<Work, Answer>): void {
    if (this.#running !== job || this.#thread === undefined) return;
    job.isOverdue = true;
    if (this.#leaving.size < leavingMax) this.#retire(this.#thread);
    this.#pump();
  }

  #retire(thread: CallThread<Work, Answer>): void {
    this.#startEnds();
    this.#running?.limit?.cancel();
    this.#running = undefined;
    this.#thread = undefined;
    if (thread.hasEnded) return;
    this.#leaving.add(thread);
    thread.ignore();
    thread.end();
  }

  /** Called when a thread of this object has ended. */
  ended(thread: object, error: Error): void {
    for (const leaving of this.#leaving) if (leaving === thread) this.#leaving.delete(leaving);
    if (this.#thread === thread) {
      const hadStarted = this.#startLimit === undefined;
      this.#retire(this.#thread);
      if (!hadStarted) this.#cannotStart(codeOf(error));
    }
    if (this.#running?.isOverdue === true) this.#overdue(this.#running);
    this.#pump();
  }

  #errorOf(error: Error): Error {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ERR_WORKER_OUT_OF_MEMORY') return error;
    return jobStopped({ work: this.#options.work, reason: `it needed more than ${this.#heapMaxMib} MiB of memory` });
  }
}

const spares = new SpareThreads<unknown, unknown>(4);

/** The last owner of each thread. */
const owners = new WeakMap<object, { ended(thread: object, error: Error): void }>();

const heapMaxMibDefault = 1024;

/** About what a replacement costs: an aborted job that ends by then keeps its thread. */
const graceMs = 50;

/** Each of them may be in a native call, which uses a core. */
const leavingMax = 2;

const startMaxMsDefault = 30_000;
const retryMs = 1_000;

/** Messages of the system have paths, which are no business of clients. */
function codeOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  const system = /\b(EMFILE|ENFILE|ENOMEM|EAGAIN)\b/.exec(message)?.[1];
  return system ?? code ?? 'unknown reason';
}

type Settle<Answer> = (resolve: (answer: Answer) => void, reject: (error: Error) => void) => void;

interface Job<Work, Answer> {
  readonly work: Work;
  readonly budgetMs: number;
  /** The end of its budget, or of the grace after its abort. */
  limit: Timer | undefined;
  /** Its caller has an answer, and its thread is to be replaced. */
  isOverdue: boolean;
  /** Only the first call has an effect. */
  settle(settle: Settle<Answer>): void;
}
