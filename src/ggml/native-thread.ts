import { assert } from '../base/assert.ts';
import { CallThread, threadEntry } from '../base/call-thread.ts';
import type { Functions, NativeApi } from './ffi.ts';
import type { NativeLibraries } from './native-package.ts';

/** A message to the thread; memory is sent as its address. */
export interface NativeCall {
  readonly name: keyof Functions;
  readonly args: readonly unknown[];
}

/**
 * A thread that runs native calls in order. The calls do not block the event loop, and do not wait for libuv's threads,
 * which may be stuck in file calls. The libraries have the same addresses in all threads, so pointers are valid here.
 */
export class NativeThread {
  readonly #kind: ThreadKind;
  readonly #thread: CallThread<NativeCall, unknown>;
  readonly #addressOf: (buffer: ArrayBuffer) => number;
  #isClosed: boolean = false;

  constructor(native: NativeApi, name: string) {
    this.#kind = { libraries: native.libraries, name };
    this.#thread = takeSpare(this.#kind) ?? newThread(this.#kind);
    this.#addressOf = native.addressOf;
  }

  /**
   * Calls a function of ffi's table on the thread. Memory among the arguments (`data`) is not copied: C reads and
   * writes it in place. So the caller must not use it until the promise is settled.
   */
  async call<Name extends keyof Functions>(
    name: Name,
    ...args: Parameters<Functions[Name]>
  ): Promise<ReturnType<Functions[Name]>> {
    if (this.#isClosed) throw new Error('the thread is closed');
    const sent = args.map((arg: unknown) => this.#sendable(arg));
    try {
      return (await this.#thread.call({ name, args: sent })) as ReturnType<Functions[Name]>;
    } finally {
      // `args` keeps the memory until here: the thread has only the address, which the garbage collector does not know.
      args.length = 0;
    }
  }

  /** Resolves when the thread answers calls. Until then it needs libuv's threads, with which Node reads its modules. */
  async started(): Promise<void> {
    await this.call('ggml_version');
  }

  /** Waits for running calls. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#thread.idle();
    await keepSpare(this.#kind, this.#thread);
  }

  #sendable(arg: unknown): unknown {
    if (arg === null) return 0;
    if (arg instanceof ArrayBuffer) return this.#addressOf(arg);
    if (ArrayBuffer.isView(arg)) return this.#addressOf(arg.buffer as ArrayBuffer) + arg.byteOffset;
    return arg;
  }
}

interface ThreadKind {
  readonly libraries: NativeLibraries;
  readonly name: string;
}

interface Spare extends ThreadKind {
  readonly thread: CallThread<NativeCall, unknown>;
}

/** Threads of closed engines, for reuse: a start takes about 50 ms of CPU time. They do not keep the process running. */
const spares: Spare[] = [];
const sparesMax = 4;

const newThread = ({ libraries, name }: ThreadKind): Spare['thread'] =>
  new CallThread(threadEntry(import.meta.url, 'native-thread-main'), libraries, name);

function takeSpare({ libraries, name }: ThreadKind): Spare['thread'] | undefined {
  const at = spares.findIndex((spare) => spare.libraries === libraries && spare.name === name);
  const [spare] = at < 0 ? [] : spares.splice(at, 1);
  return spare?.thread.hasEnded === false ? spare.thread : undefined;
}

async function keepSpare(kind: ThreadKind, thread: Spare['thread']): Promise<void> {
  assert(thread.openCount === 0, 'a thread with an open call is not spare');
  if (thread.hasEnded || spares.length >= sparesMax) await thread.close();
  else spares.push({ ...kind, thread });
}
