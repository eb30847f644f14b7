import { assert } from './assert.ts';
import type { CallThread } from './call-thread.ts';

/**
 * Threads whose owners have closed, for later owners: the start of a thread takes as long as hundreds of calls. They do not keep the
 * process running.
 */
export class SpareThreads<Call, Answer> {
  readonly #countMax: number;
  readonly #spares: { readonly kind: string; readonly thread: CallThread<Call, Answer> }[] = [];

  constructor(countMax: number) {
    this.#countMax = countMax;
  }

  take(kind: string): CallThread<Call, Answer> | undefined {
    const at = this.#spares.findIndex((spare) => spare.kind === kind);
    const [found] = at < 0 ? [] : this.#spares.splice(at, 1);
    if (found === undefined) return undefined;
    return found.thread.failure === undefined ? found.thread : this.take(kind);
  }

  /** Ends the thread if there are enough spare ones. */
  async keep(kind: string, thread: CallThread<Call, Answer>): Promise<void> {
    assert(thread.openCount === 0, 'a thread with an open call is not spare');
    if (thread.failure === undefined && this.#spares.length < this.#countMax) this.#spares.push({ kind, thread });
    else await thread.close();
  }
}
