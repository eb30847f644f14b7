import { CallThread, threadEntry } from '../base/call-thread.ts';
import type { Functions, NativeApi } from './ffi.ts';

/** What travels to the thread: memory goes as its address. */
export interface NativeCall {
  readonly name: keyof Functions;
  readonly args: readonly unknown[];
}

/**
 * A thread that runs native calls in order, so that they neither block the event loop nor wait for libuv's threads, which
 * file calls may hold for ever. The thread sees the same libraries at the same addresses: pointers stay valid.
 */
export class NativeThread {
  readonly #thread: CallThread<NativeCall, unknown>;
  readonly #addressOf: (buffer: ArrayBuffer) => number;

  constructor(native: NativeApi, name: string) {
    this.#thread = new CallThread(threadEntry(import.meta.url, 'native-thread-main'), native.libraries, name);
    this.#addressOf = native.addressOf;
  }

  /**
   * A row of ffi's table, called on the thread. Memory among the arguments (`data`) is not copied: C reads and writes it in
   * place, so leave it alone until the promise is settled.
   */
  async call<Name extends keyof Functions>(
    name: Name,
    ...args: Parameters<Functions[Name]>
  ): Promise<ReturnType<Functions[Name]>> {
    const sent = args.map((arg: unknown) => this.#sendable(arg));
    try {
      return (await this.#thread.call({ name, args: sent })) as ReturnType<Functions[Name]>;
    } finally {
      // Held until here: the thread has only the address, which the garbage collector cannot see.
      args.length = 0;
    }
  }

  /** Resolves when the thread answers calls: Node reads its modules with libuv's threads, which must not be held until then. */
  async started(): Promise<void> {
    await this.call('ggml_version');
  }

  /** Waits for calls under way. */
  close(): Promise<void> {
    return this.#thread.close();
  }

  #sendable(arg: unknown): unknown {
    if (arg === null) return 0;
    if (arg instanceof ArrayBuffer) return this.#addressOf(arg);
    if (ArrayBuffer.isView(arg)) return this.#addressOf(arg.buffer as ArrayBuffer) + arg.byteOffset;
    return arg;
  }
}
