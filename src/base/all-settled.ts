/** Like `Promise.all`, but rejects only after all promises are settled: then no work uses memory that the caller frees. */
export async function allSettled<const T extends readonly unknown[]>(
  promises: T,
): Promise<{ -readonly [K in keyof T]: Awaited<T[K]> }> {
  for (const outcome of await Promise.allSettled(promises)) if (outcome.status === 'rejected') throw outcome.reason;
  return Promise.all(promises);
}
