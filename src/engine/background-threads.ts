import type { EngineHealth } from './contract.ts';

/** A thread for work that would block the event loop (`JobThread`). */
export interface BackgroundThread {
  /** A sentence that says why its work is not possible; undefined if it is. */
  readonly trouble: string | undefined;
  /** Never rejects. */
  keepStarted(): Promise<void>;
  close(): Promise<void>;
}

/** The threads of an engine. */
export class BackgroundThreads {
  readonly #threads: readonly BackgroundThread[];

  constructor(threads: readonly BackgroundThread[]) {
    this.#threads = threads;
  }

  async warmUp(): Promise<void> {
    await Promise.all(this.#threads.map((thread) => thread.keepStarted()));
  }

  health(): EngineHealth {
    const troubles = this.#threads.flatMap(({ trouble }) => trouble ?? []);
    return troubles.length === 0 ? { status: 'ok' } : { status: 'degraded', message: troubles.join(' ') };
  }

  /** Does not wait for native calls, which may take a while. */
  close(): void {
    for (const thread of this.#threads) void thread.close();
  }
}
