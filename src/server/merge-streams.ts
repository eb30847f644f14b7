/**
 * Merges several streams into one, in the order of arrival. `next` of a source is called only after its last item was
 * taken, so a slow reader slows all sources down. The cost of an item does not depend on the number of sources. The
 * first error ends the merged stream. Every source is closed at the end.
 */
export async function* mergeStreams<T>(
  sources: readonly AsyncIterator<T>[],
): AsyncGenerator<{ readonly source: number; readonly value: T }, void, void> {
  const arrived: { readonly source: number; readonly result: IteratorResult<T> }[] = [];
  let failure: { readonly error: unknown } | undefined;
  let wake: () => void = () => {};
  const pull = (source: number): void => {
    sources[source]!.next().then(
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
    for (let source = 0; source < sources.length; source++) pull(source);
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
      } else {
        yield { source: next.source, value: next.result.value };
        pull(next.source);
      }
    }
  } finally {
    // A source that has ended ignores this. An error of closing must not hide the first error.
    await Promise.allSettled(sources.map((source) => source.return?.()));
  }
}
