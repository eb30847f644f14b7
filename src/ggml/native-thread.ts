import { CallThread } from '../base/call-thread.ts';
import { entryPoint } from '../base/package-files.ts';
import { SpareThreads } from '../base/spare-threads.ts';
import type { Functions, NativeApi } from './ffi.ts';

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
  readonly #kind: string;
  readonly #thread: CallThread<NativeCall, unknown>;
  readonly #addressOf: (buffer: ArrayBuffer) => number;
  #isClosed: boolean = false;

  constructor(native: NativeApi, name: string) {
    const { libraries } = native;
    this.#kind = `${name} ${JSON.stringify(libraries)}`;
    const entry = entryPoint('src/ggml/native-thread-main');
    this.#thread = spares.take(this.#kind) ?? new CallThread(entry, libraries, name);
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
    await spares.keep(this.#kind, this.#thread);
  }

  #sendable(arg: unknown): unknown {
    if (arg === null) return 0;
    if (arg instanceof ArrayBuffer) return this.#addressOf(arg);
    if (ArrayBuffer.isView(arg)) return this.#addressOf(arg.buffer as ArrayBuffer) + arg.byteOffset;
    return arg;
  }
}

const spares = new SpareThreads<NativeCall, unknown>(4);
