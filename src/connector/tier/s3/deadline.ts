import type { Timers } from '../../../base/timers.ts';
import { unlessAborted } from '../../../base/unless-aborted.ts';
import { S3Failure } from './s3-failure.ts';

/**
 * Runs `call` with a signal that is aborted together with `signal`, or after `timeoutMs`. Rejects at the abort, also if the
 * call goes on: the client looks for credentials without a signal.
 */
export async function withDeadline<T>(
  { timers, timeoutMs, signal }: { readonly timers: Timers; readonly timeoutMs: number; readonly signal: AbortSignal },
  call: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  signal.throwIfAborted();
  const controller = new AbortController();
  const onAbort = (): void => controller.abort(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  const timer = timers.after(timeoutMs, () => {
    controller.abort(new S3Failure('failed', 'TimeoutError', `no answer in ${timeoutMs / 1000} s`));
  });
  try {
    return await unlessAborted(call(controller.signal), controller.signal);
  } catch (error) {
    // The client reports an abort as an error of its own.
    throw controller.signal.aborted ? controller.signal.reason : error;
  } finally {
    timer.cancel();
    signal.removeEventListener('abort', onAbort);
  }
}
