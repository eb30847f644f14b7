import type { KvasirError } from '../../base/errors.ts';

/** Tracks the calls of a tier under way, so that `close` can wait for them and refuse later calls. */
export class OpenCalls {
  readonly #closedError: () => KvasirError;
  readonly #open = new Set<Promise<unknown>>();
  #isClosed: boolean = false;

  constructor(closedError: () => KvasirError) {
    this.#closedError = closedError;
  }

  async run<T>(call: () => Promise<T>): Promise<T> {
    if (this.#isClosed) throw this.#closedError();
    const running = call();
    this.#open.add(running);
    try {
      return await running;
    } finally {
      this.#open.delete(running);
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    while (this.#open.size > 0) await Promise.allSettled([...this.#open]);
  }
}
