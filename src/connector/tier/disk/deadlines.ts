/** Runs a call that has no other time limit. */
export async function withTimeout<T>(
  timeoutMs: number,
  call: (signal: AbortSignal) => Promise<T>,
  closing?: AbortSignal,
): Promise<T> {
  const controller = new AbortController();
  const timer = setTimeout(() => {
    const error = new Error(`no answer in ${timeoutMs / 1000} s`);
    controller.abort(Object.assign(error, { code: 'ETIMEDOUT' }));
  }, timeoutMs);
  timer.unref();
  const onClose = (): void => controller.abort(closing?.reason);
  closing?.addEventListener('abort', onClose, { once: true });
  try {
    return await call(controller.signal);
  } finally {
    clearTimeout(timer);
    closing?.removeEventListener('abort', onClose);
  }
}
