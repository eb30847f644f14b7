/** The clients of a soak, which pause together. */
export class Clients {
  /** Clients that are in a request, or between two requests. */
  #active: number;
  #pause: PromiseWithResolvers | undefined;
  #onPaused: (() => void) | undefined;

  constructor(count: number) {
    this.#active = count;
  }

  get arePaused(): boolean {
    return this.#pause !== undefined;
  }

  /** Calls `request`, and not in a pause. */
  async whileOpen(request: () => Promise<void>): Promise<void> {
    if (this.#pause !== undefined) {
      this.#stops();
      await this.#pause.promise;
      this.#active++;
    }
    await request();
  }

  /** The client sends no further requests. */
  leave(): void {
    this.#stops();
  }

  /** Calls `work` when no client is in a request. Requests begin again when it has ended. */
  async paused(work: () => Promise<void>): Promise<void> {
    this.#pause = withResolvers();
    if (this.#active > 0) {
      await new Promise<void>((resolve) => {
        this.#onPaused = resolve;
      });
    }
    try {
      await work();
    } finally {
      const { resolve } = this.#pause;
      this.#pause = undefined;
      resolve();
    }
  }

  #stops(): void {
    this.#active--;
    if (this.#active > 0) return;
    this.#onPaused?.();
    this.#onPaused = undefined;
  }
}

interface PromiseWithResolvers {
  readonly promise: Promise<void>;
  readonly resolve: () => void;
}

function withResolvers(): PromiseWithResolvers {
  let resolve = (): void => undefined;
  const promise = new Promise<void>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}
