import { isMainThread, parentPort, Worker } from 'node:worker_threads';
import { AssertionError, assert, assertDefined } from './assert.ts';

/**
 * A thread of this process that answers calls, one after the other, with functions that may block.
 *
 * libuv has four threads for all of a process: file calls that never return stop everything else that waits for them. Work
 * that must not wait for such calls, or that may itself never return, runs on threads of its own.
 *
 * The thread keeps the process alive only while a call is open. Calls and answers are copied (structured clone), memory in
 * a SharedArrayBuffer is shared.
 */
export class CallThread<Call, Answer> {
  readonly #worker: Worker;
  readonly #open = new Map<number, Waiter<Answer>>();
  readonly #gone: Promise<void>;
  #serial = 0;
  #isIgnored: boolean = false;
  #failure: Error | undefined;
  #idle: (() => void) | undefined;

  /**
   * `entry`: the built file that calls `serveCalls`. `setup`: plain data for it. `name`: for lists of threads.
   */
  constructor(entry: URL, setup: unknown, name: string) {
    // Without Node's flags of this process: they may load sources, and the thread runs what was built.
    this.#worker = new Worker(entry, { workerData: setup, name, execArgv: [] });
    this.#worker.unref();
    this.#worker.on('message', (answer: Settled<Answer>) => this.#settle(answer));
    this.#worker.on('error', (error) => this.#fail(error instanceof Error ? error : new Error(String(error))));
    this.#gone = new Promise((resolve) => {
      this.#worker.once('exit', (code) => {
        this.#fail(new Error(`the thread ${name} has ended with code ${code}`));
        resolve();
      });
    });
  }

  /** Calls without an answer. */
  get openCount(): number {
    return this.#open.size;
  }

  /** Resolves when the thread has ended; perhaps never. */
  get gone(): Promise<void> {
    return this.#gone;
  }

  /** Rejects with what the call threw, or when the thread has ended. */
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
   * From now on, open calls do not keep the process alive: the thread may be blocked for ever. Their promises stay open until
   * the thread answers.
   */
  ignore(): void {
    this.#isIgnored = true;
    this.#updateRef();
  }

  /** The opposite of `ignore`. */
  heed(): void {
    this.#isIgnored = false;
    this.#updateRef();
  }

  /** Waits for open calls, then ends the thread. Later calls reject. */
  async close(): Promise<void> {
    this.#failure ??= new Error('the thread is closed');
    if (this.#open.size > 0) {
      await new Promise<void>((resolve) => {
        this.#idle = resolve;
      });
    }
    await this.#worker.terminate();
  }

  /** Ends the thread as soon as it does not block. Does not wait, and open calls reject when the thread has ended. */
  end(): void {
    this.#failure ??= new Error('the thread is closed');
    void this.#worker.terminate();
  }

  #settle({ id, answer, error }: Settled<Answer>): void {
    const waiter = assertDefined(this.#open.get(id), 'an answer to no call');
    this.#open.delete(id);
    this.#updateRef();
    if (error === undefined) waiter.resolve(answer as Answer);
    else waiter.reject(decoded(error));
    if (this.#open.size === 0) this.#idle?.();
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    const waiters = [...this.#open.values()];
    this.#open.clear();
    for (const { reject } of waiters) reject(error);
    this.#idle?.();
  }

  #updateRef(): void {
    if (this.#open.size > 0 && !this.#isIgnored) this.#worker.ref();
    else this.#worker.unref();
  }
}

/** What the thread runs: answers each call, in the order in which they come. `answer` may throw. */
export function serveCalls<Call, Answer>(answer: (call: Call) => Answer): void {
  assert(!isMainThread, 'calls are served on a thread of their own');
  const port = assertDefined(parentPort, 'a thread has a parent');
  port.on('message', ({ id, call }: { readonly id: number; readonly call: Call }) => {
    let settled: Settled<Answer>;
    try {
      settled = { id, answer: answer(call) };
    } catch (error) {
      settled = { id, error: encoded(error) };
    }
    port.postMessage(settled);
  });
}

/**
 * The built file of a thread, seen from the module that starts it. Tests run modules as TypeScript, and threads run what was
 * built.
 */
export function threadEntry(moduleUrl: string, name: string): URL {
  if (!moduleUrl.endsWith('.ts')) return new URL(`./${name}.js`, moduleUrl);
  const source = new URL(`./${name}.js`, moduleUrl).href;
  const at = source.lastIndexOf('/src/');
  return new URL(`${source.slice(0, at)}/dist${source.slice(at)}`);
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

/** Structured clone forgets the codes of the system's errors and the classes of ours. */
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
