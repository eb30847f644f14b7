import { assert } from '../base/assert.ts';
import { CallThread, threadEntry } from '../base/call-thread.ts';
import type { TextAnswer, TextJob } from './text-thread-messages.ts';

/**
 * A thread for texts that would block the event loop. libllama takes about a second for 1.5 million characters, and so
 * does a chat template for 30,000 messages. Jobs run one at a time, in the order of their calls.
 *
 * The thread starts with the first job. A native call cannot be interrupted: an aborted job is skipped if it waits, and
 * runs to its end if it is running.
 */
export class TextThread {
  #thread: CallThread<TextJob, TextAnswer> | undefined;
  readonly #waiting: Job[] = [];
  #running: Job | undefined;
  #isClosed: boolean = false;

  /** Rejects with the signal's reason if the signal aborts, and if the thread is closed. */
  run(work: TextJob, signal?: AbortSignal): Promise<TextAnswer> {
    assert(!this.#isClosed, 'the text thread is closed');
    return new Promise((resolve, reject) => {
      if (signal?.aborted === true) return reject(signal.reason);
      const giveUp = (): void => {
        const place = this.#waiting.indexOf(job);
        if (place >= 0) this.#waiting.splice(place, 1);
        reject(signal?.reason);
      };
      const settled = (): void => signal?.removeEventListener('abort', giveUp);
      const job: Job = {
        work,
        resolve: (answer) => {
          settled();
          resolve(answer);
        },
        reject: (error) => {
          settled();
          reject(error);
        },
      };
      signal?.addEventListener('abort', giveUp, { once: true });
      this.#waiting.push(job);
      if (this.#running === undefined) void this.#runWaiting();
    });
  }

  /**
   * Rejects unfinished jobs. Resolves when the thread has ended, which is after the running native call. Idempotent.
   */
  async close(): Promise<void> {
    this.#isClosed = true;
    const error = new Error('the text thread was closed');
    for (const job of this.#waiting.splice(0)) job.reject(error);
    this.#running?.reject(error);
    this.#thread?.end();
    await this.#thread?.gone;
  }

  /** Sends one job at a time to the thread, so that aborted jobs are not run. */
  async #runWaiting(): Promise<void> {
    for (;;) {
      const job = this.#waiting.shift();
      this.#running = job;
      if (job === undefined) return;
      this.#thread ??= new CallThread(threadEntry(import.meta.url, 'text-thread-main'), undefined, 'kvasir-text');
      try {
        job.resolve(await this.#thread.call(job.work));
      } catch (error) {
        job.reject(error);
      }
    }
  }
}

interface Job {
  readonly work: TextJob;
  /** Has no effect on an aborted job. */
  resolve(answer: TextAnswer): void;
  reject(error: unknown): void;
}
