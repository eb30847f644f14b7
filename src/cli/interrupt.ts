/** Undefined when the user has lost patience; work that cannot be stopped then ends with the process. */
export async function orInterrupted<T>(work: Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  const stopListening = new AbortController();
  try {
    return await Promise.race([work, aborted(signal, stopListening.signal).then(() => undefined)]);
  } finally {
    stopListening.abort();
  }
}

/** Resolves when the signal is aborted; never, once `noLonger` is. */
export function aborted(signal: AbortSignal, noLonger?: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    signal.addEventListener('abort', () => resolve(), {
      once: true,
      ...(noLonger === undefined ? {} : { signal: noLonger }),
    });
  });
}
