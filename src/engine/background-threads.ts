import type { EngineHealth } from './contract.ts';
import type { BackgroundThread } from './engine-parts.ts';

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
