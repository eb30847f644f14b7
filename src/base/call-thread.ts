import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { AssertionError, assert, assertDefined } from './assert.ts';
import { checkFreeFiles } from './free-files.ts';
import { leaveRemovedFolder } from './working-folder.ts';

/**
 * A thread of this process that answers calls, one after the other, with functions that may block.
 *
 * libuv has four threads per process, and file calls that never return block them for all other work. So work that must
 * not wait for such calls, or that may never return, runs on its own threads.
 *
 * The thread keeps the process alive only while it starts or a call is open. Calls and answers are copied (structured
 * clone). Memory in a SharedArrayBuffer is shared.
 */
export class CallThread<Call, Answer> {
  readonly #worker: Worker;
  readonly #started: Promise<void>;
  readonly #open = new Map<number, Waiter<Answer>>();
  readonly #gone: Promise<Error>;
  #serial = 0;
  #hasStarted: boolean = false;
  #hasEnded: boolean = false;
  #isIgnored: boolean = false;
  #failure: Error | undefined;
  readonly #onIdle: (() => void)[] = [];

  /**
   * `entry`: the built file that calls `serveCalls`. `setup`: plain data for it. `name`: shown in lists of threads. `heapMaxMib`: a
   * thread whose objects need more ends.
   * @throws the system's error if there are too few free file descriptors, or no memory for a thread
   */
  constructor(entry: URL, setup: unknown, name: string, heapMaxMib?: number) {
    leaveRemovedFolder();
    checkFreeFiles(filesOfStart);
    const start = new StartSign();
    const data: ThreadData = { setup, start: start.memory };
    const limits = heapMaxMib === undefined ? {} : { resourceLimits: { maxOldGenerationSizeMb: heapMaxMib } };
    try {
      // Without the flags of this process: they can load TypeScript sources, and the thread runs the build.
      this.#worker = new Worker(entry, { workerData: data, name, execArgv: [], ...limits });
    } catch (error) {
      start.seen();
      throw error;
    }
    let onStart = (): void => undefined;
    this.#started = new Promise((resolve) => {
      onStart = () => {
        start.seen();
        this.#hasStarted = true;
        this.#updateRef();
        resolve();
      };
    });
    this.#worker.on('message', (message: Settled<Answer> | 'started') => {
      if (message === 'started') onStart();
      else this.#settle(message);
    });
    this.#worker.on('error', (error) => this.#fail(error instanceof Error ? error : new Error(String(error))));
    this.#gone = new Promise((resolve) => {
      this.#worker.once('exit', (code) => {
        this.#hasEnded = true;
        blocked.delete(this);
        onStart();
        const error = new Error(`the thread ${name} has ended with code ${code}`);
        this.#fail(Object.assign(error, { code: 'KVASIR_THREAD_ENDED' }));
        resolve(assertDefined(this.#failure, 'a thread that ended has a reason'));
      });
    });
  }

  /** Resolves when the thread answers calls, or has ended. */
  get started(): Promise<void> {
    return this.#started;
  }

  /** Calls without an answer. */
  get openCount(): number {
    return this.#open.size;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Why later calls reject; undefined while the thread takes calls. */
  get failure(): Error | undefined {
    return this.#failure;
  }

  /** Resolves with the reason when the thread has ended. */
  get gone(): Promise<Error> {
    return this.#gone;
  }

  /** Rejects with the error of the call, or if the thread has ended. */
  call(call: Call): Promise<Answer> {
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    return new Promise((resolve, reject) => {
      const id = ++this.#serial;
      this.#worker.postMessage({ id, call });
      this.#open.set(id, { resolve, reject });
      this.#updateRef();
    });
  }

  /**
   * After it, open calls do not keep the process alive, because the thread may never return. Their promises stay open
   * until the thread answers.
   */
  ignore(): void {
    this.#isIgnored = true;
    blocked.add(this);
    this.#updateRef();
  }

  /** The opposite of `ignore`. */
  heed(): void {
    this.#isIgnored = false;
    blocked.delete(this);
    this.#updateRef();
  }

  /** Resolves when no call is open. */
  async idle(): Promise<void> {
    if (this.#open.size === 0) return;
    await new Promise<void>((resolve) => {
      this.#onIdle.push(resolve);
    });
  }

  /** Waits for open calls, then ends the thread. Later calls reject. */
  async close(): Promise<void> {
    this.#failure ??= new Error('the thread is closed');
    await this.idle();
    await this.#started;
    await this.#worker.terminate();
  }

  /** Ends the thread as soon as it does not block, without waiting. Open calls reject when the thread has ended. */
  end(): void {
    this.#failure ??= new Error('the thread is closed');
    void this.#started.then(() => {
      void this.#worker.terminate();
      // `terminate` makes Node wait for the thread again.
      this.#updateRef();
    });
  }

  #settle({ id, answer, error }: Settled<Answer>): void {
    const waiter = assertDefined(this.#open.get(id), 'every answer belongs to an open call');
    this.#open.delete(id);
    this.#updateRef();
    if (error === undefined) waiter.resolve(answer as Answer);
    else waiter.reject(decoded(error));
    if (this.#open.size === 0) this.#tellIdle();
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    const waiters = [...this.#open.values()];
    this.#open.clear();
    for (const { reject } of waiters) reject(error);
    this.#tellIdle();
  }

  #tellIdle(): void {
    for (const resolve of this.#onIdle.splice(0)) resolve();
  }

  #updateRef(): void {
    const isNeeded = !this.#isIgnored && (!this.#hasStarted || this.#open.size > 0);
    if (isNeeded) this.#worker.ref();
    else this.#worker.unref();
  }
}

/**
 * A start opens the modules of the thread at the same time. Each start that fails with fewer free descriptors than Node itself needs
 * for a thread would lose some of them for ever.
 */
const filesOfStart = 24;

const blocked = new Set<object>();

/**
 * The number of threads of this process whose calls are ignored and have not returned. Node's exit waits for them; only
 * the system's `_exit` or a signal ends the process at once.
 */
export const blockedThreadCount = (): number => blocked.size;

/**
 * Runs on the thread: answers the calls in their order. `open` gets the thread's setup and returns the function for the
 * calls, which may throw.
 */
export function serveCalls<Setup, Call, Answer>(open: (setup: Setup) => (call: Call) => Answer): void {
  assert(!isMainThread, 'calls are served on a separate thread');
  const port = assertDefined(parentPort, 'a thread has a parent');
  const { setup, start } = workerData as ThreadData;
  const answer = open(setup as Setup);
  port.on('message', ({ id, call }: { readonly id: number; readonly call: Call }) => {
    let settled: Settled<Answer>;
    try {
      settled = { id, answer: answer(call) };
    } catch (error) {
      settled = { id, error: encoded(error) };
    }
    port.postMessage(settled);
  });
  StartSign.give(start);
  port.postMessage('started');
}

/**
 * If a thread is terminated while it loads a native module (koffi), the whole process aborts. So threads are ended only
 * after their start, and the exit of the process waits for starting threads.
 */
class StartSign {
  static readonly #starting = new Set<StartSign>();
  static #isWatching: boolean = false;
  readonly memory = new SharedArrayBuffer(4);

  constructor() {
    StartSign.#starting.add(this);
    if (StartSign.#isWatching) return;
    StartSign.#isWatching = true;
    process.on('exit', () => {
      for (const { memory } of StartSign.#starting) Atomics.wait(new Int32Array(memory), 0, 0, startMaxMs);
    });
  }

  seen(): void {
    StartSign.#starting.delete(this);
  }

  static give(memory: SharedArrayBuffer): void {
    const sign = new Int32Array(memory);
    Atomics.store(sign, 0, 1);
    Atomics.notify(sign, 0);
  }
}

/** A start takes about 50 ms on an idle machine. */
const startMaxMs = 5_000;

interface ThreadData {
  readonly setup: unknown;
  /** The memory of the `StartSign`. */
  readonly start: SharedArrayBuffer;
}

interface Waiter<Answer> {
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: Error) => void;
}

interface Settled<Answer> {
  readonly id: number;
  readonly answer?: Answer;
  readonly error?: EncodedError;
}

/** Structured clone loses the codes of system errors and the classes of this package's errors. */
interface EncodedError {
  readonly message: string;
  readonly stack: string | undefined;
  readonly code: string | undefined;
  readonly isAssertion: boolean;
}

function encoded(error: unknown): EncodedError {
  const isAssertion = error instanceof AssertionError;
  if (!(error instanceof Error)) return { message: String(error), stack: undefined, code: undefined, isAssertion };
  const { code } = error as NodeJS.ErrnoException;
  return {
    message: error.message,
    stack: error.stack,
    code: typeof code === 'string' ? code : undefined,
    isAssertion,
  };
}

function decoded({ message, stack, code, isAssertion }: EncodedError): Error {
  const error = isAssertion ? new AssertionError(message) : new Error(message);
  if (stack !== undefined) error.stack = stack;
  return code === undefined ? error : Object.assign(error, { code });
}
