/** Limits how many calls run at once. Other calls wait for their turn, first come, first served. */
export class CallSlots {
  #free: number;
  /** Each starts its call. */
  readonly #waiting = new Set<() => void>();

  constructor(count: number) {
    this.#free = count;
  }

  /** Rejects with the reason of the signal if it is aborted before the turn. */
  async run<T>(signal: AbortSignal, call: () => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    if (this.#free > 0) this.#free--;
    else await this.#turn(signal);
    try {
      return await call();
    } finally {
      this.#passOn();
    }
  }

  #turn(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const start = (): void => {
        signal.removeEventListener('abort', cancel);
        resolve();
      };
      const cancel = (): void => {
        this.#waiting.delete(start);
        reject(signal.reason as Error);
      };
      this.#waiting.add(start);
      signal.addEventListener('abort', cancel, { once: true });
    });
  }

  #passOn(): void {
    const [next] = this.#waiting;
    if (next === undefined) {
      this.#free++;
      return;
    }
    this.#waiting.delete(next);
    next();
  }
}
