import type { Timers } from './timers.ts';
import { unlessAborted } from './unless-aborted.ts';

/** Resolves after this time. Rejects with the signal's reason at an abort. */
export function delay(timers: Timers, delayMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => {
      timer.cancel();
      reject(signal!.reason as Error);
    };
    const timer = timers.after(delayMs, () => {
      signal?.removeEventListener('abort', onAbort);
      resolve();
    });
    if (signal?.aborted === true) onAbort();
    else signal?.addEventListener('abort', onAbort, { once: true });
  });
}

/** Whether the promise settles within this time. */
export function settlesWithin(timers: Timers, timeoutMs: number, promise: Promise<unknown>): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = timers.after(timeoutMs, () => resolve(false));
    const settled = (): void => {
      timer.cancel();
      resolve(true);
    };
    promise.then(settled, settled);
  });
}

export interface Deadline {
  readonly timers: Timers;
  readonly timeoutMs: number;
  /** Makes the reason of the abort at the deadline. Default: an Error. */
  readonly late?: (message: string) => Error;
  /** Aborts the call, too. */
  readonly signal?: AbortSignal | undefined;
}

/** Runs `call` with a signal that is aborted at the deadline. Rejects at the abort, also if the call goes on. */
export async function withDeadline<T>(
  { timers, timeoutMs, late = (message) => new Error(message), signal }: Deadline,
  call: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  signal?.throwIfAborted();
  const controller = new AbortController();
  const onAbort = (): void => controller.abort(signal?.reason);
  signal?.addEventListener('abort', onAbort, { once: true });
  const timer = timers.after(timeoutMs, () => controller.abort(late(`no answer in ${timeoutMs / 1000} s`)));
  try {
    return await unlessAborted(call(controller.signal), controller.signal);
  } catch (error) {
    // A client may report an abort as an error of its own.
    throw controller.signal.aborted ? controller.signal.reason : error;
  } finally {
    timer.cancel();
    signal?.removeEventListener('abort', onAbort);
  }
}
