/**
 * Merges several streams into one, in the order of arrival. The first `atOnce` begin at once, and each of the others when one has
 * ended. `next` of a source is called only after its last item was
 * taken, so a slow reader slows all sources down. The cost of an item does not depend on the number of sources. The
 * first error ends the merged stream. Every source is closed at the end.
 */
export async function* mergeStreams<T>(
  sources: readonly (() => AsyncIterator<T>)[],
  atOnce = sources.length,
): AsyncGenerator<{ readonly source: number; readonly value: T }, void, void> {
  const arrived: { readonly source: number; readonly result: IteratorResult<T> }[] = [];
  let failure: { readonly error: unknown } | undefined;
  let wake: () => void = () => {};
  const begun: AsyncIterator<T>[] = [];
  const begin = (): void => {
    const source = begun.length;
    if (source === sources.length) return;
    begun.push(sources[source]!());
    pull(source);
  };
  const pull = (source: number): void => {
    begun[source]!.next().then(
      (result) => {
        arrived.push({ source, result });
        wake();
      },
      (error: unknown) => {
        failure ??= { error };
        wake();
      },
    );
  };
  try {
    for (let i = 0; i < atOnce; i++) begin();
    let open = sources.length;
    while (open > 0) {
      if (failure !== undefined) throw failure.error;
      const next = arrived.shift();
      if (next === undefined) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      } else if (next.result.done === true) {
        open--;
        begin();
      } else {
        yield { source: next.source, value: next.result.value };
        pull(next.source);
      }
    }
  } finally {
    // A source that has ended ignores this. An error of closing must not hide the first error.
    await Promise.allSettled(begun.map((source) => source.return?.()));
  }
}
