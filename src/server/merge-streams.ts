/**
 * Several streams as one, in the order in which their items come. Each source is asked for its next item only after its
 * last one was taken, so a slow reader slows all sources down; the cost of an item does not grow with their number.
 * The first failure ends the whole. However it ends, every source is closed.
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
    // A source that failed or ended already ignores this; a failure to close must not hide the first failure.
    await Promise.allSettled(sources.map((source) => source.return?.()));
  }
}
